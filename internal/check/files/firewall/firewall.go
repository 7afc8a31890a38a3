// Package firewall holds the checks of firewall documents: whom does a node shut out that the cluster, or its operator,
// needs?
package firewall

import (
	"fmt"
	"net/netip"
	"slices"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/files/versions"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Checks are its rows of the table.
func Checks() []check.Check {
	return []check.Check{
		check.EachConfig(diagnosis.FirewallOperator, check.Firewall, checkFirewallOperator),
		check.Whole(diagnosis.FirewallEtcd, check.Firewall, diagnosis.NeedsConfig, passage{
			what: "etcd", ports: tcp(constants.EtcdClientPort, constants.EtcdPeerPort), to: check.IsControlPlane,
			from: check.IsControlPlane,
		}.check),
		check.Whole(diagnosis.FirewallKubernetes, check.Firewall, diagnosis.NeedsConfig, passage{
			what: "the Kubernetes API", ports: apiServerPort, to: check.IsControlPlane, from: anyNode, balanced: true,
		}.check),
		check.Whole(diagnosis.FirewallTrustd, check.Firewall, diagnosis.NeedsConfig, passage{
			what: "trustd", ports: tcp(constants.TrustdPort), to: check.IsControlPlane, from: check.IsWorker, balanced: true,
		}.check),
		check.Whole(diagnosis.FirewallKubelet, check.Firewall, diagnosis.NeedsConfig, passage{
			what: "the kubelet", ports: tcp(constants.KubeletPort), to: anyNode, from: check.IsControlPlane,
		}.check),
		check.Whole(diagnosis.FirewallTalos, check.Firewall, diagnosis.NeedsConfig, passage{
			what: "the Talos API", ports: tcp(constants.ApidPort), to: anyNode, from: check.IsControlPlane,
		}.check),
		check.Whole(diagnosis.FirewallTunnel, check.Firewall, diagnosis.NeedsConfig, passage{
			what: "the tunnel", ports: tunnelPorts, to: anyNode, from: anyNode, tunnel: true,
		}.check),
		check.EachConfig(diagnosis.FirewallEtcdHTTP, check.Firewall, checkEtcdHTTP),
		check.EachConfig(diagnosis.FirewallRuleEmpty, check.Firewall, checkEmptyRules),
	}
}

// firewall is what the documents of a node say about who is let in.
type firewall struct {
	// blocks is set when what no rule is about is shut out.
	blocks bool
	rules  []config.NetworkRule
}

// walls are the node's; false if its documents shut nobody out.
func walls(c *check.Rendered) (firewall, bool) {
	documents := c.Provider.NetworkRules()
	made := firewall{blocks: documents.DefaultAction() == nethelpers.DefaultActionBlock, rules: documents.Rules()}

	return made, made.blocks || len(made.rules) > 0
}

// port is a port of a protocol.
type port struct {
	protocol nethelpers.Protocol
	number   uint16
}

func (p port) String() string { return fmt.Sprintf("%d/%s", p.number, p.protocol) }

// about are the rules for a port.
func (f firewall) about(port port) []config.NetworkRule {
	var rules []config.NetworkRule

	for _, rule := range f.rules {
		if rule.Protocol() == port.protocol &&
			slices.ContainsFunc(rule.PortRanges(),
				func(span [2]uint16) bool { return span[0] <= port.number && port.number <= span[1] }) {
			rules = append(rules, rule)
		}
	}

	return rules
}

// door is what the rules for a port say, taken apart once for many callers.
type door struct {
	blocks bool
	rules  []opening
}

// opening are the addresses of a rule.
type opening struct{ subnets, excepts []netip.Prefix }

func openingOf(rule config.NetworkRule) opening { return opening{rule.Subnets(), rule.ExceptSubnets()} }

func (f firewall) door(port port) door {
	made := door{blocks: f.blocks}
	for _, rule := range f.about(port) {
		made.rules = append(made.rules, openingOf(rule))
	}

	return made
}

// admits reports whether a call from an address comes through. By default blocked, one rule that has the address lets
// it in; by default open, one that does not have it shuts it out.
func (d door) admits(from netip.Addr) bool {
	for _, rule := range d.rules {
		if rule.has(from) == d.blocks {
			return d.blocks
		}
	}

	return !d.blocks
}

// has reports whether an address is among a rule's.
func (o opening) has(addr netip.Addr) bool {
	contains := func(subnet netip.Prefix) bool { return subnet.Contains(addr) }

	return slices.ContainsFunc(o.subnets, contains) && !slices.ContainsFunc(o.excepts, contains)
}

// hasSharedSpace tells of addresses that a private network between nodes may give them.
func (o opening) hasSharedSpace() bool {
	return slices.ContainsFunc(o.subnets,
		func(subnet netip.Prefix) bool { return subnet.Bits() > 0 && subnet.Overlaps(check.SharedSpace) })
}

// admitsAnybody reports whether there is an address that comes through. The ends of all subnets stand for what lies
// between.
func (d door) admitsAnybody() bool {
	return len(d.rules) == 0 && !d.blocks ||
		slices.ContainsFunc(d.rules, func(rule opening) bool { return slices.ContainsFunc(rule.edges(), d.admits) })
}

// edges are the first and last addresses of a rule's subnets, and those next to its exceptions.
func (o opening) edges() []netip.Addr {
	var found []netip.Addr

	for _, subnet := range o.subnets {
		found = append(found, subnet.Masked().Addr(), lastAddress(subnet))
	}

	for _, except := range o.excepts {
		found = append(found, except.Masked().Addr().Prev(), lastAddress(except).Next())
	}

	return slices.DeleteFunc(found, func(addr netip.Addr) bool { return !addr.IsValid() })
}

// lastAddress is the highest address of a subnet.
func lastAddress(subnet netip.Prefix) netip.Addr {
	if !subnet.IsValid() {
		return netip.Addr{}
	}

	bytes := subnet.Masked().Addr().AsSlice()
	for bit := subnet.Bits(); bit < 8*len(bytes); bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}

	last, _ := netip.AddrFromSlice(bytes) // it is as long as it was

	return last
}

