package audit

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/config"

	"github.com/talos-mage/talos-mage/internal/base/host"
	preflight "github.com/talos-mage/talos-mage/internal/check/nodes"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// Checks of addresses.
var addressChecks = []Check{
	eachConfig(diagnosis.GatewayOutside, Addresses, checkGateways),
	eachConfig(diagnosis.GatewayIsOwnAddress, Addresses, checkOwnGateway),
	eachConfig(diagnosis.NetworkAddress, Addresses, checkNetworkAddress),
	eachConfig(diagnosis.AddressMalformed, Addresses, checkAddressTexts),
	whole(diagnosis.AddressMalformed, Addresses, diagnosis.NeedsTalosconfig, checkTalosconfigTexts),
	whole(diagnosis.AddressTwice, Addresses, diagnosis.NeedsConfig, checkAddressTwice),
	eachConfig(diagnosis.ResolverInCluster, Addresses, checkResolvers),
	eachConfig(diagnosis.TimeServerInCluster, Addresses, checkTimeServers),
	whole(diagnosis.TalosconfigNobody, Addresses, diagnosis.NeedsTalconfig|diagnosis.NeedsTalosconfig,
		checkTalosconfigNobody),
	eachConfig(diagnosis.AddressWithoutPrefix, Addresses, checkPrefixLengths),
	whole(diagnosis.AddressNotOfOneNode, Addresses, diagnosis.NeedsTalconfig, checkDeclaredAddresses),
	eachConfig(diagnosis.AddressNotOfOneNode, Addresses, checkSpecialAddresses),
	whole(diagnosis.EndpointNotCertified, Addresses,
		diagnosis.NeedsTalconfig|diagnosis.NeedsConfigs|diagnosis.NeedsTalosconfig, checkDialedNames),
}

// checkGateways looks for next hops that no address of the link reaches.
func checkGateways(r *Report, config *Rendered) {
	for _, link := range config.links() {
		for _, route := range link.routes {
			if !route.gateway.IsValid() || route.gateway.IsLinkLocalUnicast() || !link.hasFamily(route.gateway) ||
				config.reaches(link, route.gateway) {
				continue
			}

			r.aboutRoute(config, route, "correct the gateway, or the address's prefix length",
				"the gateway %s is in no subnet of %s (%s): the route can't be set", route.gateway, link.label, link.subnets())
		}
	}
}

// checkOwnGateway looks for next hops that are the node itself.
func checkOwnGateway(r *Report, config *Rendered) {
	own := map[netip.Addr]bool{}

	for _, link := range config.links() {
		for _, address := range link.addresses {
			own[address.prefix.Addr()] = true
		}
	}

	for _, link := range config.links() {
		for _, route := range link.routes {
			if route.gateway.IsValid() && own[route.gateway] {
				r.aboutRoute(config, route, "set the router's address", "the gateway %s is the node's own address", route.gateway)
			}
		}
	}
}

// aboutRoute says what is wrong with a route, milder where the node has, or may have, another way out: an IPv6 router
// announces itself.
func (r *Report) aboutRoute(config *Rendered, route route, change, cause string, args ...any) {
	ways := 0

	for _, link := range config.links() {
		if link.dhcp {
			ways++
		}

		for _, other := range link.routes {
			if other.isDefault() && other.gateway.Is4() {
				ways++
			}
		}
	}

	if route.isDefault() && route.gateway.Is4() && ways == 1 {
		r.found(route.at, change, cause, args...)
	} else {
		r.warn(route.at, change, cause, args...)
	}
}

// checkNetworkAddress looks for subnets that stand where an address belongs.
func checkNetworkAddress(r *Report, config *Rendered) {
	for _, link := range config.links() {
		for _, address := range link.addresses {
			what := networkAddress(address.prefix)
			if what == "" || address.bare {
				continue
			}

			// Neighbours never call a broadcast address. The first one of a subnet works between Linux machines, and in a tunnel
			// anyway.
			severity := diagnosis.Warning
			if what == "broadcast" && config.hasOnly(address.prefix.Addr()) {
				severity = diagnosis.Failure
			}

			r.add(severity, address.at, "set the node's own address", "%s is the %s address of its subnet %s",
				address.prefix.Addr(), what, address.prefix.Masked())
		}
	}
}

