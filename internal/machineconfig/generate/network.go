package generate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/meta"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// checkDevices looks at the network interfaces: as they are needed for newer versions, and as machinery does for
// machine.network.
func (e *entry) checkDevices() {
	before := len(e.List)

	// What is made for newer versions has the more precise places.
	if e.contract.MultidocNetworkConfigSupported() {
		e.linkDocuments()
	}

	if len(e.List) > before {
		return
	}

	secondary := map[string]string{}

	for _, device := range e.settings.NetworkInterfaces {
		if device.DeviceBond != nil {
			for _, name := range device.DeviceBond.BondInterfaces {
				secondary[name] = device.DeviceInterface
			}
		}

		if device.DeviceBridge != nil {
			for _, name := range device.DeviceBridge.BridgedInterfaces {
				secondary[name] = device.DeviceInterface
			}
		}
	}

	for i, device := range e.settings.NetworkInterfaces {
		place := e.item(i, "networkInterfaces")

		// Keys of WireGuard could be part of what machinery says, so it is not asked about them here.
		checked := *device
		checked.DeviceWireguardConfig = nil

		_, err := v1alpha1.ValidateNetworkDevices(&checked, secondary,
			v1alpha1.CheckDeviceInterface, v1alpha1.CheckDeviceAddressing, v1alpha1.CheckDeviceRoutes)
		if err != nil {
			e.value(place, "%s", oneLine(err))
		}

		if device.DeviceBond != nil && device.DeviceBridge != nil {
			e.value(place, "the interface can't be both a bond and a bridge")
		}
	}
}

// linkDocuments are the network interfaces as Talos 1.12 and newer want them: a document for each link, address or not.
func (e *entry) linkDocuments() []config.Document {
	links := &links{entry: e, used: map[string]*yaml.Node{}}
	names := linkNames(e.settings.NetworkInterfaces)

	for i, device := range e.settings.NetworkInterfaces {
		links.device, links.name, links.place = device, names[i], e.item(i, "networkInterfaces")
		links.addDevice()
	}

	slices.SortStableFunc(links.documents, func(a, b ranked) int { return cmp.Compare(a.rank, b.rank) })

	documents := make([]config.Document, len(links.documents))
	for i, ranked := range links.documents {
		documents[i] = ranked.Document
	}

	return documents
}

// The order of the documents is talhelper's, so that files differ only where their meaning does.
const (
	aliasRank = iota
	memberRank
	bondRank
	dhcpRank
	vipRank
	linkRank
	vlanRank
	wireguardRank
	bridgeRank
)

// ranked is a document with its place in the order.
type ranked struct {
	config.Document

	rank int
}

// linkNames names the links. One that is chosen by a selector alone gets an alias, made up as talhelper does.
func linkNames(devices []*v1alpha1.Device) []string {
	used, next := map[string]bool{}, map[string]int{}

	for _, device := range devices {
		used[device.DeviceInterface] = true
	}

	names := make([]string, len(devices))

	for i, device := range devices {
		names[i] = device.DeviceInterface

		if device.DeviceInterface != "" || device.DeviceSelector == nil {
			continue
		}

		prefix := "ethSel"

		switch {
		case device.DeviceBond != nil:
			prefix = "bond"
		case device.DeviceBridge != nil:
			prefix = "br"
		case device.DeviceWireguardConfig != nil:
			prefix = "wg"
		}

		for used[names[i]] {
			names[i] = prefix + strconv.Itoa(next[prefix])
			next[prefix]++
		}

		used[names[i]] = true
	}

	return names
}

// links collects the documents for one device after the other.
type links struct {
	*entry

	documents []ranked
	// used finds documents of one kind and name.
	used map[string]*yaml.Node

	device *v1alpha1.Device
	name   string
	place  *yaml.Node
}

// linkDocument is one that is about a link.
type linkDocument interface {
	config.Document
	config.NamedDocument
}

