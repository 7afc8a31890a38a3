// Package addresses holds the checks of addresses: of links, routes, resolvers, and of what the talosconfig calls.
package addresses

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/talos-mage/talos-mage/internal/base/host"
	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Checks are its rows of the table.
func Checks() []check.Check {
	return slices.Concat(
		[]check.Check{
			check.EachConfig(diagnosis.GatewayOutside, check.Addresses, checkGateways),
			check.EachConfig(diagnosis.GatewayIsOwnAddress, check.Addresses, checkOwnGateway),
			check.EachConfig(diagnosis.DefaultRoutesEqual, check.Addresses, checkDefaultRoutes),
			check.EachConfig(diagnosis.DefaultWithoutGateway, check.Addresses, checkDefaultGateways),
			check.EachConfig(diagnosis.NetworkAddress, check.Addresses, checkNetworkAddress),
			check.EachConfig(diagnosis.AddressMalformed, check.Addresses, checkAddressTexts),
			check.Whole(diagnosis.AddressMalformed, check.Addresses, diagnosis.NeedsTalosconfig, checkTalosconfigTexts),
			check.Whole(diagnosis.AddressTwice, check.Addresses, diagnosis.NeedsConfig, checkAddressTwice),
			check.EachConfig(diagnosis.ResolverInCluster, check.Addresses, checkResolvers).Within(check.ResolverArea),
			check.EachConfig(diagnosis.TimeServerInCluster, check.Addresses, checkTimeServers).Within(check.TimeArea),
			check.Whole(diagnosis.TalosconfigNobody, check.Addresses, diagnosis.NeedsTalconfig|diagnosis.NeedsTalosconfig,
				checkTalosconfigNobody),
			check.EachConfig(diagnosis.AddressWithoutPrefix, check.Addresses, checkPrefixLengths),
			check.Whole(diagnosis.AddressNotOfOneNode, check.Addresses, diagnosis.NeedsTalconfig, checkDeclaredAddresses),
			check.EachConfig(diagnosis.AddressNotOfOneNode, check.Addresses, checkSpecialAddresses),
			check.Whole(diagnosis.EndpointNotCertified, check.Addresses,
				diagnosis.NeedsTalconfig|diagnosis.NeedsConfigs|diagnosis.NeedsTalosconfig, checkDialedNames),
		},
		check.Several(check.Addresses, diagnosis.NeedsTalconfig|diagnosis.NeedsTalosconfig, checkTalosconfigEndpoints,
			diagnosis.TalosconfigEndpoint),
	)
}

// checkGateways looks for next hops that no address of the link reaches.
func checkGateways(r *check.Report, config *check.Rendered) {
	for _, link := range config.Links() {
		for _, route := range link.Routes {
			if !route.Gateway.IsValid() || route.Gateway.IsLinkLocalUnicast() || !link.HasFamily(route.Gateway) ||
				config.Reaches(link, route.Gateway) {
				continue
			}

			aboutRoute(r, config, route, "correct the gateway, or the address's prefix length",
				"the gateway %s is in no subnet of %s (%s): the route can't be set", route.Gateway, link.Label, link.Subnets())
		}
	}
}

// checkOwnGateway looks for next hops that are the node itself.
func checkOwnGateway(r *check.Report, config *check.Rendered) {
	own := map[netip.Addr]bool{}

	for _, link := range config.Links() {
		for _, address := range link.Addresses {
			own[address.Prefix.Addr()] = true
		}
	}

	for _, link := range config.Links() {
		for _, route := range link.Routes {
			if route.Gateway.IsValid() && own[route.Gateway] {
				aboutRoute(r, config, route, "set the router's address", "the gateway %s is the node's own address", route.Gateway)
			}
		}
	}
}

