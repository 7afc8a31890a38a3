package talos

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	configpb "github.com/siderolabs/talos/pkg/machinery/api/resource/config"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/proto"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	timeres "github.com/siderolabs/talos/pkg/machinery/resources/time"
)

// get reads one resource.
func get[T resource.Resource](ctx context.Context, c *Conn, pointer resource.Pointer) (T, error) {
	var found T

	err := c.read(ctx, OpRead, func(ctx context.Context) error {
		var err error
		found, err = safe.StateGet[T](ctx, c.api.COSI, pointer)
		return err
	})

	return found, err
}

// list reads all resources of a kind.
func list[T resource.Resource](ctx context.Context, c *Conn, pointer resource.Pointer) ([]T, error) {
	var found []T

	err := c.read(ctx, OpRead, func(ctx context.Context) error {
		all, err := safe.StateList[T](ctx, c.api.COSI, pointer)
		if err != nil {
			return err
		}

		found = slices.AppendSeq(make([]T, 0, all.Len()), all.All())

		return nil
	})

	return found, err
}

// Status is a node's own view of itself.
type Status struct {
	// Stage is "maintenance", "installing", "booting", "running", "rebooting", "shutting down", "resetting", "upgrading"
	// or "unknown".
	Stage string
	// Ready means something in booting and running only; in every other stage it is true.
	Ready bool
	// Unmet are the conditions that readiness waits for.
	Unmet []Condition
}

// Same reports whether nothing has changed for the node.
func (s Status) Same(other Status) bool {
	return s.Stage == other.Stage && s.Ready == other.Ready && slices.Equal(s.Unmet, other.Unmet)
}

// Condition is an unmet condition of readiness: "time", "network", "services", "staticPods" or "nodeReady", and why.
type Condition struct{ Name, Reason string }

// Stages that a node passes through.
const (
	StageBooting     = "booting"
	StageInstalling  = "installing"
	StageMaintenance = "maintenance"
	StageRunning     = "running"
	StageRebooting   = "rebooting"
	StageShutdown    = "shutting down"
	StageResetting   = "resetting"
	StageUpgrading   = "upgrading"
)

// MachineStatus reads the stage and readiness.
func (c *Conn) MachineStatus(ctx context.Context) (Status, error) {
	machineStatus, err := get[*runtime.MachineStatus](ctx, c, runtime.NewMachineStatus().Metadata())
	if err != nil {
		return Status{}, err
	}

	return readStatus(machineStatus), nil
}

func readStatus(machineStatus *runtime.MachineStatus) Status {
	spec := machineStatus.TypedSpec()
	status := Status{Stage: spec.Stage.String(), Ready: spec.Status.Ready}
	for _, condition := range spec.Status.UnmetConditions {
		status.Unmet = append(status.Unmet, Condition{Name: condition.Name, Reason: condition.Reason})
	}

	return status
}

// Disks reads the block devices, in the order in which Talos lists them: at install the first match wins.
func (c *Conn) Disks(ctx context.Context) ([]*block.Disk, error) {
	return list[*block.Disk](ctx, c, block.NewDisk(block.NamespaceName, "").Metadata())
}

// DisksState copies the disks into a state of their own, as machinery's runtime validation of a config wants them.
func (c *Conn) DisksState(ctx context.Context) (state.State, error) {
	disks, err := c.Disks(ctx)
	if err != nil {
		return nil, err
	}

	return StateOf(ctx, disks)
}

// StateOf holds the given disks in memory.
func StateOf(ctx context.Context, disks []*block.Disk) (state.State, error) {
	held := state.WrapCore(namespaced.NewState(inmem.Build))
	for _, disk := range disks {
		fresh := block.NewDisk(block.NamespaceName, disk.Metadata().ID())
		*fresh.TypedSpec() = *disk.TypedSpec()

		if err := held.Create(ctx, fresh); err != nil {
			return nil, fmt.Errorf("copy disk %s: %w", disk.Metadata().ID(), err)
		}
	}

	return held, nil
}

// SystemDisk reports whether Talos is installed, and on which device ("/dev/sda").
func (c *Conn) SystemDisk(ctx context.Context) (devPath string, installed bool, err error) {
	disk, err := get[*block.SystemDisk](ctx, c, block.NewSystemDisk(block.NamespaceName, block.SystemDiskID).Metadata())
	switch {
	case errors.Is(err, ErrNotFound):
		return "", false, nil
	case err != nil:
		return "", false, err
	default:
		return disk.TypedSpec().DevPath, true, nil
	}
}

