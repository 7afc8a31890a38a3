// Package match says which machine is which declared node's. It guesses nothing: what fits more than once, or against
// what is declared, is named instead.
package match

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/check/nodes"
	"github.com/talos-mage/talos-mage/internal/check/proxmox"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/discover"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// What a machine is matched by, the strongest first. An address and a count identify no machine: another one may have
// the address tomorrow.
const (
	ByMAC      = "MAC"
	ByUUID     = "UUID"
	ByProxmox  = "Proxmox"
	ByHostname = "host name"
	ByAddress  = "address"
	ByCount    = "count"
)

// Options say what else there is to match by.
type Options struct {
	// VMs are those of Proxmox that are called like nodes.
	VMs []proxmox.VM
	// Resolve looks up a declared name; nil if none is to be.
	Resolve func(name string) []netip.Addr
	// ByCount matches what is left in order, if as many machines in maintenance as nodes are.
	ByCount bool
}

// Result has each node and each machine once: in a pair, in a conflict, or by itself.
type Result struct {
	// Pairs, Missing and Ambiguous are in the order of the inventory, Extra by address.
	Pairs     []Pair
	Missing   []*inventory.Node
	Extra     []discover.Machine
	Ambiguous []Conflict
	// Duplicates are machines that say the same of themselves that only one should.
	Duplicates []Duplicate
	// Uncounted is why nothing was matched by count, although that was asked for.
	Uncounted string
}

// Pair is a node and its machine.
type Pair struct {
	Node    *inventory.Node
	Machine discover.Machine
	// Address is where the machine answers: the declared address, if it is one of several.
	Address netip.Addr
	// By is what says so: one or more of the constants, comma separated.
	By string
}

// Conflict is what can't be matched, for what is known goes against each other.
type Conflict struct {
	Nodes    []*inventory.Node
	Machines []discover.Machine
	Why      string
	// Former are those of the machines that run as a node of this cluster, and are not the ones that the files declare:
	// they were replaced.
	Former []discover.Machine
}

// Duplicate is something that several machines have.
type Duplicate struct {
	What     string // "MAC 02:00:5e:10:00:01"
	Machines []discover.Machine
}

// Match finds the machine of each node. The order of nodes and machines makes no difference.
func Match(declared []*inventory.Node, machines []discover.Machine, options Options) Result {
	m := matcher{
		cluster:  &inventory.Cluster{Nodes: inFile(declared)},
		machines: byAddress(machines),
		options:  options,
	}
	m.settled = make([]bool, len(m.machines))
	m.placed = map[*inventory.Node]bool{}

	m.settle(m.identity)
	m.settle(m.address)
	m.nameOccupied()

	if options.ByCount {
		m.count()
	}

	return m.finish()
}

// inFile are nodes in the order of their file, in which machines that share an entry follow by name.
func inFile(declared []*inventory.Node) []*inventory.Node {
	return slices.SortedFunc(slices.Values(declared), func(a, b *inventory.Node) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), natural(a.Name, b.Name),
			cmp.Compare(a.Name, b.Name))
	})
}

func byAddress(machines []discover.Machine) []discover.Machine {
	return slices.SortedFunc(slices.Values(machines), func(a, b discover.Machine) int {
		return cmp.Or(a.Address().Compare(b.Address()), cmp.Compare(a.Fingerprint, b.Fingerprint),
			cmp.Compare(a.UUID, b.UUID), slices.Compare(a.MACs, b.MACs))
	})
}

type matcher struct {
	cluster  *inventory.Cluster
	machines []discover.Machine
	options  Options

	// settled are machines, placed are nodes that are in the result already.
	settled []bool
	placed  map[*inventory.Node]bool
	result  Result
}

// evidence is something that says that a machine is a node's: by a constant of this package, and in full.
type evidence struct{ by, text string }

// finder looks for evidence that a machine is a node's.
type finder func(node *inventory.Node, machine discover.Machine) []evidence

// group are nodes and machines that evidence ties together.
type group struct {
	nodes    []*inventory.Node
	machines []int
	links    []link
}

type link struct {
	node     *inventory.Node
	machine  int
	evidence []evidence
}