// aboutRoute says what is wrong with a route, milder where the node has, or may have, another way out: an IPv6 router
// announces itself.
func aboutRoute(r *check.Report, config *check.Rendered, route check.Route, change, cause string, args ...any) {
	ways := 0

	for _, link := range config.Links() {
		if link.DHCP {
			ways++
		}

		for _, other := range link.Routes {
			if other.IsDefault() && other.Gateway.Is4() {
				ways++
			}
		}
	}

	if route.IsDefault() && route.Gateway.Is4() && ways == 1 {
		r.Found(route.At, change, cause, args...)
	} else {
		r.Warn(route.At, change, cause, args...)
	}
}

// checkNetworkAddress looks for subnets that stand where an address belongs.
func checkNetworkAddress(r *check.Report, config *check.Rendered) {
	for _, link := range config.Links() {
		for _, address := range link.Addresses {
			what := networkAddress(address.Prefix)
			if what == "" || address.Bare {
				continue
			}

			// Neighbours never call a broadcast address. The first one of a subnet works between Linux machines, and in a tunnel
			// anyway.
			severity := diagnosis.Warning
			if what == "broadcast" && hasOnly(config, address.Prefix.Addr()) {
				severity = diagnosis.Failure
			}

			r.Add(severity, address.At, "set the node's own address", "%s is the %s address of its subnet %s",
				address.Prefix.Addr(), what, address.Prefix.Masked())
		}
	}
}