// checkEtcdHTTP looks for rules about etcd's port that do not follow its metrics to their new one. Whoever serves them
// at a port of their own has nothing to move.
func checkEtcdHTTP(r *check.Report, rendered *check.Rendered) {
	wall, guards := walls(rendered)
	before := port{nethelpers.ProtocolTCP, constants.EtcdClientPort}
	after := port{nethelpers.ProtocolTCP, constants.EtcdClientHTTPPort}

	if !guards || check.IsWorker(rendered) || len(wall.about(before)) == 0 || len(wall.about(after)) > 0 ||
		len(rendered.Etcd().ExtraArgs()["listen-metrics-urls"]) > 0 ||
		!versions.WillRunFrom(r.In, rendered, talosconfig.TalosVersion1_14) {
		return
	}

	next := fmt.Sprintf("add port %d to the rule", after.number)

	switch {
	case !wall.blocks:
		r.Found(rulePlace(rendered, wall, before), next,
			"the rule guards etcd's port %d, and Talos 1.14 opens port %d beside it, to everybody", before.number, after.number)
	case slices.ContainsFunc(wall.about(before), admitsMoreThan(r.In, check.IsControlPlane)):
		r.Found(rulePlace(rendered, wall, before), next,
			"the rule lets others than control planes in at etcd's port %d, whose metrics moved to %d in Talos 1.14",
			before.number, after.number)
	}
}

// admitsMoreThan tells of rules with a subnet in which none of these nodes is.
func admitsMoreThan(in *check.Input, these func(*check.Rendered) bool) func(config.NetworkRule) bool {
	var addresses []netip.Addr

	for _, rendered := range in.Configs {
		if these(rendered) {
			addresses = append(addresses, rendered.OwnAddresses()...)
		}
	}

	return func(rule config.NetworkRule) bool {
		return slices.ContainsFunc(rule.Subnets(), func(subnet netip.Prefix) bool {
			return !slices.ContainsFunc(addresses, subnet.Contains)
		})
	}
}

