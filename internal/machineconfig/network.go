package machineconfig

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

	"github.com/talos-mage/talos-mage/internal/base/host"
	"github.com/talos-mage/talos-mage/internal/base/pattern"
)

// Network settings stand in two places: machine.network.interfaces, as all Talos versions read them, and documents of
// their own since Talos 1.12. Both count.

func vlans(device *v1alpha1.Device) []*v1alpha1.Vlan {
	return slices.DeleteFunc(slices.Clone(device.DeviceVlans), func(vlan *v1alpha1.Vlan) bool { return vlan == nil })
}

// Addresses are the static addresses of all links, without virtual ones. An address without a prefix length is a whole
// one.
func (c *Config) Addresses() []netip.Prefix {
	addresses := DeviceAddresses(c.devices())

	for _, link := range c.Provider.NetworkCommonLinkConfigs() {
		for _, address := range link.Addresses() {
			if address.Address().IsValid() {
				addresses = append(addresses, address.Address())
			}
		}
	}

	return addresses
}

// DeviceAddresses are the static addresses of devices, as Addresses has them.
func DeviceAddresses(devices []*v1alpha1.Device) []netip.Prefix {
	var addresses []netip.Prefix

	add := func(text string) {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			addresses = append(addresses, prefix)
		} else if addr, err := netip.ParseAddr(text); err == nil {
			addresses = append(addresses, netip.PrefixFrom(addr, addr.BitLen()))
		}
	}

	for _, device := range devices {
		if device == nil {
			continue
		}

		for _, address := range device.Addresses() {
			add(address)
		}

		for _, vlan := range vlans(device) {
			for _, address := range vlan.Addresses() {
				add(address)
			}
		}
	}

	return addresses
}

// VIPs are the virtual addresses that this node shares.
func (c *Config) VIPs() []netip.Addr {
	vips := DeviceVIPs(c.devices())

	for _, vip := range c.Provider.NetworkVirtualIPConfigs() {
		// VIP parses the document's name and panics on anything but an address, which Validate refuses.
		if addr, err := netip.ParseAddr(vip.Name()); err == nil {
			vips = append(vips, addr)
		}
	}

	return vips
}

// DeviceVIPs are the virtual addresses of interfaces and their VLANs, as they stand in machine.network and
// talconfig.yaml.
func DeviceVIPs(devices []*v1alpha1.Device) []netip.Addr {
	var vips []netip.Addr

	add := func(vip *v1alpha1.DeviceVIPConfig) {
		if vip == nil {
			return
		}

		if addr, err := netip.ParseAddr(vip.SharedIP); err == nil {
			vips = append(vips, addr)
		}
	}

	for _, device := range devices {
		if device == nil {
			continue
		}

		add(device.DeviceVIPConfig)

		for _, vlan := range vlans(device) {
			add(vlan.VlanVIP)
		}
	}

	return vips
}

// Gateways are the next hops of all routes.
func (c *Config) Gateways() []netip.Addr {
	var gateways []netip.Addr

	add := func(routes []*v1alpha1.Route) {
		for _, route := range routes {
			if route == nil {
				continue
			}

			if addr, err := netip.ParseAddr(route.RouteGateway); err == nil {
				gateways = append(gateways, addr)
			}
		}
	}

	for _, device := range c.devices() {
		add(device.DeviceRoutes)

		for _, vlan := range vlans(device) {
			add(vlan.VlanRoutes)
		}
	}

	for _, link := range c.Provider.NetworkCommonLinkConfigs() {
		for _, route := range link.Routes() {
			if gateway, ok := route.Gateway().Get(); ok && gateway.IsValid() {
				gateways = append(gateways, gateway)
			}
		}
	}

	return gateways
}

// Links are the physical links that the config calls by name: the machine must have each of them. Links selected by
// hardware properties, their aliases, and links that Talos creates itself are left out. Each name is listed once.
func (c *Config) Links() []string {
	var named, made []string

	for _, device := range c.devices() {
		name := device.DeviceInterface

		if isLogical(device) {
			made = append(made, name)
		} else {
			named = append(named, name)
		}

		if device.DeviceBond != nil {
			named = append(named, device.DeviceBond.BondInterfaces...)
		}

		if device.DeviceBridge != nil {
			named = append(named, device.DeviceBridge.BridgedInterfaces...)
		}
	}

	for _, link := range c.Provider.NetworkCommonLinkConfigs() {
		if _, physical := link.(config.NetworkPhysicalLinkConfig); physical {
			named = append(named, link.Name())
		} else {
			made = append(made, link.Name())
		}

		if members, ok := link.(interface{ Links() []string }); ok {
			named = append(named, members.Links()...)
		}

		if vlan, ok := link.(config.NetworkVLANConfig); ok {
			named = append(named, vlan.ParentLink())
		}
	}

	for _, vip := range c.Provider.NetworkVirtualIPConfigs() {
		named = append(named, vip.Link())
	}

	for _, dhcp := range c.Provider.NetworkDHCPConfigs() {
		named = append(named, dhcp.Name())
	}

	for _, ethernet := range c.Provider.EthernetConfigs() {
		named = append(named, ethernet.Name())
	}

	return slices.DeleteFunc(distinct(named), func(name string) bool {
		return slices.Contains(made, name) || c.IsAlias(name)
	})
}

