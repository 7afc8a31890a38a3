package machineconfig

import (
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
)

// Fields of the document without a kind that no accessor of machinery gives as they are written, with an index for
// each item. All of them may be empty in a config that says the same in documents.

// Interfaces are those of machine.network; YAML allows nil ones.
func (c *Config) Interfaces() []*v1alpha1.Device {
	network := c.raw.MachineConfig.MachineNetwork //nolint:staticcheck // old files have it
	if network == nil {
		return nil
	}

	return network.NetworkInterfaces //nolint:staticcheck // as above
}

// OlderHostname is that of machine.network.
func (c *Config) OlderHostname() string {
	network := c.raw.MachineConfig.MachineNetwork //nolint:staticcheck // old files have it
	if network == nil {
		return ""
	}

	return network.NetworkHostname //nolint:staticcheck // as above
}

// OlderNameServers are those of machine.network.
func (c *Config) OlderNameServers() []string {
	network := c.raw.MachineConfig.MachineNetwork //nolint:staticcheck // old files have it
	if network == nil {
		return nil
	}

	return network.NameServers //nolint:staticcheck // as above
}

// OlderTimeServers are those of machine.time.
func (c *Config) OlderTimeServers() []string {
	declared := c.raw.MachineConfig.MachineTime //nolint:staticcheck // old files have it
	if declared == nil {
		return nil
	}

	return declared.TimeServers
}

// Files are those that machine.files writes; YAML allows nil ones.
func (c *Config) Files() []*v1alpha1.MachineFile { return c.raw.MachineConfig.MachineFiles } //nolint:staticcheck // old files have them

// Disks are those that machine.disks partitions; YAML allows nil ones.
func (c *Config) Disks() []*v1alpha1.MachineDisk { return c.raw.MachineConfig.MachineDisks } //nolint:staticcheck // old files have them

// Registries are those of machine.registries.
func (c *Config) Registries() v1alpha1.RegistriesConfig { return c.raw.MachineConfig.MachineRegistries } //nolint:staticcheck // old files have them

// RBAC is what machine.features says of it, as configs up to Talos 1.11 do; nil if nothing.
func (c *Config) RBAC() *bool {
	if features := c.raw.MachineConfig.MachineFeatures; features != nil {
		return features.RBAC
	}

	return nil
}

// OlderEncryption is what machine.systemDiskEncryption says of a volume, by its label; nil if nothing.
func (c *Config) OlderEncryption(label string) config.EncryptionConfig {
	return c.Provider.Machine().SystemDiskEncryption().Get(label)
}

// devices are the interfaces of machine.network, the nil entries that YAML allows left out.
func (c *Config) devices() []*v1alpha1.Device {
	return slices.DeleteFunc(slices.Clone(c.Interfaces()),
		func(device *v1alpha1.Device) bool { return device == nil })
}

// Conflicts reports whether Talos refuses a document beside the fields of the older form that the config has.
func (c *Config) Conflicts(document config.Document) bool {
	judge, judges := document.(container.V1Alpha1ConflictValidator)

	return judges && judge.V1Alpha1ConflictValidate(c.raw) != nil
}