// hasOnly reports whether an address is all that a node has: nothing else is static, and no link asks for DHCP.
func (c *Rendered) hasOnly(addr netip.Addr) bool {
	for _, link := range c.links() {
		if link.dhcp {
			return false
		}

		for _, address := range link.addresses {
			if other := address.prefix.Addr(); other.IsValid() && other != addr && !link.isLocal() {
				return false
			}
		}
	}

	return true
}

// networkAddress says which special address of its subnet an address is; empty when it is an ordinary one. Links of two
// addresses have none.
func networkAddress(prefix netip.Prefix) string {
	if !prefix.IsValid() || prefix.Addr().BitLen()-prefix.Bits() < 2 {
		return ""
	}

	switch {
	case prefix.Addr() == prefix.Masked().Addr() && prefix.Addr().Is4():
		return "network"
	case prefix.Addr() == prefix.Masked().Addr():
		return "subnet router anycast"
	case prefix.Addr().Is4() && !prefix.Contains(prefix.Addr().Next()):
		return "broadcast"
	default:
		return ""
	}
}

// checkAddressTexts reads the fields of a machine config that take any text and should be addresses.
func checkAddressTexts(r *Report, config *Rendered) {
	for _, link := range config.links() {
		for _, address := range link.addresses {
			if !address.prefix.IsValid() {
				r.found(address.at, "write one address with its prefix length", "%q is no address: %s", address.text,
					malformed(address.text))
			}
		}

		for _, vip := range link.vips {
			if !vip.addr.IsValid() {
				r.found(vip.at, "write one address", "%q is no address: %s", vip.text, malformed(vip.text))
			}
		}
	}

	raw := config.Provider.RawV1Alpha1()
	judge := func(texts []string, place func(int) at) {
		for i, text := range texts {
			if why := host.Mistyped(text); why != "" {
				// One entry that leads nowhere stops nothing: certificates have their other names, and there are other servers.
				r.warn(place(i), "write one address or name", "%q is neither an address nor a name: %s", text, why)
			}
		}
	}

	judge(raw.MachineConfig.MachineCertSANs, config.File.at("machine.certSANs").item)
	judge(config.timeServerTexts(), config.timeServerPlace)
	judge(config.resolverTexts(), config.resolverPlace)

	if server := raw.ClusterConfig.APIServerConfig; server != nil {
		judge(server.CertSANs, config.File.at("cluster.apiServer.certSANs").item)
	}
}

// checkTalosconfigTexts reads the endpoints of the talosconfig. They are talosctl's: this program asks each node
// directly.
func checkTalosconfigTexts(r *Report, in *Input) {
	for _, endpoint := range in.Credentials.Endpoints() {
		if _, err := netip.ParseAddrPort(endpoint); err == nil {
			continue
		}

		if why := host.Mistyped(endpoint); why != "" {
			r.warn(in.talosconfigPlace(endpoint), "write one address or name",
				"the endpoint %q is neither an address nor a name: %s", endpoint, why)
		}
	}
}

// talosconfigPlace is where the talosconfig names an endpoint.
func (in *Input) talosconfigPlace(endpoint string) at {
	for _, root := range in.TalosconfigFile.places.Roots() {
		contexts := machineconfig.Field(root, "contexts")
		current := machineconfig.Field(root, "context")

		if contexts == nil || current == nil {
			continue
		}

		list := machineconfig.Field(machineconfig.Field(contexts, current.Value), "endpoints")
		if list == nil {
			continue
		}

		for i, item := range list.Content {
			if item.Value == endpoint {
				return in.TalosconfigFile.at("contexts").field(current.Value).field("endpoints").item(i)
			}
		}
	}

	return in.TalosconfigFile.at("")
}

// malformed says in plain words what is wrong with a text that should be an address.
func malformed(text string) string {
	if why := host.Mistyped(text); why != "" {
		return why
	}

	host, length, hasLength := strings.Cut(text, "/")
	if addr, err := netip.ParseAddr(host); hasLength && err == nil {
		return fmt.Sprintf("the prefix length %s is not a number from 0 to %d", length, addr.BitLen())
	}

	return "an IP address is expected"
}

