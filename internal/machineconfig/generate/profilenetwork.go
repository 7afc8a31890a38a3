package generate

import (
	"net/netip"
	"slices"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/types/meta"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"

	"github.com/talos-mage/talos-mage/internal/cluster/profile"
)

// profileNetwork is what a profile says about a node's network, less what the user's patches say themselves.
type profileNetwork struct {
	hostname string
	address  netip.Addr
	device   *v1alpha1.Device
	servers  []netip.Addr
	// asDocument is set when the name servers have to stand in a document of their own, as a patch has a part of that.
	asDocument bool
}

func nodeNetwork(declared *profile.Profile, node profile.Machine) *profileNetwork {
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

	return &profileNetwork{hostname: node.Name, address: node.Address.Addr(), device: device,
		servers: declared.Nameservers}
}

// leaveTo takes out what a patch says itself. Talos appends lists when it merges, so that a patch with the node's whole
// network, as those who use talosctl have one, would leave each address and route there twice.
func (n *profileNetwork) leaveTo(patches []profilePatch) {
	for _, patch := range patches {
		for _, document := range patch.documents() {
			switch said := document.(type) {
			case *v1alpha1.Config:
				n.leaveToOld(said)
			case config.NetworkResolverConfig:
				n.asDocument = true

				if len(said.Resolvers()) > 0 {
					n.servers = nil
				}
			case config.NetworkCommonLinkConfig:
				n.leaveToLink(said)
			}
		}
	}
}

func (n *profileNetwork) leaveToOld(said *v1alpha1.Config) {
	if said.MachineConfig == nil || said.MachineConfig.MachineNetwork == nil {
		return
	}

	if len(said.MachineConfig.MachineNetwork.NameServers) > 0 {
		n.servers = nil
	}

	for _, device := range said.MachineConfig.MachineNetwork.NetworkInterfaces {
		hasAddress := slices.ContainsFunc(device.DeviceAddresses, func(text string) bool {
			host, _, _ := strings.Cut(text, "/")

			return host == n.address.String()
		})

		// The node's link has another name than the profile says. The VIP goes with it.
		if hasAddress {
			n.device.DeviceInterface, n.device.DeviceSelector = device.DeviceInterface, device.DeviceSelector.DeepCopy()
		}

		n.leaveAddresses(device.DeviceInterface == n.device.DeviceInterface, hasAddress,
			slices.ContainsFunc(device.DeviceRoutes, isDefaultRoute))
	}
}

func (n *profileNetwork) leaveToLink(said config.NetworkCommonLinkConfig) {
	hasAddress := slices.ContainsFunc(said.Addresses(),
		func(one config.NetworkAddressConfig) bool { return one.Address().Addr() == n.address })
	hasDefault := slices.ContainsFunc(said.Routes(),
		func(one config.NetworkRouteConfig) bool { return one.Destination().ValueOrZero().Bits() <= 0 })

	if hasAddress {
		n.device.DeviceInterface = said.Name()
	}

	n.leaveAddresses(said.Name() == n.device.DeviceInterface, hasAddress, hasDefault)
}

func (n *profileNetwork) leaveAddresses(isSame, hasAddress, hasDefault bool) {
	if hasAddress {
		n.device.DeviceAddresses = nil
	}

	if isSame && hasDefault {
		n.device.DeviceRoutes = nil
	}
}

func isDefaultRoute(route *v1alpha1.Route) bool {
	return slices.Contains([]string{"", "0.0.0.0/0", "::/0"}, route.RouteNetwork)
}

// addTo puts the network into a generated config, which has none yet.
func (n *profileNetwork) addTo(generated talosconfig.Provider, multidoc bool) (talosconfig.Provider, error) {
	old := &v1alpha1.NetworkConfig{NetworkHostname: n.hostname, NetworkInterfaces: v1alpha1.NetworkDeviceList{n.device}}

	if !n.asDocument {
		for _, server := range n.servers {
			old.NameServers = append(old.NameServers, server.String())
		}
	}

	generated, err := generated.PatchV1Alpha1(func(raw *v1alpha1.Config) error {
		raw.MachineConfig.MachineNetwork = old

		return nil
	})
	if err == nil && multidoc {
		generated, err = moveHostname(generated)
	}

	if err != nil || !n.asDocument || len(n.servers) == 0 {
		return generated, err
	}

	resolver := network.NewResolverConfigV1Alpha1()
	for _, server := range n.servers {
		resolver.ResolverNameservers = append(resolver.ResolverNameservers,
			network.NameserverConfig{Address: meta.Addr{Addr: server}})
	}

	return withDocument(generated, resolver)
}

func withDocument(provider talosconfig.Provider, document config.Document) (talosconfig.Provider, error) {
	added, err := container.New(document)
	if err != nil {
		return nil, err
	}

	return configpatcher.StrategicMerge(provider, configpatcher.NewStrategicMergePatch(added))
}

// moveHostname makes a hostname of machine.network that of a HostnameConfig: Talos from 1.12 on, whose generated
// configs have such a document, refuses both side by side.
func moveHostname(provider talosconfig.Provider) (talosconfig.Provider, error) {
	raw := provider.RawV1Alpha1()
	if raw == nil || raw.MachineConfig == nil || raw.MachineConfig.MachineNetwork == nil ||
		raw.MachineConfig.MachineNetwork.NetworkHostname == "" {
		return provider, nil
	}

	name := raw.MachineConfig.MachineNetwork.NetworkHostname

	provider, err := provider.PatchV1Alpha1(func(raw *v1alpha1.Config) error {
		raw.MachineConfig.MachineNetwork.NetworkHostname = ""

		return nil
	})
	if err != nil {
		return nil, err
	}

	hostname := network.NewHostnameConfigV1Alpha1()
	hostname.ConfigHostname, hostname.ConfigAuto = name, new(nethelpers.AutoHostnameKindOff)

	return withDocument(provider, hostname)
}