// isLogical reports whether Talos makes the link: a bond, a bridge, a dummy, a WireGuard tunnel, or nothing but a name
// for those.
func isLogical(device *v1alpha1.Device) bool {
	return device.DeviceBond != nil || device.DeviceBridge != nil || device.DeviceWireguardConfig != nil ||
		device.DeviceDummy != nil && *device.DeviceDummy || strings.HasPrefix(device.DeviceInterface, "lo")
}

// IsAlias reports whether a LinkAliasConfig document makes the name; "net%d" makes net0, net1 and so on.
func (c *Config) IsAlias(name string) bool {
	for _, alias := range c.Provider.NetworkLinkAliasConfigs() {
		prefix, _, pattern := strings.Cut(alias.Name(), "%")
		rest, found := strings.CutPrefix(name, prefix)

		if found && (pattern && rest != "" && strings.Trim(rest, "0123456789") == "" || !pattern && rest == "") {
			return true
		}
	}

	return false
}

// LinkSelectors reports whether the config picks a link by its hardware properties.
func (c *Config) LinkSelectors() bool {
	return len(c.Provider.NetworkLinkAliasConfigs()) > 0 ||
		slices.ContainsFunc(c.devices(), func(device *v1alpha1.Device) bool { return device.DeviceSelector != nil })
}

// MACs are the complete hardware addresses by which the config selects links of this machine, in lower case with
// colons; globs are left out. Each is listed once.
func (c *Config) MACs() []string {
	macs := DeviceMACs(c.devices())

	for _, alias := range c.Provider.NetworkLinkAliasConfigs() {
		selector := alias.LinkSelector()
		if selector.IsZero() {
			continue
		}

		// What a negation or an alternative selects is not this link, or not only this one.
		text := selector.String()
		if strings.Contains(text, "||") || strings.Contains(text, "!") {
			continue
		}

		for _, match := range selectorMAC.FindAllStringSubmatch(text, -1) {
			macs = append(macs, host.MAC(match[1]+match[2]+match[3]))
		}
	}

	return distinct(macs)
}

// DeviceMACs are the complete hardware addresses that select links, of interfaces as they stand in machine.network and
// talconfig.yaml.
func DeviceMACs(devices []*v1alpha1.Device) []string {
	var macs []string

	for _, device := range devices {
		if device == nil {
			continue
		}

		macs = append(macs, selectorMACs(device.DeviceSelector)...)

		if device.DeviceBond != nil {
			for _, selector := range device.DeviceBond.BondDeviceSelectors {
				macs = append(macs, selectorMACs(&selector)...)
			}
		}
	}

	return distinct(macs)
}

// distinct sorts texts and keeps each that is not empty once.
func distinct(texts []string) []string {
	slices.Sort(texts)

	return slices.DeleteFunc(slices.Compact(texts), func(text string) bool { return text == "" })
}

// selectorMAC finds an address compared with a link's, in whichever of these ways and quotes:
// mac(link.permanent_addr) == "…", "…" == mac(link.permanent_addr), glob("…", mac(link.hardware_addr)).
var selectorMAC = pattern.New(selectedAddr + `\s*==\s*` + quotedText + `|` + quotedText + `\s*==\s*` + selectedAddr +
	`|glob\(\s*` + quotedText + `\s*,\s*` + selectedAddr)

const (
	selectedAddr = `mac\(\s*link\.(?:permanent|hardware)_addr\s*\)`
	quotedText   = `["']([^"']*)["']`
)

func selectorMACs(selector *v1alpha1.NetworkDeviceSelector) []string {
	if selector == nil {
		return nil
	}

	return []string{host.MAC(selector.NetworkDeviceHardwareAddress),
		host.MAC(selector.NetworkDevicePermanentAddress)}
}

// encryptedVolume is a document whose volume may be encrypted.
type encryptedVolume interface {
	Encryption() config.EncryptionConfig
}

func (c *Config) volumeEncryptions() []encryptedVolume {
	var volumes []encryptedVolume

	for _, document := range c.Provider.Documents() {
		if volume, ok := document.(encryptedVolume); ok {
			volumes = append(volumes, volume)
		}
	}

	return volumes
}

func hasTPMKey(volume encryptedVolume) bool {
	encryption := volume.Encryption()

	return encryption != nil && slices.ContainsFunc(encryption.Keys(), func(key config.EncryptionKey) bool {
		return key.TPM() != nil
	})
}

// UsesDHCP reports whether a link may get an address by DHCP: one asks for it, or none is configured by a document, so
// that Talos runs DHCP on the links that nothing configures.
func (c *Config) UsesDHCP() bool {
	asks := func(dhcp *bool) bool { return dhcp != nil && *dhcp }

	for _, device := range c.devices() {
		if asks(device.DeviceDHCP) ||
			slices.ContainsFunc(vlans(device), func(vlan *v1alpha1.Vlan) bool { return asks(vlan.VlanDHCP) }) {
			return true
		}
	}

	return len(c.Provider.NetworkDHCPConfigs()) > 0 || c.Provider.RunDefaultDHCPOperators()
}