// rulePlace is where it is decided who may call a port: the rule for it, or the default.
func rulePlace(c *check.Rendered, f firewall, port port) check.Place {
	for _, rule := range f.about(port) {
		if named, ok := rule.(config.NamedDocument); ok {
			return c.File.In("NetworkRuleConfig/"+named.Name(), "ingress")
		}
	}

	return c.File.In("NetworkDefaultActionConfig", "ingress")
}

func tcp(numbers ...uint16) func(*check.Rendered) []port {
	ports := make([]port, 0, len(numbers))
	for _, number := range numbers {
		ports = append(ports, port{nethelpers.ProtocolTCP, number})
	}

	return func(*check.Rendered) []port { return ports }
}

func apiServerPort(config *check.Rendered) []port {
	return []port{{nethelpers.ProtocolTCP, uint16(config.APIServer().APIPort())}} //nolint:gosec // a port has 16 bits
}

// flannelPort is where Talos' Flannel takes packets of other nodes' pods.
const flannelPort = 4789

func tunnelPorts(config *check.Rendered) []port {
	switch {
	case hasKubeSpan(config):
		return []port{{nethelpers.ProtocolUDP, constants.KubeSpanDefaultPort}}
	case config.CNI() == constants.FlannelCNI:
		return []port{{nethelpers.ProtocolUDP, flannelPort}}
	default:
		return nil
	}
}

// hasKubeSpan reports whether nodes call each other through WireGuard, which the firewall trusts.
func hasKubeSpan(c *check.Rendered) bool {
	kubeSpan := c.Provider.NetworkKubeSpanConfig()

	return kubeSpan != nil && kubeSpan.Enabled()
}

func anyNode(*check.Rendered) bool { return true }

// passage is what nodes need to come through to others.
type passage struct {
	what     string
	ports    func(*check.Rendered) []port
	to, from func(*check.Rendered) bool
	// balanced is set for what a balancer may pass on, from an address of its own.
	balanced bool
	// tunnel is set for what carries the other calls between nodes.
	tunnel bool
}

// check looks for nodes that are shut out.
func (p passage) check(r *check.Report, in *check.Input) {
	var clients []caller

	for _, client := range in.Configs {
		if p.from(client) {
			clients = append(clients, callers(client)...)
		}
	}

	for _, server := range in.Configs {
		walls, has := walls(server)
		if !has || !p.to(server) || hasKubeSpan(server) && !p.tunnel {
			continue
		}

		for _, port := range p.ports(server) {
			if shut, certain := shutOut(clients, server, walls.door(port)); len(shut) > 0 {
				r.Config = server
				r.Add(p.severity(r, in, certain), rulePlace(server, walls, port),
					"add the nodes' subnet to a NetworkRuleConfig for "+port.String(),
					"%s lets %s into %s (%s) from none of the addresses in the files", server.Name, check.Some(shut), p.what, port)
			}
		}
	}
}

// severity is the catalogue's where the calls certainly come from the addresses in the files.
func (p passage) severity(r *check.Report, in *check.Input, certain bool) diagnosis.Severity {
	if !certain || p.balanced && hasBalancer(in) {
		return min(r.Severity(), diagnosis.Warning)
	}

	return r.Severity()
}

// shutOut are the callers that don't come through; not certain where one of them may have other addresses than its
// files say.
func shutOut(callers []caller, server *check.Rendered, door door) (shut []string, certain bool) {
	certain = !slices.ContainsFunc(door.rules, opening.hasSharedSpace)
	shutsOut := func(addr netip.Addr) bool { return !door.admits(addr) }

	for _, caller := range callers {
		if !slices.ContainsFunc(caller.addresses, shutsOut) || caller.config == server && len(server.Nodes) < 2 {
			continue
		}

		if addresses := caller.facing(server); !slices.ContainsFunc(addresses, door.admits) {
			shut = append(shut, fmt.Sprintf("%s (%s)", caller.name, check.Join(addresses)))
			certain = certain && caller.certain() && !slices.ContainsFunc(addresses, netip.Addr.Is6)
		}
	}

	return shut, certain
}