// hasOnly reports whether an address is all that a node has: nothing else is static, and no link asks for DHCP.
func hasOnly(c *check.Rendered, addr netip.Addr) bool {
	for _, link := range c.Links() {
		if link.DHCP {
			return false
		}

		for _, address := range link.Addresses {
			if other := address.Prefix.Addr(); other.IsValid() && other != addr && !link.IsLocal() {
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
func checkAddressTexts(r *check.Report, config *check.Rendered) {
	for _, link := range config.Links() {
		for _, address := range link.Addresses {
			if !address.Prefix.IsValid() {
				r.Found(address.At, "write one address with its prefix length", "%q is no address: %s", address.Text,
					malformed(address.Text))
			}
		}

		for _, vip := range link.VIPs {
			if !vip.Addr.IsValid() {
				r.Found(vip.At, "write one address", "%q is no address: %s", vip.Text, malformed(vip.Text))
			}
		}
	}

	judge := func(texts []string, place func(int) check.Place) {
		for i, text := range texts {
			if why := host.Mistyped(text); why != "" {
				// One entry that leads nowhere stops nothing: certificates have their other names, and there are other servers.
				r.Warn(place(i), "write one address or name", "%q is neither an address nor a name: %s", text, why)
			}
		}
	}

	judge(config.CertSANs(), config.At("machine.certSANs").Item)
	judge(config.TimeServerTexts(), config.TimeServerPlace)
	judge(config.ResolverTexts(), config.ResolverPlace)

	judge(config.APIServer().CertSANs(), config.At("cluster.apiServer.certSANs").Item)
}

// checkTalosconfigTexts reads the endpoints of the talosconfig. They are talosctl's: this program asks each node
// directly.
func checkTalosconfigTexts(r *check.Report, in *check.Input) {
	for _, endpoint := range in.Credentials.Endpoints() {
		if _, err := netip.ParseAddrPort(endpoint); err == nil {
			continue
		}

		if why := host.Mistyped(endpoint); why != "" {
			r.Warn(in.TalosconfigEndpoint(endpoint), "write one address or name",
				"the endpoint %q is neither an address nor a name: %s", endpoint, why)
		}
	}
}

// malformed says in plain words what is wrong with a text that should be an address.
func malformed(text string) string {
	if why := host.Mistyped(text); why != "" {
		return why
	}

	if _, err := netip.ParsePrefix(text); err == nil {
		return "here it stands without a prefix length"
	}

	host, length, hasLength := strings.Cut(text, "/")
	if addr, err := netip.ParseAddr(host); hasLength && err == nil {
		return fmt.Sprintf("the prefix length %s is not a number from 0 to %d", length, addr.BitLen())
	}

	return "an IP address is expected"
}

// owner is one use of an address.
type owner struct {
	config *check.Rendered
	link   *check.Link
	at     check.Place
}

func (o owner) String() string { return o.config.Name + " on " + o.link.Label }

// checkAddressTwice looks for addresses that two nodes, or two links of one, have.
func checkAddressTwice(r *check.Report, in *check.Input) {
	owners := map[netip.Addr]owner{}

	for _, config := range in.Configs {
		r.Config = config

		for _, link := range config.Links() {
			for _, address := range link.Addresses {
				addr := address.Prefix.Addr()
				if !addr.IsValid() || addr.IsLoopback() || addr.IsLinkLocalUnicast() || link.IsLocal() {
					continue // every node may have these
				}

				this := owner{config, link, address.At}
				first, taken := owners[addr]

				switch {
				case !taken:
					owners[addr] = this
				case first.config == config && first.link.Name == link.Name && link.Name != "":
					// It is one link, in both styles: Talos sets the address once.
				default:
					r.Add(sharing(in, addr, first, this), address.At, "give one of them another address",
						"%s is set on %s and on %s (%s)", addr, first, this, r.In.Locate(first.at))
				}
			}
		}
	}
}

// sharing is how bad it is that two links have one address. On links of one node, and in networks that exist on each
// node by itself, as a bridge for virtual machines does, it may be meant; not where others know a node by it.
func sharing(in *check.Input, addr netip.Addr, first, second owner) diagnosis.Severity {
	switch {
	case first.config == second.config:
		return diagnosis.Warning
	case isDeclared(in, addr), hasOnly(first.config, addr) && hasOnly(second.config, addr):
		return diagnosis.Failure
	default:
		return diagnosis.Warning
	}
}

// isDeclared reports whether an address is what the inventory knows a node by.
func isDeclared(in *check.Input, addr netip.Addr) bool {
	return in.Cluster != nil && slices.ContainsFunc(in.Cluster.Nodes, func(node *inventory.Node) bool {
		declared, err := netip.ParseAddr(node.Address)

		return err == nil && declared.Unmap() == addr
	})
}

// checkResolvers looks for name servers that need the cluster that needs them.
func checkResolvers(r *check.Report, config *check.Rendered) {
	for i, text := range config.ResolverTexts() {
		if why := partOfCluster(r.In, config, text); why != "" {
			r.Found(config.ResolverPlace(i), "name a resolver outside of the cluster", "the name server %s is %s", text, why)
		}
	}
}

// checkTimeServers looks for time servers that need the cluster that needs them.
func checkTimeServers(r *check.Report, config *check.Rendered) {
	for i, text := range config.TimeServerTexts() {
		if why := partOfCluster(r.In, config, text); why != "" {
			r.Found(config.TimeServerPlace(i), "name a time server outside of the cluster", "the time server %s is %s", text,
				why)
		}
	}
}

// partOfCluster says what part of the cluster a host is, by its address or name; empty when it is none.
func partOfCluster(in *check.Input, config *check.Rendered, host string) string {
	switch node := in.NodeAt(host); node {
	case "":
	case check.TheVIP:
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

// checkTalosconfigNobody looks for endpoints of the talosconfig that no node has.
func checkTalosconfigNobody(r *check.Report, in *check.Input) {
	for _, endpoint := range in.Credentials.Endpoints() {
		if in.NodeAt(check.EndpointHost(endpoint)) == "" && host.Mistyped(endpoint) == "" {
			r.Found(in.TalosconfigEndpoint(endpoint), setEndpoints(in),
				"the talosconfig's endpoint %s is no node of the inventory", endpoint)
		}
	}
}

// checkDialedNames looks for endpoints of the talosconfig that no control plane's certificate is for. What a node
// learns by DHCP, addresses and names, is in its certificate as well.
func checkDialedNames(r *check.Report, in *check.Input) {
	var covered []string

	learnsNames, learnsAddresses := false, false

	for _, config := range in.Configs {
		if !check.IsControlPlane(config) {
			continue
		}

		learnsNames = learnsNames || config.Hostname() == "" || config.UsesDHCP()
		learnsAddresses = learnsAddresses || config.UsesDHCP() || len(config.Addresses()) == 0

		short, _, _ := strings.Cut(config.Hostname(), ".")
		covered = append(append(covered, config.Hostname(), short), config.CertSANs()...)
	}

	for _, endpoint := range in.Credentials.Endpoints() {
		host := check.EndpointHost(endpoint)
		_, err := netip.ParseAddr(host)

		// A node's certificate is for its addresses, whatever they are.
		if node := in.NodeAt(host); err == nil && (node != "" || learnsAddresses) {
			continue
		}

		if short, _, _ := strings.Cut(host, "."); err != nil && learnsNames &&
			(slices.Contains(covered, short) || slices.Contains(covered, "")) {
			continue // the domain, or the whole name, may be DHCP's
		}

		if !slices.ContainsFunc(covered, func(name string) bool { return check.CoversName(name, host) }) {
			change := "add " + host + " to certSANs of the control planes"
			if err == nil {
				change = "if no control plane has it any more, " + setEndpoints(in) + "; otherwise " + change
			}

			r.Found(in.TalosconfigEndpoint(endpoint), change,
				"the talosconfig dials %s, which is no node's address, and in no control plane's hostname or certSANs", host)
		}
	}
}

// checkPrefixLengths looks for addresses that stand for a network of their own.
func checkPrefixLengths(r *check.Report, config *check.Rendered) {
	for _, link := range config.Links() {
		for _, address := range link.Addresses {
			if address.Bare && !link.IsLocal() {
				r.Found(address.At, "write "+address.Text+"/"+strconv.Itoa(usualLength(address.Prefix.Addr()))+
					", with your subnet's prefix length",
					"%s of %s has no prefix length, and is taken for a network of its own", address.Text, link.Label)
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
func checkDeclaredAddresses(r *check.Report, in *check.Input) {
	for _, node := range in.Cluster.Nodes {
		addr, err := netip.ParseAddr(node.Address)
		if err != nil {
			continue
		}

		what := check.Special(addr)
		if what == "" || rehearses(in, addr) {
			continue
		}

		// A forwarded port, or a neighbour on the same segment, is reached at these.
		severity := diagnosis.Failure
		if addr.IsLoopback() || addr.IsLinkLocalUnicast() {
			severity = diagnosis.Warning
		}

		r.Add(severity, in.Node(node).Field("ipAddress"), "declare the node's own address",
			"%s is declared at %s, a %s address", node.Name, addr, what)
	}
}

// checkSpecialAddresses looks for static addresses that lead to no machine. The loopback link may have any.
func checkSpecialAddresses(r *check.Report, config *check.Rendered) {
	for _, link := range config.Links() {
		for _, address := range link.Addresses {
			what := check.Special(address.Prefix.Addr())
			if what == "" || link.IsLocal() || what == "link-local" || rehearses(r.In, address.Prefix.Addr()) {
				continue
			}

			severity := diagnosis.Warning
			if hasOnly(config, address.Prefix.Addr()) {
				severity = diagnosis.Failure
			}

			r.Add(severity, address.At, "set the node's own address", "%s of %s is a %s address", address.Prefix.Addr(),
				link.Label, what)
		}
	}
}

// rehearses reports whether an address is a loopback one in a cluster that is on loopback as a whole: emulated nodes
// are.
func rehearses(in *check.Input, addr netip.Addr) bool {
	return addr.IsLoopback() && bool(check.Once(in, findLoopback))
}

// onLoopback tells of a cluster of emulated nodes: every node is declared at a loopback address.
type onLoopback bool

func findLoopback(in *check.Input) onLoopback {
	return onLoopback(in.Cluster != nil && !slices.ContainsFunc(in.Cluster.Nodes, func(node *inventory.Node) bool {
		addr, err := netip.ParseAddr(node.Address)

		return err != nil || !addr.IsLoopback()
	}))
}
