package generate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"

	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/profile"
)

// Profile makes the machine configs of a cluster profile, cluster.yaml. For Talos up to 1.11 they mean what these steps give:
// `talosctl gen config` with discovery off and with patches that set the pods' and services' subnets, and `talosctl apply-config` with
// a patch that has each node's hostname, address, route, name servers and VIP. Talos from 1.12 on refuses such patches, and here the
// hostname is a document of its own. The user's own patches of patches_dir come last. An error is one of the profile's files.
func Profile(source Source) (*Output, error) {
	if source.Secrets == nil {
		return nil, errNoSecrets
	}

	declared, err := profile.Read(source.File, source.Root)
	if err != nil {
		return nil, err
	}

	patches, err := readProfilePatches(declared, source)
	if err != nil {
		return nil, err
	}

	input, err := profileInput(declared, source)
	if err != nil {
		return nil, fmt.Errorf("prepare generation: %w", err)
	}

	output := &Output{Cluster: declared.Name}

	for _, node := range declared.Machines {
		text, err := profileConfig(input, declared, node, patches.of(node))
		if err != nil {
			return nil, err
		}

		output.Configs = append(output.Configs, Config{Node: node.Name, File: declared.ConfigFile(node), Bytes: text})
	}

	output.GitIgnore = gitIgnore(output.Configs)
	output.Talosconfig, err = source.talosconfig(declared.Name, declared.ControlPlanes(), declared.Addresses())

	return output, err
}

// ProfileImages names the images of every node of a cluster profile. Secrets are not needed.
func ProfileImages(source Source) ([]Images, error) {
	declared, err := profile.Read(source.File, source.Root)
	if err != nil {
		return nil, err
	}

	all := make([]Images, 0, len(declared.Machines))

	for _, node := range declared.Machines {
		all = append(all, Images{
			Node:          node.Name,
			Schematic:     declared.Image.ID,
			Installer:     declared.Installer(),
			BootSchematic: declared.Image.ID,
			Boot:          declared.Image.Boot(),
		})
	}

	return all, nil
}

func profileInput(declared *profile.Profile, source Source) (*generate.Input, error) {
	input, err := generate.NewInput(declared.Name, declared.Endpoint.String(), strings.TrimPrefix(declared.KubernetesVersion, "v"),
		generate.WithVersionContract(declared.Contract),
		generate.WithSecretsBundle(source.Secrets),
		generate.WithInstallDisk(declared.InstallDisk),
		generate.WithInstallImage(declared.Installer()),
		generate.WithDNSDomain(constants.DefaultDNSDomain),
		generate.WithClusterDiscovery(false),
	)
	if err != nil {
		return nil, err
	}

	if declared.PodSubnet.IsValid() {
		input.PodNet = []string{declared.PodSubnet.String()}
	}

	if declared.ServiceSubnet.IsValid() {
		input.ServiceNet = []string{declared.ServiceSubnet.String()}
	}

	return input, nil
}

// profileConfig is a node's machine config, after Talos' own word on it.
func profileConfig(input *generate.Input, declared *profile.Profile, node profile.Machine, patches []profilePatch) ([]byte, error) {
	text, err := patchedConfig(input, declared, node, patches)
	if err != nil {
		return nil, err
	}

	if err = refusal(text, declared, node); err == nil {
		return text, nil
	}

	for i := range patches {
		text, patchErr := patchedConfig(input, declared, node, patches[:i+1])
		if patchErr == nil && refusal(text, declared, node) != nil {
			return nil, patches[i].refused(node, err)
		}
	}

	return nil, err
}

// refusal is what Talos says against a machine config: that it is not valid, or that it is for a newer release.
func refusal(text []byte, declared *profile.Profile, node profile.Machine) error {
	made, err := machineconfig.FromBytes(declared.ConfigFile(node), text)
	if err == nil {
		_, err = made.Validate(machineconfig.Mode{Metal: true})
	}

	if err != nil {
		return fmt.Errorf("validate machine config of %s: %w", node.Name, err)
	}

	// Of what is older than 1.5 nothing is known, and nothing is asked.
	if needed := made.TalosContract(); needed.Greater(declared.Contract) && needed.Greater(talosconfig.TalosVersion1_5) {
		return fmt.Errorf("the machine config of %s needs Talos %s or newer, and talos.version is %s", node.Name, needed, declared.TalosVersion)
	}

	return nil
}