// owner is one use of an address.
type owner struct {
	config *Rendered
	link   *link
	at     at
}

func (o owner) String() string { return o.config.Name + " on " + o.link.label }

// checkAddressTwice looks for addresses that two nodes, or two links of one, have.
func checkAddressTwice(r *Report, in *Input) {
	owners := map[netip.Addr]owner{}

	for _, config := range in.Configs {
		r.config = config

		for _, link := range config.links() {
			for _, address := range link.addresses {
				addr := address.prefix.Addr()
				if !addr.IsValid() || addr.IsLoopback() || addr.IsLinkLocalUnicast() || link.isLocal() {
					continue // every node may have these
				}

				this := owner{config, link, address.at}
				first, taken := owners[addr]

				switch {
				case !taken:
					owners[addr] = this
				case first.config == config && first.link.name == link.name && link.name != "":
					// It is one link, in both styles: Talos sets the address once.
				default:
					r.add(in.sharing(addr, first, this), address.at, "give one of them another address",
						"%s is set on %s and on %s (%s)", addr, first, this, r.in.locate(first.at))
				}
			}
		}
	}
}

// sharing is how bad it is that two links have one address. On links of one node, and in networks that exist on each
// node by itself, as a bridge for virtual machines does, it may be meant; not where others know a node by it.
func (in *Input) sharing(addr netip.Addr, first, second owner) diagnosis.Severity {
	switch {
	case first.config == second.config:
		return diagnosis.Warning
	case in.isDeclared(addr), first.config.hasOnly(addr) && second.config.hasOnly(addr):
		return diagnosis.Failure
	default:
		return diagnosis.Warning
	}
}

// isDeclared reports whether an address is what the inventory knows a node by.
func (in *Input) isDeclared(addr netip.Addr) bool {
	return in.Cluster != nil && slices.ContainsFunc(in.Cluster.Nodes, func(node *inventory.Node) bool {
		declared, err := netip.ParseAddr(node.Address)

		return err == nil && declared.Unmap() == addr
	})
}

// checkResolvers looks for name servers that need the cluster that needs them.
func checkResolvers(r *Report, config *Rendered) {
	for i, text := range config.resolverTexts() {
		if why := r.in.partOfCluster(config, text); why != "" {
			r.found(config.resolverPlace(i), "name a resolver outside of the cluster", "the name server %s is %s", text, why)
		}
	}
}

// checkTimeServers looks for time servers that need the cluster that needs them.
func checkTimeServers(r *Report, config *Rendered) {
	for i, text := range config.timeServerTexts() {
		if why := r.in.partOfCluster(config, text); why != "" {
			r.found(config.timeServerPlace(i), "name a time server outside of the cluster", "the time server %s is %s", text,
				why)
		}
	}
}

// resolverTexts are the name servers, of machine.network or of the ResolverConfig document.
func (c *Rendered) resolverTexts() []string {
	if resolver := c.Provider.NetworkResolverConfig(); resolver != nil && len(resolver.Resolvers()) > 0 {
		var texts []string
		for _, addr := range resolver.Resolvers() {
			texts = append(texts, addr.String())
		}

		return texts
	}

	if network := c.Provider.RawV1Alpha1().MachineConfig.MachineNetwork; network != nil { //nolint:staticcheck // old files have it
		return network.NameServers //nolint:staticcheck // old files have them
	}

	return nil
}

// hasDocument reports whether a document of a kind is there.
func (c *Rendered) hasDocument(kind string) bool {
	return slices.ContainsFunc(c.Provider.Documents(),
		func(document config.Document) bool { return document.Kind() == kind })
}

func (c *Rendered) resolverPlace(i int) at {
	if c.hasDocument("ResolverConfig") {
		return c.File.in("ResolverConfig", "nameservers").item(i).field("address")
	}

	return c.File.at("machine.network.nameservers").item(i)
}