func (l *links) add(rank int, document linkDocument) {
	id := document.Kind() + "/" + document.Name()

	if first := l.used[id]; first != nil {
		l.At(l.place, diagnosis.FileDuplicate, "%s is configured twice, first in line %d", document.Name(), first.Line)

		return
	}

	l.used[id] = l.place
	l.documents = append(l.documents, ranked{document, rank})
}

func (l *links) bad(key string, format string, args ...any) {
	l.value(yamlfile.PlaceOf(l.place, key), format, args...)
}

func (l *links) addDevice() {
	if l.device.DeviceSelector != nil {
		l.alias(aliasRank, l.name, "deviceSelector", l.device.DeviceSelector)
	}

	if l.device.Ignore() {
		return
	}

	switch {
	case l.device.DeviceBond != nil:
		l.bond()
	case l.device.DeviceBridge != nil:
		l.bridge()
	case l.device.DeviceWireguardConfig != nil:
		l.wireguard()
	case l.device.Dummy():
		dummy := network.NewDummyLinkConfigV1Alpha1(l.name)
		dummy.CommonLinkConfig = l.common()
		l.add(linkRank, dummy)
	default:
		if common := l.common(); len(common.LinkAddresses)+len(common.LinkRoutes) > 0 || common.LinkMTU > 0 {
			link := network.NewLinkConfigV1Alpha1(l.name)
			link.CommonLinkConfig = common
			l.add(linkRank, link)
		}
	}

	l.dhcp(dhcpRank, l.name, l.device.DHCP(), l.device.DeviceDHCPOptions)
	l.vip(vipRank, l.name, l.device.DeviceVIPConfig)

	for i, vlan := range l.device.DeviceVlans {
		inner := *l
		inner.place = yamlfile.Item(yamlfile.PlaceOf(l.place, "vlans"), i)
		inner.vlan(vlan)
		l.documents = inner.documents
	}
}

// alias names the link that a selector finds.
func (l *links) alias(rank int, name, key string, selector *v1alpha1.NetworkDeviceSelector) {
	match := machineconfig.LinkExpression(selector)
	if match == "" {
		l.bad(key, "an empty selector selects no link")

		return
	}

	expression, err := machineconfig.ParseLinkExpression(match)
	if err != nil {
		l.bad(key, "no link can be selected by this: %s", oneLine(err))

		return
	}

	alias := network.NewLinkAliasConfigV1Alpha1(name)
	alias.Selector.Match = expression
	l.add(rank, alias)
}

// common are addresses, routes and MTU of the device.
func (l *links) common() network.CommonLinkConfig {
	addresses := l.device.DeviceAddresses
	if l.device.DeviceCIDR != "" { //nolint:staticcheck // deprecated, and still read
		addresses = append(slices.Clone(addresses), l.device.DeviceCIDR) //nolint:staticcheck // deprecated, and still read
	}

	if l.device.DeviceMTU < 0 {
		l.bad("mtu", "\"mtu\" must not be negative")
	}

	return l.commonOf(addresses, l.device.DeviceRoutes, uint32(max(l.device.DeviceMTU, 0))) //nolint:gosec // not negative
}

func (l *links) commonOf(addresses []string, routes []*v1alpha1.Route, mtu uint32) network.CommonLinkConfig {
	common := network.CommonLinkConfig{LinkMTU: mtu}

	for i, text := range addresses {
		address, err := parsePrefix(text)
		if err != nil {
			l.value(yamlfile.Item(yamlfile.PlaceOf(l.place, "addresses"), i),
				"%q is no address with a prefix length, as 192.0.2.11/24", text)

			continue
		}

		common.LinkAddresses = append(common.LinkAddresses, network.AddressConfig{AddressAddress: address})
	}

	for i, route := range routes {
		common.LinkRoutes = append(common.LinkRoutes, l.route(i, route))
	}

	return common
}

// parsePrefix takes an address alone for a network of its own.
func parsePrefix(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(address, address.BitLen()), nil
	}

	return netip.ParsePrefix(text)
}