func patchedConfig(input *generate.Input, declared *profile.Profile, node profile.Machine, patches []profilePatch) ([]byte, error) {
	config, err := input.Config(node.Role)
	if err != nil {
		return nil, fmt.Errorf("generate machine config of %s: %w", node.Name, err)
	}

	own := nodeNetwork(declared, node)
	leaveToPatches(own, node.Address.Addr(), patches)

	config, err = config.PatchV1Alpha1(func(raw *v1alpha1.Config) error {
		raw.MachineConfig.MachineNetwork = own

		return nil
	})
	if err == nil && declared.Contract.MultidocNetworkConfigSupported() {
		config, err = moveHostname(config)
	}

	if err != nil {
		return nil, fmt.Errorf("set network of %s: %w", node.Name, err)
	}

	for _, one := range patches {
		if config, err = patched(config, one.loaded); err != nil {
			return nil, one.refused(node, err)
		}
	}

	// A patch may have brought one back.
	if declared.Contract.MultidocNetworkConfigSupported() {
		if config, err = moveHostname(config); err != nil {
			return nil, fmt.Errorf("set hostname of %s: %w", node.Name, err)
		}
	}

	text, err := config.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	if err != nil {
		return nil, fmt.Errorf("write machine config of %s: %w", node.Name, err)
	}

	return text, nil
}

// nodeNetwork is what the profile says about a node's network.
func nodeNetwork(declared *profile.Profile, node profile.Machine) *v1alpha1.NetworkConfig {
	anywhere := "0.0.0.0/0"
	if node.Address.Addr().Is6() {
		anywhere = "::/0"
	}

	device := &v1alpha1.Device{
		DeviceInterface: node.Interface,
		DeviceDHCP:      new(false),
		DeviceAddresses: []string{node.Address.String()},
		DeviceRoutes:    []*v1alpha1.Route{{RouteNetwork: anywhere, RouteGateway: node.Gateway.String()}},
	}

	if node.Role == machine.TypeControlPlane && declared.VIP.IsValid() {
		device.DeviceVIPConfig = &v1alpha1.DeviceVIPConfig{SharedIP: declared.VIP.String()}
	}

	own := &v1alpha1.NetworkConfig{NetworkHostname: node.Name, NetworkInterfaces: v1alpha1.NetworkDeviceList{device}}

	for _, server := range declared.Nameservers {
		own.NameServers = append(own.NameServers, server.String())
	}

	return own
}

// moveHostname makes a hostname of machine.network that of a HostnameConfig: Talos from 1.12 on, whose generated configs have such a
// document, refuses both side by side.
func moveHostname(config talosconfig.Provider) (talosconfig.Provider, error) {
	raw := config.RawV1Alpha1()
	if raw == nil || raw.MachineConfig == nil || raw.MachineConfig.MachineNetwork == nil || raw.MachineConfig.MachineNetwork.NetworkHostname == "" {
		return config, nil
	}

	name := raw.MachineConfig.MachineNetwork.NetworkHostname

	config, err := config.PatchV1Alpha1(func(raw *v1alpha1.Config) error {
		raw.MachineConfig.MachineNetwork.NetworkHostname = ""

		return nil
	})
	if err != nil {
		return nil, err
	}

	hostname := network.NewHostnameConfigV1Alpha1()
	hostname.ConfigHostname, hostname.ConfigAuto = name, new(nethelpers.AutoHostnameKindOff)

	document, err := container.New(hostname)
	if err != nil {
		return nil, err
	}

	return configpatcher.StrategicMerge(config, configpatcher.NewStrategicMergePatch(document))
}

// leaveToPatches takes out of a node's network what a patch says itself. Talos appends lists when it merges, so that a patch with the
// node's whole network, as those who use talosctl have one, would leave each address and route there twice.
func leaveToPatches(own *v1alpha1.NetworkConfig, address netip.Addr, patches []profilePatch) {
	for _, patch := range patches {
		said := patch.network()
		if said == nil {
			continue
		}

		if len(said.NameServers) > 0 {
			own.NameServers = nil
		}

		for _, device := range said.NetworkInterfaces {
			if len(own.NetworkInterfaces) > 0 {
				leaveToDevice(own, device, address)
			}
		}
	}
}

func leaveToDevice(own *v1alpha1.NetworkConfig, said *v1alpha1.Device, address netip.Addr) {
	generated := own.NetworkInterfaces[0]
	isSame := said.DeviceInterface == generated.DeviceInterface
	hasAddress := slices.ContainsFunc(said.DeviceAddresses, func(text string) bool {
		host, _, _ := strings.Cut(text, "/")

		return host == address.String()
	})

	switch {
	case hasAddress && !isSame:
		own.NetworkInterfaces = nil // the node's link has another name than the profile says
	case isSame:
		if hasAddress {
			generated.DeviceAddresses = nil
		}

		if slices.ContainsFunc(said.DeviceRoutes, isDefaultRoute) {
			generated.DeviceRoutes = nil
		}
	}
}

func isDefaultRoute(route *v1alpha1.Route) bool {
	return slices.Contains([]string{"", "0.0.0.0/0", "::/0"}, route.RouteNetwork)
}