// settle pairs each machine that one node alone fits, and that alone fits it. All others that something fits are
// conflicts. Only a machine in maintenance and one of this cluster can be a node's.
func (m *matcher) settle(find finder) {
	for _, tied := range groups(m.links(find)) {
		if len(tied.links) > 1 {
			m.conflict(tied.nodes, tied.machines, m.contradiction(tied))

			continue
		}

		m.pair(tied.links[0])
	}
}

func (m *matcher) links(find finder) []link {
	var links []link

	for _, node := range m.cluster.Nodes {
		for i, machine := range m.machines {
			if m.placed[node] || m.settled[i] || !usable(machine) {
				continue
			}

			if found := find(node, machine); len(found) > 0 {
				links = append(links, link{node, i, found})
			}
		}
	}

	return links
}

func usable(machine discover.Machine) bool {
	return machine.State == talos.Maintenance || machine.State == talos.Ours
}

// groups puts links together that share a node or a machine.
func groups(links []link) []group {
	var all []group

	for _, next := range links {
		merged := group{links: []link{next}}
		shares := func(other group) bool {
			return slices.Contains(other.nodes, next.node) || slices.Contains(other.machines, next.machine)
		}

		for _, other := range all {
			if shares(other) {
				merged.links = append(other.links, merged.links...)
			}
		}

		for _, one := range merged.links {
			merged.nodes, merged.machines = appendNew(merged.nodes, one.node), appendNew(merged.machines, one.machine)
		}

		all = append(slices.DeleteFunc(all, shares), merged)
	}

	return all
}

func appendNew[T comparable](list []T, item T) []T {
	if slices.Contains(list, item) {
		return list
	}

	return append(list, item)
}

// pair takes a machine for a node's, unless the step that sends configs would refuse it.
func (m *matcher) pair(one link) {
	machine := m.machines[one.machine]

	if why := m.refusal(one.node, machine); why != "" {
		m.conflict([]*inventory.Node{one.node}, []int{one.machine}, sayEvidence(machine, one)+", but "+why)

		return
	}

	var by []string
	for _, found := range one.evidence {
		by = appendNew(by, found.by)
	}

	m.place([]*inventory.Node{one.node}, []int{one.machine})
	m.result.Pairs = append(m.result.Pairs, Pair{Node: one.node, Machine: machine,
		Address: m.answersAt(one.node, machine), By: strings.Join(by, ", ")})
}

// refusal is why a machine is not the declared one; empty if it is, or nothing is declared.
func (m *matcher) refusal(node *inventory.Node, machine discover.Machine) string {
	told := len(machine.MACs) > 0 || machine.UUID != ""
	brokeOff := machine.Err != nil && len(machine.MACs) == 0 && len(node.MACs) > 0

	switch {
	case told && !brokeOff:
	case machine.State == talos.Ours || !node.DeclaresMachine():
		return ""
	case told:
		return "it has not told its MAC addresses, which would have to be those declared"
	default:
		return "it tells neither its MAC addresses nor its UUID, which would have to be those declared"
	}

	links := make([]talos.Link, 0, len(machine.MACs))
	for _, mac := range machine.MACs {
		links = append(links, talos.Link{MAC: mac, Physical: true})
	}

	finding := nodes.Identity(m.cluster, node, links, talos.SystemInfo{UUID: machine.UUID})
	if finding == nil {
		return ""
	}

	return finding.Cause
}

// answersAt is where to reach a node's machine.
func (m *matcher) answersAt(node *inventory.Node, machine discover.Machine) netip.Addr {
	for _, address := range m.declaredAddresses(node) {
		if slices.Contains(machine.Addresses, address) {
			return address
		}
	}

	return machine.Address()
}

func (m *matcher) declaredAddresses(node *inventory.Node) []netip.Addr {
	address, err := netip.ParseAddr(node.Address)

	switch {
	case err == nil:
		return []netip.Addr{address.Unmap()}
	case m.options.Resolve != nil:
		return m.options.Resolve(node.Address)
	default:
		return nil
	}
}