func (l *links) route(i int, declared *v1alpha1.Route) network.RouteConfig {
	place := yamlfile.Item(yamlfile.PlaceOf(l.place, "routes"), i)
	made := network.RouteConfig{RouteMetric: declared.RouteMetric, RouteMTU: declared.RouteMTU}

	if declared.RouteNetwork != "" {
		destination, err := netip.ParsePrefix(declared.RouteNetwork)
		if err != nil {
			l.value(yamlfile.PlaceOf(place, "network"), "\"network\": %q is not a subnet, as 198.51.100.0/24",
				declared.RouteNetwork)
		}

		// Talos knows the destination of a default route by its gateway, and refuses it when it is written.
		isDefault := destination.Bits() == 0 && destination.Addr().IsUnspecified()
		if !isDefault {
			made.RouteDestination = meta.Prefix{Prefix: destination}
		}

		if isDefault && declared.RouteGateway == "" {
			l.value(yamlfile.PlaceOf(place, "network"), "\"network\": a route to %s needs a gateway", declared.RouteNetwork)
		}
	}

	made.RouteGateway = l.address(place, "gateway", declared.RouteGateway)
	made.RouteSource = l.address(place, "source", declared.RouteSource)

	return made
}

func (l *links) address(place *yaml.Node, key, text string) meta.Addr {
	if text == "" {
		return meta.Addr{}
	}

	address, err := netip.ParseAddr(text)
	if err != nil {
		l.value(yamlfile.PlaceOf(place, key), "%q: %q is no IP address", key, text)
	}

	return meta.Addr{Addr: address}
}

// dhcp adds what asks for addresses; by default only IPv4 is asked for.
func (l *links) dhcp(rank int, name string, enabled bool, options *v1alpha1.DHCPOptions) {
	if !enabled {
		return
	}

	if options == nil {
		options = &v1alpha1.DHCPOptions{}
	}

	if options.IPv4() {
		v4 := network.NewDHCPv4ConfigV1Alpha1(name)
		v4.ConfigRouteMetric = options.DHCPRouteMetric
		l.add(rank, v4)
	}

	if options.IPv6() {
		v6 := network.NewDHCPv6ConfigV1Alpha1(name)
		v6.ConfigRouteMetric = options.DHCPRouteMetric

		if options.DHCPDUIDv6 != "" {
			v6.ConfigClientIdentifier = new(nethelpers.ClientIdentifierDUID)

			if err := v6.ConfigDUIDRaw.UnmarshalText([]byte(options.DHCPDUIDv6)); err != nil {
				l.bad("dhcpOptions", "\"duidv6\": %q is no DUID, as 00:03:00:01:02:00:5e:00:53:01", options.DHCPDUIDv6)
			}
		}

		l.add(rank, v6)
	}
}

func (l *links) vip(rank int, link string, declared *v1alpha1.DeviceVIPConfig) {
	if declared == nil || declared.SharedIP == "" {
		return
	}

	if declared.HCloudConfig != nil {
		vip := network.NewHCloudVIPConfigV1Alpha1(declared.SharedIP)
		vip.LinkName, vip.APIToken = link, declared.HCloudConfig.HCloudAPIToken
		l.add(rank, vip)

		return
	}

	vip := network.NewLayer2VIPConfigV1Alpha1(declared.SharedIP)
	vip.LinkName = link
	l.add(rank, vip)
}

func (l *links) vlan(declared *v1alpha1.Vlan) {
	if declared.VlanID == 0 {
		l.bad("vlanId", "\"vlanId\" is needed: 1 to 4094")

		return
	}

	addresses := declared.VlanAddresses
	if declared.VlanCIDR != "" { //nolint:staticcheck // deprecated, and still read
		addresses = append(slices.Clone(addresses), declared.VlanCIDR) //nolint:staticcheck // deprecated, and still read
	}

	vlan := network.NewVLANConfigV1Alpha1(l.name + "." + strconv.Itoa(int(declared.VlanID)))
	vlan.VLANIDConfig, vlan.ParentLinkConfig = declared.VlanID, l.name
	vlan.CommonLinkConfig = l.commonOf(addresses, declared.VlanRoutes, declared.VlanMTU)

	l.add(vlanRank, vlan)
	l.dhcp(vlanRank, vlan.MetaName, declared.DHCP(), declared.VlanDHCPOptions)
	l.vip(vlanRank, vlan.MetaName, declared.VlanVIP)
}