// Volume is something that was found on a disk: a partition or a file system.
type Volume struct {
	// ID is the device's name ("sda1"), Disk the disk's ("/dev/sda").
	ID, Disk string
	// Name is what was recognised ("gpt", "xfs", "luks"); empty for an unknown content.
	Name string
	// Label is the partition's label or else the file system's.
	Label string
	Size  uint64
	// Whole is set for a disk as a whole.
	Whole bool
}

// DiscoveredVolumes reads what is on the disks.
func (c *Conn) DiscoveredVolumes(ctx context.Context) ([]Volume, error) {
	found, err := list[*block.DiscoveredVolume](ctx, c, block.NewDiscoveredVolume(block.NamespaceName, "").Metadata())
	if err != nil {
		return nil, err
	}

	volumes := make([]Volume, 0, len(found))
	for _, volume := range found {
		spec := volume.TypedSpec()
		whole := spec.Type == "disk"

		disk := spec.ParentDevPath
		if whole {
			disk = spec.DevPath
		}

		label := spec.PartitionLabel
		if label == "" {
			label = spec.Label
		}

		volumes = append(volumes, Volume{
			ID: volume.Metadata().ID(), Disk: disk, Name: spec.Name, Label: label, Size: spec.Size, Whole: whole,
		})
	}

	return volumes, nil
}

// Link is a network interface.
type Link struct {
	Name string
	// MAC is the permanent address where the hardware has one, else the current one; lower case with colons.
	MAC string
	// Physical links are Ethernet devices that aren't made by software.
	Physical bool
	Up       bool
	// Aliases are other names that the link goes by.
	Aliases []string
	// Status is all that the node tells of it.
	Status *network.LinkStatus
}

// Links reads the network interfaces.
func (c *Conn) Links(ctx context.Context) ([]Link, error) {
	found, err := list[*network.LinkStatus](ctx, c, network.NewLinkStatus(network.NamespaceName, "").Metadata())
	if err != nil {
		return nil, err
	}

	links := make([]Link, 0, len(found))
	for _, link := range found {
		spec := link.TypedSpec()

		mac := spec.PermanentAddr.String()
		if strings.Trim(mac, "0:") == "" {
			mac = spec.HardwareAddr.String()
		}

		aliases := slices.Clone(spec.AltNames)
		if spec.Alias != "" {
			aliases = append(aliases, spec.Alias)
		}

		links = append(links, Link{
			Name: link.Metadata().ID(), MAC: strings.ToLower(mac), Physical: spec.Physical(), Up: spec.LinkState,
			Aliases: aliases, Status: link,
		})
	}

	return links, nil
}

// SystemInfo is what a machine's firmware says about it.
type SystemInfo struct {
	// UUID is the SMBIOS UUID, lower case.
	UUID string
	// Serial, Manufacturer and Product as the vendor wrote them.
	Serial, Manufacturer, Product string
	// Read is when the node read this, by its own clock: once in each boot. That tells boots apart where there is no
	// BootID. A certificate does so less well: in maintenance a node makes itself a new one whenever its clock is set or
	// its addresses change.
	Read time.Time
}

// SystemInformation reads the firmware's data.
func (c *Conn) SystemInformation(ctx context.Context) (SystemInfo, error) {
	info, err := get[*hardware.SystemInformation](ctx, c,
		hardware.NewSystemInformation(hardware.SystemInformationID).Metadata())
	if err != nil {
		return SystemInfo{}, err
	}

	spec := info.TypedSpec()

	return SystemInfo{
		UUID: strings.ToLower(spec.UUID), Serial: spec.SerialNumber, Manufacturer: spec.Manufacturer,
		Product: spec.ProductName,
		Read:    info.Metadata().Created(),
	}, nil
}

// Security is the machine's boot security.
type Security struct {
	SecureBoot bool
	// UKI is set when the machine booted a unified kernel image.
	UKI bool
}

// SecurityState reads the boot security.
func (c *Conn) SecurityState(ctx context.Context) (Security, error) {
	security, err := get[*runtime.SecurityState](ctx, c, runtime.NewSecurityStateSpec(runtime.NamespaceName).Metadata())
	if err != nil {
		return Security{}, err
	}

	return Security{SecureBoot: security.TypedSpec().SecureBoot, UKI: security.TypedSpec().BootedWithUKI}, nil
}