func (m *matcher) conflict(tied []*inventory.Node, machines []int, why string) {
	m.place(tied, machines)

	conflict := Conflict{Nodes: inFile(tied), Why: why}
	for _, i := range machines {
		conflict.Machines = append(conflict.Machines, m.machines[i])
	}

	conflict.Machines = byAddress(conflict.Machines)
	conflict.Former = slices.DeleteFunc(slices.Clone(conflict.Machines), func(machine discover.Machine) bool {
		return machine.State != talos.Ours || slices.ContainsFunc(tied, func(node *inventory.Node) bool {
			return m.refusal(node, machine) == ""
		})
	})
	m.result.Ambiguous = append(m.result.Ambiguous, conflict)
}

func (m *matcher) place(nodes []*inventory.Node, machines []int) {
	for _, node := range nodes {
		m.placed[node] = true
	}

	for _, i := range machines {
		m.settled[i] = true
	}
}

// contradiction lists what ties nodes and machines together, in their order.
func (m *matcher) contradiction(tied group) string {
	slices.SortStableFunc(tied.links, func(a, b link) int {
		return cmp.Or(cmp.Compare(a.machine, b.machine),
			cmp.Compare(slices.Index(m.cluster.Nodes, a.node), slices.Index(m.cluster.Nodes, b.node)))
	})

	said := make([]string, 0, len(tied.links))
	for _, one := range tied.links {
		said = append(said, sayEvidence(m.machines[one.machine], one))
	}

	return strings.Join(said, "; ")
}

func sayEvidence(machine discover.Machine, one link) string {
	texts := make([]string, 0, len(one.evidence))
	for _, found := range one.evidence {
		texts = append(texts, found.text)
	}

	return fmt.Sprintf("%s is %s's machine by %s", machine.Address(), one.node.Name, strings.Join(texts, " and "))
}

// identity looks for what a machine says of itself.
func (m *matcher) identity(node *inventory.Node, machine discover.Machine) []evidence {
	var found []evidence

	if mac := common(node.MACs, machine.MACs); mac != "" {
		found = append(found, evidence{ByMAC, "MAC " + mac})
	}

	if node.UUID != "" && strings.EqualFold(node.UUID, machine.UUID) {
		found = append(found, evidence{ByUUID, "UUID " + node.UUID})
	}

	for _, vm := range m.options.VMs {
		if !CalledLike(vm.Name, node) {
			continue
		}

		if mac := common(vm.MACs, machine.MACs); mac != "" {
			found = append(found, evidence{ByProxmox, fmt.Sprintf("MAC %s of VM %s (%s)", mac, vm.Name, vm.Where)})
		} else if vm.UUID != "" && strings.EqualFold(vm.UUID, machine.UUID) {
			found = append(found, evidence{ByProxmox, fmt.Sprintf("UUID %s of VM %s (%s)", vm.UUID, vm.Name, vm.Where)})
		}
	}

	if machine.State == talos.Ours && !node.IgnoreHostname && CalledLike(machine.Hostname, node) {
		found = append(found, evidence{ByHostname, "host name " + machine.Hostname})
	}

	return found
}

// CalledLike reports whether a name is a node's.
func CalledLike(name string, node *inventory.Node) bool {
	return name != "" && (strings.EqualFold(name, node.Name) || strings.EqualFold(name, node.Hostname))
}

// common is the first of some texts that is among others; empty if none is.
func common(texts, others []string) string {
	for _, text := range texts {
		if slices.Contains(others, text) {
			return text
		}
	}

	return ""
}

// address looks for a machine that has a node's declared address.
func (m *matcher) address(node *inventory.Node, machine discover.Machine) []evidence {
	for _, address := range m.declaredAddresses(node) {
		if slices.Contains(machine.Addresses, address) {
			return []evidence{{ByAddress, "its declared address " + address.String()}}
		}
	}

	return nil
}

// nameOccupied finds nodes without a machine whose address, MAC or UUID something else has that can't be one. What took
// a connection and then said nothing is nothing yet: a machine that opens its API, or closes it.
func (m *matcher) nameOccupied() {
	for _, node := range m.cluster.Nodes {
		if m.placed[node] {
			continue
		}

		for i, machine := range m.machines {
			if m.settled[i] || usable(machine) || machine.State == talos.Unreachable {
				continue
			}

			found := append(m.identity(node, machine), m.address(node, machine)...)
			if len(found) == 0 {
				continue
			}

			m.conflict([]*inventory.Node{node}, []int{i},
				sayEvidence(machine, link{node: node, evidence: found})+", but "+otherwise(machine))

			break
		}
	}
}

