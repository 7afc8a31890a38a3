package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
)

// link is one network link of a machine config, whichever way it is written: an item of machine.network.interfaces, a
// VLAN of one, or a document of its own.
type link struct {
	at Place
	// name is empty when a selector picks the link; label is what people call it.
	name, label string
	selector    *v1alpha1.NetworkDeviceSelector
	// document is set when the link has a document of its own.
	document bool
	// made is set for links that Talos creates: bonds, bridges, VLANs and the like.
	made, vlan, dummy bool
	// parent is what a VLAN runs on: a name, or the selected link that it stands under.
	parent   string
	parentAt Place
	members  []member
	mtu      int
	dhcp     bool
	ignored  bool

	addresses []address
	routes    []route
	vips      []vip
}

// member is a link that is part of a bond, a bridge or a VRF.
type member struct {
	name string
	at   Place
}

// address is a static address of a link as it is written.
type address struct {
	text   string
	prefix netip.Prefix // invalid if the text is no address
	bare   bool         // without a prefix length
	at     Place
}

// route is a route of a link.
type route struct {
	network string
	gateway netip.Addr // invalid if there is none
	// aside is set for routes of other tables than the main one.
	aside bool
	at    Place
}

// isDefault reports whether a route leads everywhere.
func (r route) isDefault() bool {
	network, err := netip.ParsePrefix(r.network)

	return !r.aside && (r.network == "" || err == nil && network.Bits() == 0)
}

// vip is a virtual address that the node takes part in.
type vip struct {
	text string
	addr netip.Addr // invalid if the text is no address
	at   Place
}

// linksOf makes the links of a machine config.
func linksOf(config *Rendered) []*link {
	return slices.Concat(interfaceLinks(config), documentLinks(config))
}

// interfaceLinks are those of machine.network.interfaces.
func interfaceLinks(config *Rendered) []*link {
	network := config.Provider.RawV1Alpha1().MachineConfig.MachineNetwork //nolint:staticcheck // old files have it
	if network == nil {
		return nil
	}

	var links []*link

	for i, device := range network.NetworkInterfaces { //nolint:staticcheck // old files have them
		if device == nil {
			continue
		}

		place := config.File.At("machine.network.interfaces").Item(i)
		made := interfaceLink(device, place)
		links = append(links, made)

		for j, vlan := range device.DeviceVlans {
			if vlan != nil {
				links = append(links, vlanLink(made, vlan, place.Field("vlans").Item(j)))
			}
		}
	}

	return links
}

func interfaceLink(device *v1alpha1.Device, place Place) *link {
	made := &link{
		at: place, name: device.DeviceInterface, label: device.DeviceInterface, selector: device.DeviceSelector,
		mtu: device.DeviceMTU, dhcp: isSet(device.DeviceDHCP), ignored: isSet(device.DeviceIgnore),
		dummy: isSet(device.DeviceDummy),
		made: device.DeviceBond != nil || device.DeviceBridge != nil || device.DeviceWireguardConfig != nil ||
			isSet(device.DeviceDummy),
		addresses: writtenAddresses(device.Addresses(), place.Field("addresses")),
		routes:    writtenRoutes(device.DeviceRoutes, place.Field("routes")),
		vips:      writtenVIPs(device.DeviceVIPConfig, place.Field("vip")),
	}

	if made.label == "" {
		made.label = "the link of " + selectorText(device.DeviceSelector)
	}

	if device.DeviceBond != nil {
		made.members = members(device.DeviceBond.BondInterfaces, place.Field("bond.interfaces"))
	}

	if device.DeviceBridge != nil {
		made.members = members(device.DeviceBridge.BridgedInterfaces, place.Field("bridge.interfaces"))
	}

	return made
}

func vlanLink(parent *link, vlan *v1alpha1.Vlan, place Place) *link {
	id := strconv.Itoa(int(vlan.VlanID))
	made := &link{
		at: place, label: parent.label + "." + id, made: true, vlan: true, parent: parent.name, parentAt: parent.at,
		mtu: int(vlan.VlanMTU), dhcp: isSet(vlan.VlanDHCP),
		addresses: writtenAddresses(vlan.Addresses(), place.Field("addresses")),
		routes:    writtenRoutes(vlan.VlanRoutes, place.Field("routes")),
		vips:      writtenVIPs(vlan.VlanVIP, place.Field("vip")),
	}

	if parent.name != "" {
		made.name = parent.name + "." + id
	}

	return made
}

func isSet(value *bool) bool { return value != nil && *value }

func members(names []string, place Place) []member {
	list := make([]member, 0, len(names))
	for i, name := range names {
		list = append(list, member{name: name, at: place.Item(i)})
	}

	return list
}

func writtenAddresses(texts []string, place Place) []address {
	list := make([]address, 0, len(texts))

	for i, text := range texts {
		written := address{text: text, at: place.Item(i)}

		if prefix, err := netip.ParsePrefix(text); err == nil {
			written.prefix = prefix
		} else if addr, err := netip.ParseAddr(text); err == nil {
			written.prefix, written.bare = netip.PrefixFrom(addr, addr.BitLen()), true
		}

		list = append(list, written)
	}

	return list
}

func writtenRoutes(routes []*v1alpha1.Route, place Place) []route {
	var list []route

	for i, declared := range routes {
		if declared == nil {
			continue
		}

		gateway, _ := netip.ParseAddr(declared.RouteGateway) // Talos' validation tells of what is none
		list = append(list, route{network: declared.RouteNetwork, gateway: gateway, at: place.Item(i).Field("gateway")})
	}

	return list
}

func writtenVIPs(declared *v1alpha1.DeviceVIPConfig, place Place) []vip {
	if declared == nil {
		return nil
	}

	addr, _ := netip.ParseAddr(declared.SharedIP)

	return []vip{{text: declared.SharedIP, addr: addr, at: place.Field("ip")}}
}