// KernelCmdline reads the kernel arguments that the machine booted with.
func (c *Conn) KernelCmdline(ctx context.Context) (string, error) {
	cmdline, err := get[*runtime.KernelCmdline](ctx, c, runtime.NewKernelCmdline().Metadata())
	if err != nil {
		return "", err
	}

	return cmdline.TypedSpec().Cmdline, nil
}

// Version reads the running Talos version ("v1.13.9"): the resource, since Talos 1.12 refuses the Version call in
// maintenance; the call only where the resource is missing.
func (c *Conn) Version(ctx context.Context) (string, error) {
	version, err := get[*runtime.Version](ctx, c, runtime.NewVersion().Metadata())
	if err == nil {
		return version.TypedSpec().Version, nil
	}

	if !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrNotAllowed) {
		return "", err
	}

	var tag string

	err = c.read(ctx, OpRead, func(ctx context.Context) error {
		reply, err := c.api.Version(ctx)
		if err != nil {
			return err
		}

		for _, message := range reply.GetMessages() {
			tag = message.GetVersion().GetTag()
		}

		return nil
	})

	return tag, err
}

// Hostname reads the node's hostname; ErrNotFound while it has none, as usual in maintenance.
func (c *Conn) Hostname(ctx context.Context) (string, error) {
	hostname, err := get[*network.HostnameStatus](ctx, c,
		network.NewHostnameStatus(network.NamespaceName, network.HostnameID).Metadata())
	if err != nil {
		return "", err
	}

	return hostname.TypedSpec().Hostname, nil
}

// Addresses reads the addresses that the node has now.
func (c *Conn) Addresses(ctx context.Context) ([]netip.Prefix, error) {
	addresses, err := get[*network.NodeAddress](ctx, c,
		network.NewNodeAddress(network.NamespaceName, network.NodeAddressCurrentID).Metadata())
	if err != nil {
		return nil, err
	}

	return addresses.TypedSpec().Addresses, nil
}

// MachineConfig reads the active machine config in YAML, with its secrets. ErrNoConfig while the node has none.
func (c *Conn) MachineConfig(ctx context.Context) ([]byte, error) {
	pointer := resource.NewMetadata(config.NamespaceName, config.MachineConfigType, config.ActiveID,
		resource.VersionUndefined)

	var text configText

	err := c.read(ctx, OpRead, func(ctx context.Context) error {
		active, err := safe.StateGet[*protobuf.Resource](ctx, c.api.COSI, pointer,
			state.WithGetUnmarshalOptions(state.WithSkipProtobufUnmarshal()))
		if err != nil {
			return err
		}

		return active.Unmarshal(&text)
	})
	if errors.Is(err, ErrNotFound) {
		return nil, &Error{Op: OpRead, Address: c.address, Insecure: c.Insecure(), Cause: ErrNoConfig, Err: err}
	}

	return text, err
}

// configText is a machine config as the node sends it. It is not parsed: most often it only has to be compared.
type configText []byte

// UnmarshalProto implements protobuf.ResourceUnmarshaler.
func (t *configText) UnmarshalProto(_ *resource.Metadata, data []byte) error {
	var spec configpb.MachineConfigSpec
	if err := proto.Unmarshal(data, &spec); err != nil {
		return fmt.Errorf("decode machine config: %w", err)
	}

	*t = spec.GetYamlMarshalled()

	return nil
}

// Member is a node as the cluster's discovery knows it.
type Member struct {
	Hostname  string
	Addresses []netip.Addr
	Role      machine.Type
}

// Members reads what discovery found: empty without discovery.
func (c *Conn) Members(ctx context.Context) ([]Member, error) {
	found, err := list[*cluster.Member](ctx, c, cluster.NewMember(cluster.NamespaceName, "").Metadata())
	if err != nil {
		return nil, err
	}

	members := make([]Member, 0, len(found))
	for _, member := range found {
		spec := member.TypedSpec()
		members = append(members, Member{Hostname: spec.Hostname, Addresses: spec.Addresses, Role: spec.MachineType})
	}

	return members, nil
}

// TimeSynced reports whether the node's clock is synchronised (or is not to be). Bootstrap waits for it.
func (c *Conn) TimeSynced(ctx context.Context) (bool, error) {
	status, err := get[*timeres.Status](ctx, c, timeres.NewStatus().Metadata())
	if err != nil {
		return false, err
	}

	return status.TypedSpec().Synced || status.TypedSpec().SyncDisabled, nil
}