func (l *links) bridge() {
	declared := l.device.DeviceBridge

	bridge := network.NewBridgeConfigV1Alpha1(l.name)
	bridge.BridgeLinks = slices.Clone(declared.BridgedInterfaces)
	bridge.CommonLinkConfig = l.common()

	if declared.BridgeSTP != nil {
		bridge.BridgeSTP.BridgeSTPEnabled = declared.BridgeSTP.STPEnabled
	}

	if declared.BridgeVLAN.FilteringEnabled() {
		bridge.BridgeVLAN.BridgeVLANFiltering = declared.BridgeVLAN.BridgeVLANFiltering
	}

	// A device can also say itself which bridge it belongs to.
	for i, name := range linkNames(l.settings.NetworkInterfaces) {
		port := l.settings.NetworkInterfaces[i].DeviceBridgePort
		if port != nil && port.BridgePortMaster == l.name && !slices.Contains(bridge.BridgeLinks, name) {
			bridge.BridgeLinks = append(bridge.BridgeLinks, name)
		}
	}

	l.add(bridgeRank, bridge)
}

func (l *links) wireguard() {
	declared := l.device.DeviceWireguardConfig

	link := network.NewWireguardConfigV1Alpha1(l.name)
	link.WireguardPrivateKey = declared.WireguardPrivateKey
	link.WireguardListenPort = declared.WireguardListenPort
	link.WireguardFirewallMark = declared.WireguardFirewallMark
	link.CommonLinkConfig = l.common()

	for _, peer := range declared.WireguardPeers {
		link.WireguardPeers = append(link.WireguardPeers, l.peer(peer))
	}

	l.add(wireguardRank, link)
}

func (l *links) peer(declared *v1alpha1.DeviceWireguardPeer) network.WireguardPeer {
	peer := network.WireguardPeer{
		WireguardPublicKey:                   declared.WireguardPublicKey,
		WireguardPersistentKeepaliveInterval: declared.WireguardPersistentKeepaliveInterval,
	}

	if declared.WireguardEndpoint != "" {
		endpoint, err := netip.ParseAddrPort(declared.WireguardEndpoint)
		if err != nil {
			l.bad("wireguard", "\"endpoint\": %q is no IP address with a port, as 192.0.2.1:51820", declared.WireguardEndpoint)
		}

		peer.WireguardEndpoint = meta.AddrPort{AddrPort: endpoint}
	}

	for _, text := range declared.WireguardAllowedIPs {
		allowed, err := netip.ParsePrefix(text)
		if err != nil {
			l.bad("wireguard", "\"allowedIPs\": %q is not a subnet, as 198.51.100.0/24", text)

			continue
		}

		peer.WireguardAllowedIPs = append(peer.WireguardAllowedIPs, meta.Prefix{Prefix: allowed})
	}

	return peer
}

func (l *links) bond() {
	declared := l.device.DeviceBond

	bond := network.NewBondConfigV1Alpha1(l.name)
	bond.BondLinks = slices.Clone(declared.BondInterfaces)
	bond.CommonLinkConfig = l.common()

	for i := range declared.BondDeviceSelectors {
		member := fmt.Sprintf("%s-m%d", l.name, i)
		l.alias(memberRank, member, "bond", &declared.BondDeviceSelectors[i])
		bond.BondLinks = append(bond.BondLinks, member)
	}

	l.bondModes(bond, declared)
	bondNumbers(bond, declared)

	for _, text := range declared.BondARPIPTarget {
		bond.BondARPIPTargets = append(bond.BondARPIPTargets,
			l.address(yamlfile.PlaceOf(l.place, "bond"), "arpIPTarget", text).Addr)
	}

	l.add(bondRank, bond)
}