// timeServerTexts are the time servers, of machine.time or of the TimeSyncConfig document; none where Talos' default
// counts.
func (c *Rendered) timeServerTexts() []string {
	if sync := c.Provider.NetworkTimeSyncConfig(); sync != nil && c.hasDocument("TimeSyncConfig") {
		return sync.Servers()
	}

	if declared := c.Provider.RawV1Alpha1().MachineConfig.MachineTime; declared != nil { //nolint:staticcheck // old files have it
		return declared.TimeServers
	}

	return nil
}

func (c *Rendered) timeServerPlace(i int) at {
	if c.hasDocument("TimeSyncConfig") {
		return c.File.in("TimeSyncConfig", "ntp.servers").item(i)
	}

	return c.File.at("machine.time.servers").item(i)
}

// partOfCluster says what part of the cluster a host is, by its address or name; empty when it is none.
func (in *Input) partOfCluster(config *Rendered, host string) string {
	switch node := in.nodesByHost()[strings.ToLower(host)]; node {
	case "":
	case theVIP:
		return "the VIP of this cluster"
	default:
		return "the node " + node + " of this cluster"
	}

	addr, err := netip.ParseAddr(host)
	if err != nil {
		return ""
	}

	for _, subnet := range config.PodSubnets() {
		if subnet.Contains(addr) {
			return "in the pod subnet " + subnet.String()
		}
	}

	for _, subnet := range config.ServiceSubnets() {
		if subnet.Contains(addr) {
			return "in the service subnet " + subnet.String()
		}
	}

	return ""
}

// theVIP stands for a node's name where an address is that of several.
const theVIP = "VIP"

// findHosts are the names of nodes by their addresses, hostnames and virtual addresses.
func (in *Input) findHosts() map[string]string {
	hosts := map[string]string{}

	for _, config := range in.Configs {
		for _, addr := range config.Addresses() {
			hosts[addr.Addr().String()] = config.Name
		}

		for _, vip := range config.VIPs() {
			hosts[vip.String()] = theVIP
		}
	}

	if in.Cluster == nil {
		return hosts
	}

	for _, node := range in.Cluster.Nodes {
		for _, addr := range addressesOf(node, nil) {
			hosts[addr.String()] = node.Name
		}

		hosts[strings.ToLower(node.Address)] = node.Name

		if node.Hostname != "" && !node.IgnoreHostname {
			hosts[strings.ToLower(node.Hostname)] = node.Name
		}
	}

	delete(hosts, "")

	return hosts
}

// checkTalosconfigNobody looks for endpoints of the talosconfig that no node has.
func checkTalosconfigNobody(r *Report, in *Input) {
	for _, endpoint := range in.Credentials.Endpoints() {
		if in.nodesByHost()[strings.ToLower(endpointHost(endpoint))] == "" && host.Mistyped(endpoint) == "" {
			r.found(in.talosconfigPlace(endpoint), in.setEndpoints(),
				"the talosconfig's endpoint %s is no node of the inventory", endpoint)
		}
	}
}

// setEndpoints is the command that makes the control planes the talosconfig's endpoints.
func (in *Input) setEndpoints() string {
	words := []string{"talosctl", "config", "endpoint"}
	for _, node := range in.Cluster.ControlPlanes() {
		words = append(words, node.Address)
	}

	return strings.Join(words, " ")
}

// endpointHost takes the port and the brackets off an endpoint.
func endpointHost(endpoint string) string {
	if parsed, err := netip.ParseAddrPort(endpoint); err == nil {
		return parsed.Addr().String()
	}

	if _, err := netip.ParseAddr(endpoint); err == nil {
		return endpoint
	}

	if parsed, err := url.Parse("//" + endpoint); err == nil {
		return parsed.Hostname()
	}

	return endpoint
}