// documentLinks are those with documents of their own. A DHCP or VIP document is about a link that may have none.
func documentLinks(config *Rendered) []*link {
	var links []*link

	byName := map[string]*link{}

	for _, declared := range config.Provider.NetworkCommonLinkConfigs() {
		made := documentLink(config, declared)
		links = append(links, made)
		byName[made.name] = made
	}

	about := func(name string, place Place) *link {
		if byName[name] == nil {
			byName[name] = &link{at: place, name: name, label: name, document: true}
			links = append(links, byName[name])
		}

		return byName[name]
	}

	for _, dhcp := range config.Provider.NetworkDHCPConfigs() {
		place := config.File.In(documentName(dhcp), "name")
		about(dhcp.Name(), place).dhcp = true
	}

	for _, declared := range config.Provider.NetworkVirtualIPConfigs() {
		place := config.File.In(documentName(declared), "name")
		addr, _ := netip.ParseAddr(declared.Name())
		on := about(declared.Link(), place)
		on.vips = append(on.vips, vip{text: declared.Name(), addr: addr, at: place})
	}

	return links
}

// documentName is how places call a document: "LinkConfig/eth0".
func documentName(named config.NamedDocument) string {
	if document, ok := named.(config.Document); ok {
		return document.Kind() + "/" + named.Name()
	}

	return "/" + named.Name()
}

func documentLink(rendered *Rendered, declared config.NetworkCommonLinkConfig) *link {
	document := documentName(declared)
	place := rendered.File.In(document, "name")
	_, physical := declared.(config.NetworkPhysicalLinkConfig)

	made := &link{at: place, name: declared.Name(), label: declared.Name(), document: true, made: !physical}

	if mtu, set := declared.MTU().Get(); set {
		made.mtu = int(mtu)
	}

	for i, listed := range declared.Addresses() {
		made.addresses = append(made.addresses, address{
			text: listed.Address().String(), prefix: listed.Address(),
			at: rendered.File.In(document, fmt.Sprintf("addresses[%d].address", i)),
		})
	}

	for i, listed := range declared.Routes() {
		gateway, _ := listed.Gateway().Get()
		network := ""

		if destination, set := listed.Destination().Get(); set && destination.IsValid() {
			network = destination.String()
		}

		table := listed.Table().ValueOr(nethelpers.TableMain)

		made.routes = append(made.routes, route{
			network: network, gateway: gateway, aside: table != nethelpers.TableMain && table != nethelpers.TableUnspec,
			at: rendered.File.In(document, fmt.Sprintf("routes[%d].gateway", i)),
		})
	}

	_, made.dummy = declared.(config.NetworkDummyLinkConfig)

	if vlan, ok := declared.(config.NetworkVLANConfig); ok {
		made.vlan, made.parent, made.parentAt = true, vlan.ParentLink(), rendered.File.In(document, "parent")
	}

	if grouped, ok := declared.(interface{ Links() []string }); ok {
		made.members = members(grouped.Links(), rendered.File.In(document, "links"))
	}

	return made
}

// selectorText shows a link's selector in few words.
func selectorText(selector *v1alpha1.NetworkDeviceSelector) string {
	if selector == nil {
		return "no name"
	}

	var parts []string

	for _, field := range []struct{ name, value string }{
		{"hardwareAddr", selector.NetworkDeviceHardwareAddress}, {"permanentAddr", selector.NetworkDevicePermanentAddress},
		{"busPath", selector.NetworkDeviceBus}, {"pciID", selector.NetworkDevicePCIID},
		{"driver", selector.NetworkDeviceKernelDriver},
	} {
		if field.value != "" {
			parts = append(parts, field.name+" "+field.value)
		}
	}

	if selector.NetworkDevicePhysical != nil {
		parts = append(parts, fmt.Sprintf("physical %t", *selector.NetworkDevicePhysical))
	}

	if len(parts) == 0 {
		return "an empty selector"
	}

	return strings.Join(parts, ", ")
}

// hasFamily reports whether the link has a static address of an address's family.
func (l *link) hasFamily(addr netip.Addr) bool {
	return slices.ContainsFunc(l.addresses,
		func(a address) bool { return a.prefix.IsValid() && a.prefix.Addr().Is4() == addr.Is4() })
}

// reaches reports whether a node may reach an address over a link: it asks for DHCP, or the address lies in a subnet of
// it, in whichever style that is written.
func (c *Rendered) reaches(over *link, addr netip.Addr) bool {
	return slices.ContainsFunc(c.links(), func(other *link) bool {
		return (other == over || other.name == over.name && over.name != "") && (other.dhcp || other.reaches(addr))
	})
}

// reaches reports whether an address lies in a subnet of the link, or in a network that a route without a gateway puts
// on it.
func (l *link) reaches(addr netip.Addr) bool {
	return slices.ContainsFunc(l.addresses,
		func(a address) bool { return a.prefix.IsValid() && a.prefix.Masked().Contains(addr) }) ||
		slices.ContainsFunc(l.routes, func(r route) bool {
			network, err := netip.ParsePrefix(r.network)

			return err == nil && !r.gateway.IsValid() && network.Contains(addr)
		})
}

// isLocal tells of links that reach no other machine, whose addresses may be the same on each.
func (l *link) isLocal() bool { return strings.HasPrefix(l.name, "lo") || l.dummy }

// subnets are those of the link's addresses, for people.
func (l *link) subnets() string {
	var texts []string

	for _, address := range l.addresses {
		if address.prefix.IsValid() {
			texts = append(texts, address.prefix.Masked().String())
		}
	}

	return strings.Join(slices.Compact(texts), ", ")
}