// bondModes are the settings of a bond that are words.
func (l *links) bondModes(bond *network.BondConfigV1Alpha1, declared *v1alpha1.Bond) {
	bond.BondMode = choice(l, "mode", declared.BondMode, nethelpers.BondModeByName)
	bond.BondXmitHashPolicy = choice(l, "xmitHashPolicy", declared.BondHashPolicy, nethelpers.BondXmitHashPolicyByName)
	bond.BondLACPRate = choice(l, "lacpRate", declared.BondLACPRate, nethelpers.LACPRateByName)
	bond.BondARPValidate = choice(l, "arpValidate", declared.BondARPValidate, nethelpers.ARPValidateByName)
	bond.BondARPAllTargets = choice(l, "arpAllTargets", declared.BondARPAllTargets, nethelpers.ARPAllTargetsByName)
	bond.BondPrimaryReselect = choice(l, "primaryReselect", declared.BondPrimaryReselect, nethelpers.PrimaryReselectByName)
	bond.BondFailOverMAC = choice(l, "failOverMac", declared.BondFailOverMac, nethelpers.FailOverMACByName)
	bond.BondADSelect = choice(l, "adSelect", declared.BondADSelect, nethelpers.ADSelectByName)

	for _, dropped := range []struct{ key, value string }{{"primary", declared.BondPrimary},
		{"adActorSystem", declared.BondADActorSystem}} {
		if dropped.value != "" {
			l.bad("bond", "Talos %s has no bonds with %q", l.contract, dropped.key)
		}
	}
}

// choice is the value that a word stands for; nil if it is empty.
func choice[T interface {
	~uint8 | ~uint32
	fmt.Stringer
}](l *links, key, word string, byName func(string) (T, error)) *T {
	if word == "" {
		return nil
	}

	value, err := byName(word)
	if err == nil {
		return &value
	}

	var allowed []string

	for i := T(0); i < 16; i++ {
		if known, err := byName(i.String()); err == nil && known == i {
			allowed = append(allowed, i.String())
		}
	}

	l.oneOf(yamlfile.PlaceOf(yamlfile.PlaceOf(l.place, "bond"), key), word, allowed...)

	return nil
}

// bondNumbers are the settings of a bond that are numbers; 0 leaves one to the kernel.
func bondNumbers(bond *network.BondConfigV1Alpha1, declared *v1alpha1.Bond) {
	bond.BondMIIMon = unlessZero(declared.BondMIIMon)
	bond.BondUpDelay = unlessZero(declared.BondUpDelay)
	bond.BondDownDelay = unlessZero(declared.BondDownDelay)
	bond.BondARPInterval = unlessZero(declared.BondARPInterval)
	bond.BondResendIGMP = unlessZero(declared.BondResendIGMP)
	bond.BondMinLinks = unlessZero(declared.BondMinLinks)
	bond.BondLPInterval = unlessZero(declared.BondLPInterval)
	bond.BondPacketsPerSlave = unlessZero(declared.BondPacketsPerSlave)
	bond.BondNumPeerNotif = unlessZero(declared.BondNumPeerNotif)
	bond.BondTLBDynamicLB = unlessZero(declared.BondTLBDynamicLB)
	bond.BondAllSlavesActive = unlessZero(declared.BondAllSlavesActive)
	bond.BondADActorSysPrio = unlessZero(declared.BondADActorSysPrio)
	bond.BondADUserPortKey = unlessZero(declared.BondADUserPortKey)
	bond.BondPeerNotifyDelay = unlessZero(declared.BondPeerNotifyDelay)
	bond.BondUseCarrier = declared.BondUseCarrier
}

func unlessZero[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}

	return &value
}