// checkDialedNames looks for endpoints of the talosconfig that no control plane's certificate is for. What a node
// learns by DHCP, addresses and names, is in its certificate as well.
func checkDialedNames(r *Report, in *Input) {
	var covered []string

	learnsNames, learnsAddresses := false, false

	for _, config := range in.Configs {
		if !isControlPlane(config) {
			continue
		}

		learnsNames = learnsNames || config.Hostname() == "" || config.UsesDHCP()
		learnsAddresses = learnsAddresses || config.UsesDHCP() || len(config.Addresses()) == 0

		short, _, _ := strings.Cut(config.Hostname(), ".")
		covered = append(append(covered, config.Hostname(), short), config.CertSANs()...)
	}

	for _, endpoint := range in.Credentials.Endpoints() {
		host := endpointHost(endpoint)
		_, err := netip.ParseAddr(host)

		// A node's certificate is for its addresses, whatever they are.
		if node := in.nodesByHost()[strings.ToLower(host)]; err == nil && (node != "" || learnsAddresses) {
			continue
		}

		if short, _, _ := strings.Cut(host, "."); err != nil && learnsNames &&
			(slices.Contains(covered, short) || slices.Contains(covered, "")) {
			continue // the domain, or the whole name, may be DHCP's
		}

		if !slices.ContainsFunc(covered, func(name string) bool { return preflight.CoversName(name, host) }) {
			r.found(in.talosconfigPlace(endpoint), "add "+host+" to certSANs of the control planes",
				"the talosconfig dials %s, which is no node's address, and in no control plane's hostname or certSANs", host)
		}
	}
}

// checkPrefixLengths looks for addresses that stand for a network of their own.
func checkPrefixLengths(r *Report, config *Rendered) {
	for _, link := range config.links() {
		for _, address := range link.addresses {
			if address.bare && !link.isLocal() {
				r.found(address.at, "write "+address.text+"/"+strconv.Itoa(usualLength(address.prefix.Addr()))+
					", with your subnet's prefix length",
					"%s of %s has no prefix length, and is taken for a network of its own", address.text, link.label)
			}
		}
	}
}

func usualLength(addr netip.Addr) int {
	if addr.Is4() {
		return 24
	}

	return 64
}

// checkDeclaredAddresses looks for declared addresses that lead to no machine.
func checkDeclaredAddresses(r *Report, in *Input) {
	for _, node := range in.Cluster.Nodes {
		addr, err := netip.ParseAddr(node.Address)
		if err != nil {
			continue
		}

		what := special(addr)
		if what == "" || in.rehearses(addr) {
			continue
		}

		// A forwarded port, or a neighbour on the same segment, is reached at these.
		severity := diagnosis.Failure
		if addr.IsLoopback() || addr.IsLinkLocalUnicast() {
			severity = diagnosis.Warning
		}

		r.add(severity, in.node(node).field("ipAddress"), "declare the node's own address",
			"%s is declared at %s, a %s address", node.Name, addr, what)
	}
}

// checkSpecialAddresses looks for static addresses that lead to no machine. The loopback link may have any.
func checkSpecialAddresses(r *Report, config *Rendered) {
	for _, link := range config.links() {
		for _, address := range link.addresses {
			what := special(address.prefix.Addr())
			if what == "" || link.isLocal() || what == "link-local" || r.in.rehearses(address.prefix.Addr()) {
				continue
			}

			severity := diagnosis.Warning
			if config.hasOnly(address.prefix.Addr()) {
				severity = diagnosis.Failure
			}

			r.add(severity, address.at, "set the node's own address", "%s of %s is a %s address", address.prefix.Addr(),
				link.label, what)
		}
	}
}

// rehearses reports whether an address is a loopback one in a cluster that is on loopback as a whole: emulated nodes
// are.
func (in *Input) rehearses(addr netip.Addr) bool {
	return addr.IsLoopback() && in.onLoopback()
}

// findLoopback reports whether every node is declared at a loopback address.
func (in *Input) findLoopback() bool {
	return in.Cluster != nil && !slices.ContainsFunc(in.Cluster.Nodes, func(node *inventory.Node) bool {
		addr, err := netip.ParseAddr(node.Address)

		return err != nil || !addr.IsLoopback()
	})
}

// special names the kind of an address that is not one machine's; empty for ordinary ones.
func special(addr netip.Addr) string {
	switch {
	case !addr.IsValid():
		return ""
	case addr.IsUnspecified():
		return "unspecified"
	case addr.IsLoopback():
		return "loopback"
	case addr.IsMulticast():
		return "multicast"
	case addr.IsLinkLocalUnicast():
		return "link-local"
	case addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "broadcast"
	default:
		return ""
	}
}