// caller is a node that calls others.
type caller struct {
	name      string
	config    *check.Rendered
	addresses []netip.Addr
}

// certain reports whether the node has no other addresses than its files say, as far as IPv4 goes. A system extension
// may bring others.
func (c caller) certain() bool {
	return len(c.config.Addresses()) > 0 && !c.config.UsesDHCP() && len(c.config.Provider.ExtensionServiceConfigs()) == 0
}

// callers are the machines that get a config.
func callers(c *check.Rendered) []caller {
	if len(c.Nodes) == 0 {
		return []caller{{name: c.Name, config: c, addresses: c.OwnAddresses()}}
	}

	callers := make([]caller, 0, len(c.Nodes))

	for _, node := range c.Nodes {
		addresses := slices.DeleteFunc(check.AddressesOf(node, c),
			func(addr netip.Addr) bool { return check.Special(addr) != "" })
		callers = append(callers, caller{name: node.Name, config: c, addresses: addresses})
	}

	return callers
}

// facing are the addresses that a node may call another from: those in a subnet that both are in, or else all.
func (c caller) facing(server *check.Rendered) []netip.Addr {
	shared := slices.DeleteFunc(slices.Clone(c.addresses), func(addr netip.Addr) bool {
		return !slices.ContainsFunc(server.Links(), func(link *check.Link) bool {
			return slices.ContainsFunc(link.Addresses,
				func(a check.Address) bool { return a.Prefix.IsValid() && a.Prefix.Masked().Contains(addr) })
		})
	})

	if len(shared) > 0 {
		return shared
	}

	return c.addresses
}

// hasBalancer reports whether the endpoint may be something that is no node: then calls through it have its address.
func hasBalancer(in *check.Input) bool {
	if in.Cluster == nil || in.Cluster.Endpoint == nil {
		return true
	}

	return in.NodeAt(in.Cluster.Endpoint.Hostname()) == ""
}

// checkFirewallOperator looks for nodes whose Talos API is closed to everybody, or to this computer.
func checkFirewallOperator(r *check.Report, config *check.Rendered) {
	walls, has := walls(config)
	if !has || config.Provider.SideroLink() != nil {
		return // a SideroLink is let in
	}

	talos := port{nethelpers.ProtocolTCP, constants.ApidPort}
	place, door := rulePlace(config, walls, talos), walls.door(talos)

	if !door.admitsAnybody() {
		severity := diagnosis.Failure
		if hasKubeSpan(config) && !check.IsControlPlane(config) {
			severity = diagnosis.Warning // control planes pass calls on through KubeSpan
		}

		r.Add(severity, place, "add a NetworkRuleConfig for port 50000 with your subnet",
			"%s lets nobody into the Talos API (%s)", config.Name, talos)

		return
	}

	if r.In.Options.CallsFrom == nil {
		return
	}

	for _, node := range config.Nodes {
		addr, err := netip.ParseAddr(node.Address)
		if err != nil {
			continue
		}

		if from := r.In.Options.CallsFrom(addr); from.IsValid() && !from.IsLoopback() && !door.admits(from) {
			r.Warn(place, "add your subnet to the NetworkRuleConfig for port 50000",
				"%s does not let %s, which this computer calls it from, into the Talos API (%s)", node.Name, from, talos)
		}
	}
}

// checkEmptyRules looks for rules that open nothing.
func checkEmptyRules(r *check.Report, rendered *check.Rendered) {
	walls, _ := walls(rendered)
	if !walls.blocks {
		return
	}

	for _, rule := range walls.rules {
		named, ok := rule.(config.NamedDocument)
		if opening := openingOf(rule); !ok || slices.ContainsFunc(opening.edges(), opening.has) {
			continue
		}

		r.Found(rendered.File.In("NetworkRuleConfig/"+named.Name(), "ingress"), "add the subnets that are meant",
			"the rule %s lets nobody in", named.Name())
	}
}