// otherwise says what a machine is that can't be a node's.
func otherwise(machine discover.Machine) string {
	switch machine.State {
	case talos.Foreign:
		return "it is configured, as a node of another cluster"
	case talos.UnknownCA:
		return "it is configured, and without a talosconfig nobody can tell for which cluster"
	case talos.NotTalos:
		return "what answers there is no Talos node"
	default:
		return "it is " + machine.State.String()
	}
}

// count pairs what is left in order, where that leaves nothing over and nothing that is known goes against it.
func (m *matcher) count() {
	var (
		left     []*inventory.Node
		machines []int
	)

	for _, node := range m.cluster.Nodes {
		if !m.placed[node] {
			left = append(left, node)
		}
	}

	for i, machine := range m.machines {
		if !m.settled[i] && machine.State == talos.Maintenance {
			machines = append(machines, i)
		}
	}

	if m.result.Uncounted = m.uncountable(left, len(machines)); m.result.Uncounted != "" {
		return
	}

	slices.SortStableFunc(left, m.numerically)

	for i, node := range left {
		m.pair(link{node, machines[i], []evidence{{ByCount, "count"}}})
	}
}

// uncountable is why nodes and machines can't be matched by their number; empty if they can, or there are none.
func (m *matcher) uncountable(left []*inventory.Node, machines int) string {
	at := slices.IndexFunc(left, (*inventory.Node).DeclaresMachine)

	switch {
	case len(left) == 0 && machines == 0:
		return ""
	case len(m.result.Ambiguous) > 0:
		return "nothing is matched by count while something is ambiguous"
	case at >= 0:
		return left[at].Name + " declares its machine, and none that answers is it: nothing is matched by count"
	case len(left) != machines:
		return fmt.Sprintf("nothing is matched by count: nodes without a machine: %d, machines in maintenance without a "+
			"node: %d", len(left), machines)
	default:
		return ""
	}
}

// numerically orders nodes by declared address, and those with a name there, after them, by that.
func (m *matcher) numerically(a, b *inventory.Node) int {
	first, errFirst := netip.ParseAddr(a.Address)
	second, errSecond := netip.ParseAddr(b.Address)

	switch {
	case errFirst == nil && errSecond == nil:
		return first.Compare(second)
	case errFirst == nil:
		return -1
	case errSecond == nil:
		return 1
	default:
		return natural(a.Name, b.Name)
	}
}

// finish adds what is in no pair and no conflict, and puts all in order.
func (m *matcher) finish() Result {
	for _, node := range m.cluster.Nodes {
		if !m.placed[node] {
			m.result.Missing = append(m.result.Missing, node)
		}
	}

	for i, machine := range m.machines {
		if !m.settled[i] {
			m.result.Extra = append(m.result.Extra, machine)
		}
	}

	at := func(node *inventory.Node) int { return slices.Index(m.cluster.Nodes, node) }
	slices.SortFunc(m.result.Pairs, func(a, b Pair) int { return cmp.Compare(at(a.Node), at(b.Node)) })
	slices.SortStableFunc(m.result.Ambiguous, func(a, b Conflict) int {
		return cmp.Compare(at(a.Nodes[0]), at(b.Nodes[0]))
	})

	m.result.Duplicates = duplicates(m.machines)

	return m.result
}

// duplicates finds machines that share a MAC address or a UUID, as clones of one VM do.
func duplicates(machines []discover.Machine) []Duplicate {
	sharing := map[string][]discover.Machine{}

	for _, machine := range machines {
		for _, mac := range slices.Compact(slices.Sorted(slices.Values(machine.MACs))) {
			sharing["MAC "+mac] = append(sharing["MAC "+mac], machine)
		}

		if machine.UUID != "" {
			sharing["UUID "+machine.UUID] = append(sharing["UUID "+machine.UUID], machine)
		}
	}

	var found []Duplicate

	for what, having := range sharing {
		if len(having) > 1 {
			found = append(found, Duplicate{what, having})
		}
	}

	slices.SortFunc(found, func(a, b Duplicate) int { return cmp.Compare(a.What, b.What) })

	return found
}
