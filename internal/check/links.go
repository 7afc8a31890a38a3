package check

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
)

// Link is one network link of a machine config, whichever way it is written: an item of machine.network.interfaces, a
// VLAN of one, or a document of its own.
type Link struct {
	At Place
	// name is empty when a selector picks the link; label is what people call it.
	Name, Label string
	Selector    *v1alpha1.NetworkDeviceSelector
	// document is set when the link has a document of its own.
	Document bool
	// made is set for links that Talos creates: bonds, bridges, VLANs and the like.
	Made, VLAN, dummy bool
	// Tunnel is set for WireGuard's, on which a route needs no gateway.
	Tunnel bool
	// parent is what a VLAN runs on: a name, or the selected link that it stands under.
	Parent   string
	ParentAt Place
	Members  []member
	// memberSelectors pick the members of a bond in machine.network.
	memberSelectors []v1alpha1.NetworkDeviceSelector

	MTU     int
	DHCP    bool
	Ignored bool

	Addresses []Address
	Routes    []Route
	VIPs      []VIP
}

// member is a link that is part of a bond, a bridge or a VRF.
type member struct {
	Name string
	At   Place
}

// Address is a static address of a link as it is written.
type Address struct {
	Text   string
	Prefix netip.Prefix // invalid if the text is no address
	Bare   bool         // without a prefix length
	At     Place
}

// Route is a route of a link.
type Route struct {
	network string
	Gateway netip.Addr // invalid if there is none
	// Metric decides among routes to one network; the least wins.
	Metric uint32
	// aside is set for routes of other tables than the main one.
	aside bool
	At    Place
}

// IsIPv4 reports whether it is a route of that family, by its gateway or else by its network.
func (r Route) IsIPv4() bool {
	network, err := netip.ParsePrefix(r.network)

	return r.Gateway.Is4() || !r.Gateway.IsValid() && err == nil && network.Addr().Is4()
}

// IsDefault reports whether a route leads everywhere.
func (r Route) IsDefault() bool {
	network, err := netip.ParsePrefix(r.network)

	return !r.aside && (r.network == "" || err == nil && network.Bits() == 0)
}

// VIP is a virtual address that the node takes part in.
type VIP struct {
	Text string
	Addr netip.Addr // invalid if the text is no address
	// ByCloud is set where a cloud's API sends it to a node, whatever the node's subnets.
	ByCloud bool
	At      Place
}

// linksOf makes the links of a machine config.
func linksOf(config *Rendered) []*Link {
	return slices.Concat(interfaceLinks(config), documentLinks(config))
}

// interfaceLinks are those of machine.network.interfaces.
func interfaceLinks(config *Rendered) []*Link {
	var links []*Link

	for i, device := range config.Interfaces() {
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

func interfaceLink(device *v1alpha1.Device, place Place) *Link {
	made := &Link{
		At: place, Name: device.DeviceInterface, Label: device.DeviceInterface, Selector: device.DeviceSelector,
		MTU: device.DeviceMTU, DHCP: isSet(device.DeviceDHCP), Ignored: isSet(device.DeviceIgnore),
		dummy: isSet(device.DeviceDummy), Tunnel: device.DeviceWireguardConfig != nil,
		Made: device.DeviceBond != nil || device.DeviceBridge != nil || device.DeviceWireguardConfig != nil ||
			isSet(device.DeviceDummy),
		Addresses: writtenAddresses(device.Addresses(), place.Field("addresses")),
		Routes:    writtenRoutes(device.DeviceRoutes, place.Field("routes")),
		VIPs:      writtenVIPs(device.DeviceVIPConfig, place.Field("vip")),
	}

	if made.Label == "" {
		made.Label = "the link of " + SelectorText(device.DeviceSelector)
	}

	if device.DeviceBond != nil {
		made.Members = members(device.DeviceBond.BondInterfaces, place.Field("bond.interfaces"))
		made.memberSelectors = device.DeviceBond.BondDeviceSelectors
	}

	if device.DeviceBridge != nil {
		made.Members = members(device.DeviceBridge.BridgedInterfaces, place.Field("bridge.interfaces"))
	}

	return made
}

func vlanLink(parent *Link, vlan *v1alpha1.Vlan, place Place) *Link {
	id := strconv.Itoa(int(vlan.VlanID))
	made := &Link{
		At: place, Label: parent.Label + "." + id, Made: true, VLAN: true, Parent: parent.Name, ParentAt: parent.At,
		MTU: int(vlan.VlanMTU), DHCP: isSet(vlan.VlanDHCP),
		Addresses: writtenAddresses(vlan.Addresses(), place.Field("addresses")),
		Routes:    writtenRoutes(vlan.VlanRoutes, place.Field("routes")),
		VIPs:      writtenVIPs(vlan.VlanVIP, place.Field("vip")),
	}

	if parent.Name != "" {
		made.Name = parent.Name + "." + id
	}

	return made
}

func isSet(value *bool) bool { return value != nil && *value }

func members(names []string, place Place) []member {
	list := make([]member, 0, len(names))
	for i, name := range names {
		list = append(list, member{Name: name, At: place.Item(i)})
	}

	return list
}

func writtenAddresses(texts []string, place Place) []Address {
	list := make([]Address, 0, len(texts))

	for i, text := range texts {
		written := Address{Text: text, At: place.Item(i)}

		if prefix, err := netip.ParsePrefix(text); err == nil {
			written.Prefix = prefix
		} else if addr, err := netip.ParseAddr(text); err == nil {
			written.Prefix, written.Bare = netip.PrefixFrom(addr, addr.BitLen()), true
		}

		list = append(list, written)
	}

	return list
}

func writtenRoutes(routes []*v1alpha1.Route, place Place) []Route {
	var list []Route

	for i, declared := range routes {
		if declared == nil {
			continue
		}

		gateway, _ := netip.ParseAddr(declared.RouteGateway) // Talos' validation tells of what is none
		list = append(list, Route{network: declared.RouteNetwork, Gateway: gateway, At: place.Item(i).Field("gateway"),
			Metric: cmp.Or(declared.RouteMetric, network.DefaultRouteMetric)})
	}

	return list
}

func writtenVIPs(declared *v1alpha1.DeviceVIPConfig, place Place) []VIP {
	if declared == nil {
		return nil
	}

	addr, _ := netip.ParseAddr(declared.SharedIP)

	return []VIP{{Text: declared.SharedIP, Addr: addr, At: place.Field("ip"),
		ByCloud: declared.HCloudConfig != nil || declared.EquinixMetalConfig != nil}}
}

// documentLinks are those with documents of their own. A DHCP or VIP document is about a link that may have none.
func documentLinks(config *Rendered) []*Link {
	var links []*Link

	byName := map[string]*Link{}

	for _, declared := range config.Provider.NetworkCommonLinkConfigs() {
		made := documentLink(config, declared)
		links = append(links, made)
		byName[made.Name] = made
	}

	about := func(name string, place Place) *Link {
		if byName[name] == nil {
			byName[name] = &Link{At: place, Name: name, Label: name, Document: true}
			links = append(links, byName[name])
		}

		return byName[name]
	}

	for _, dhcp := range config.Provider.NetworkDHCPConfigs() {
		place := config.File.In(DocumentName(dhcp), "name")
		about(dhcp.Name(), place).DHCP = true
	}

	for _, declared := range config.Provider.NetworkVirtualIPConfigs() {
		place := config.File.In(DocumentName(declared), "name")
		addr, _ := netip.ParseAddr(declared.Name())
		_, byCloud := declared.(interface{ HCloudAPIToken() string })
		on := about(declared.Link(), place)
		on.VIPs = append(on.VIPs, VIP{Text: declared.Name(), Addr: addr, ByCloud: byCloud, At: place})
	}

	return links
}

// DocumentName is how places call a document: "LinkConfig/eth0".
func DocumentName(named config.NamedDocument) string {
	if document, ok := named.(config.Document); ok {
		return document.Kind() + "/" + named.Name()
	}

	return "/" + named.Name()
}

func documentLink(rendered *Rendered, declared config.NetworkCommonLinkConfig) *Link {
	document := DocumentName(declared)
	place := rendered.File.In(document, "name")
	_, physical := declared.(config.NetworkPhysicalLinkConfig)

	made := &Link{At: place, Name: declared.Name(), Label: declared.Name(), Document: true, Made: !physical}

	if mtu, set := declared.MTU().Get(); set {
		made.MTU = int(mtu)
	}

	for i, listed := range declared.Addresses() {
		made.Addresses = append(made.Addresses, Address{
			Text: listed.Address().String(), Prefix: listed.Address(),
			At: rendered.File.In(document, fmt.Sprintf("addresses[%d].address", i)),
		})
	}

	for i, listed := range declared.Routes() {
		gateway, _ := listed.Gateway().Get()
		to := ""

		if destination, set := listed.Destination().Get(); set && destination.IsValid() {
			to = destination.String()
		}

		table := listed.Table().ValueOr(nethelpers.TableMain)

		made.Routes = append(made.Routes, Route{
			network: to, Gateway: gateway, Metric: cmp.Or(listed.Metric().ValueOrZero(), network.DefaultRouteMetric),
			aside: table != nethelpers.TableMain && table != nethelpers.TableUnspec,
			At:    rendered.File.In(document, fmt.Sprintf("routes[%d].gateway", i)),
		})
	}

	_, made.dummy = declared.(config.NetworkDummyLinkConfig)
	_, made.Tunnel = declared.(config.NetworkWireguardConfig)

	if vlan, ok := declared.(config.NetworkVLANConfig); ok {
		made.VLAN, made.Parent, made.ParentAt = true, vlan.ParentLink(), rendered.File.In(document, "parent")
	}

	if grouped, ok := declared.(interface{ Links() []string }); ok {
		made.Members = members(grouped.Links(), rendered.File.In(document, "links"))
	}

	return made
}

// SelectorText shows a link's selector in few words.
func SelectorText(selector *v1alpha1.NetworkDeviceSelector) string {
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

// HasFamily reports whether the link has a static address of an address's family.
func (l *Link) HasFamily(addr netip.Addr) bool {
	return slices.ContainsFunc(l.Addresses,
		func(a Address) bool { return a.Prefix.IsValid() && a.Prefix.Addr().Is4() == addr.Is4() })
}

// Parts are all that is written about a link, in either style: itself, and what else has its name.
func (c *Rendered) Parts(of *Link) []*Link {
	return slices.DeleteFunc(slices.Clone(c.Links()),
		func(other *Link) bool { return other != of && (other.Name != of.Name || of.Name == "") })
}

// Reaches reports whether a node may reach an address over a link: it asks for DHCP, or the address lies in a subnet of
// it.
func (c *Rendered) Reaches(over *Link, addr netip.Addr) bool {
	return slices.ContainsFunc(c.Parts(over), func(part *Link) bool { return part.DHCP || part.reaches(addr) })
}

// HasSubnetOf reports whether an address lies in a subnet of a link, whatever DHCP may bring.
func (c *Rendered) HasSubnetOf(of *Link, addr netip.Addr) bool {
	return slices.ContainsFunc(c.Parts(of), func(part *Link) bool { return part.reaches(addr) })
}

// reaches reports whether an address lies in a subnet of the link, or in a network that a route without a gateway puts
// on it.
func (l *Link) reaches(addr netip.Addr) bool {
	return slices.ContainsFunc(l.Addresses,
		func(a Address) bool { return a.Prefix.IsValid() && a.Prefix.Masked().Contains(addr) }) ||
		slices.ContainsFunc(l.Routes, func(r Route) bool {
			network, err := netip.ParsePrefix(r.network)

			return err == nil && !r.Gateway.IsValid() && network.Contains(addr)
		})
}

// FitsSeveral reports whether several links may have what is set for one that a selector of machine.network picks:
// Talos sets up all that it picks. They ask for DHCP, and neither they nor VLANs on them have anything of their own.
func (c *Rendered) FitsSeveral(link *Link) bool {
	return link.DHCP && !slices.ContainsFunc(c.Links(), func(other *Link) bool {
		return (other == link || other.VLAN && other.ParentAt == link.At) &&
			len(other.Addresses)+len(other.Routes)+len(other.VIPs) > 0
	})
}

// IsLocal tells of links that reach no other machine, whose addresses may be the same on each.
func (l *Link) IsLocal() bool { return strings.HasPrefix(l.Name, "lo") || l.dummy }

// Subnets are those of the link's addresses, for people.
func (l *Link) Subnets() string {
	var texts []string

	for _, address := range l.Addresses {
		if address.Prefix.IsValid() {
			texts = append(texts, address.Prefix.Masked().String())
		}
	}

	return strings.Join(slices.Compact(texts), ", ")
}
