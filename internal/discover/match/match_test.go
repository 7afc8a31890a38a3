package match_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check/proxmox"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/discover"
	"github.com/talos-mage/talos-mage/internal/discover/match"
	"github.com/talos-mage/talos-mage/internal/talos"
)

const (
	macA, macB, macC    = "02:00:5e:10:00:0a", "02:00:5e:10:00:0b", "02:00:5e:10:00:0c"
	uuidA, uuidB, uuidC = "0000000a-0000-4000-8000-000000000000", "0000000b-0000-4000-8000-000000000000",
		"0000000c-0000-4000-8000-000000000000"
)

// node is declared as cp1 at 192.0.2.11 and so on, by what its machine is known: MACs and a UUID.
func node(number int, known ...string) *inventory.Node {
	made := &inventory.Node{Name: fmt.Sprintf("cp%d", number), Address: fmt.Sprintf("192.0.2.%d", 10+number), Line: number}
	made.Hostname = made.Name

	for _, text := range known {
		if strings.Contains(text, ":") {
			made.MACs = append(made.MACs, text)
		} else {
			made.UUID = text
		}
	}

	return made
}

// machine answers in maintenance at an address of 192.0.2.0/24, and tells of itself.
func machine(last int, told ...string) discover.Machine {
	made := discover.Machine{Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(last)})},
		State: talos.Maintenance, Fingerprint: fmt.Sprint("of ", last)}

	for _, text := range told {
		if strings.Contains(text, ":") {
			made.MACs = append(made.MACs, text)
			made.Links = append(made.Links, talos.Link{Name: fmt.Sprintf("eth%d", len(made.Links)), MAC: text, Physical: true,
				Up: len(made.Links) == 0})
		} else {
			made.UUID = text
		}
	}

	return made
}

// brokeOff is one whose connection broke off while it told.
func brokeOff(last int, told ...string) discover.Machine {
	made := machine(last, told...)
	made.Err = errors.New("the connection broke off")

	return made
}

// configured is a machine with a config of a cluster.
func configured(state talos.State, hostname string, made discover.Machine) discover.Machine {
	made.State, made.Hostname = state, hostname
	return made
}

func vm(name string, told ...string) proxmox.VM {
	made := machine(1, told...)
	return proxmox.VM{Name: name, Where: "101 on pve1", MACs: made.MACs, UUID: made.UUID}
}

// lines is a result in short.
func lines(result match.Result) []string {
	var told []string

	for _, pair := range result.Pairs {
		told = append(told, fmt.Sprintf("%s at %s by %s", pair.Node.Name, pair.Address, pair.By))
	}

	for _, conflict := range result.Ambiguous {
		told = append(told, "ambiguous: "+conflict.Why)

		for _, former := range conflict.Former {
			told = append(told, "former: "+former.Address().String())
		}
	}

	for _, missing := range result.Missing {
		told = append(told, "missing: "+missing.Name)
	}

	for _, extra := range result.Extra {
		told = append(told, "extra: "+extra.Address().String())
	}

	for _, duplicate := range result.Duplicates {
		told = append(told, fmt.Sprintf("duplicate: %d machines have %s", len(duplicate.Machines), duplicate.What))
	}

	if result.Uncounted != "" {
		told = append(told, result.Uncounted)
	}

	return told
}

func TestMachinesAreMatchedByWhatTheyAre(t *testing.T) {
	t.Parallel()

	type nodes = []*inventory.Node

	type machines = []discover.Machine

	for name, test := range map[string]struct {
		nodes    nodes
		machines machines
		options  match.Options
		want     []string
	}{
		"by MAC, at swapped addresses": {nodes{node(1, macA), node(2, macB)}, machines{machine(11, macB), machine(12, macA)},
			match.Options{}, []string{"cp1 at 192.0.2.12 by MAC", "cp2 at 192.0.2.11 by MAC"}},
		"by one of several MACs": {nodes{node(1, macC, macA)}, machines{machine(50, macB, macA)}, match.Options{},
			[]string{"cp1 at 192.0.2.50 by MAC"}},
		"by UUID, however it is written": {nodes{node(1, uuidA)}, machines{machine(50, macB, strings.ToUpper(uuidA))},
			match.Options{}, []string{"cp1 at 192.0.2.50 by UUID"}},
		"its links were not read": {nodes{node(1, macA)}, machines{configured(talos.Ours, "cp1", brokeOff(50, uuidA))},
			match.Options{}, []string{"cp1 at 192.0.2.50 by host name"}},
		"its links were not read, and it waits for a config": {nodes{node(1, macA)}, machines{brokeOff(11, uuidA)},
			match.Options{}, []string{"ambiguous: 192.0.2.11 is cp1's machine by its declared address 192.0.2.11, but it has " +
				"not told its MAC addresses, which would have to be those declared"}},
		"by both": {nodes{node(1, macA, uuidA)}, machines{machine(50, macA, uuidA)}, match.Options{},
			[]string{"cp1 at 192.0.2.50 by MAC, UUID"}},
		"MAC and UUID go against each other": {nodes{node(1, macA, uuidA)}, machines{machine(50, macA, uuidB)},
			match.Options{}, []string{"ambiguous: 192.0.2.50 is cp1's machine by MAC " + macA +
				", but the machine's UUID is " + uuidB + ", declared is " + uuidA}},
		"the MAC says cp1, the UUID cp2": {nodes{node(1, macA), node(2, uuidB)}, machines{machine(50, macA, uuidB)},
			match.Options{}, []string{"ambiguous: 192.0.2.50 is cp1's machine by MAC " + macA +
				"; 192.0.2.50 is cp2's machine by UUID " + uuidB}},
		"two machines fit one node": {nodes{node(1, macA)}, machines{machine(50, macA, uuidA), machine(51, macA, uuidB)},
			match.Options{}, []string{"ambiguous: 192.0.2.50 is cp1's machine by MAC " + macA +
				"; 192.0.2.51 is cp1's machine by MAC " + macA, "duplicate: 2 machines have MAC " + macA}},
		"by declared address": {nodes{node(1)}, machines{machine(11, macA)}, match.Options{},
			[]string{"cp1 at 192.0.2.11 by address"}},
		"another machine at the declared address": {nodes{node(1, macA)}, machines{machine(11, macB)}, match.Options{},
			[]string{"ambiguous: 192.0.2.11 is cp1's machine by its declared address 192.0.2.11, but the machine has " + macB +
				", declared is " + macA}},
		"the declared machine elsewhere goes before its address": {nodes{node(1, macA)},
			machines{machine(11, macB), machine(50, macA)}, match.Options{},
			[]string{"cp1 at 192.0.2.50 by MAC", "extra: 192.0.2.11"}},
		"a machine that tells nothing": {nodes{node(1, macA)}, machines{machine(11)}, match.Options{},
			[]string{"ambiguous: 192.0.2.11 is cp1's machine by its declared address 192.0.2.11, but it tells neither its MAC " +
				"addresses nor its UUID, which would have to be those declared"}},
		"by Proxmox": {nodes{node(1), node(2)}, machines{machine(50, macB), machine(51, macA, uuidB)},
			match.Options{VMs: []proxmox.VM{vm("CP1", macA), vm("cp2", macB, macC), vm("other", macC)}},
			[]string{"cp1 at 192.0.2.51 by Proxmox", "cp2 at 192.0.2.50 by Proxmox"}},
		"by Proxmox' UUID": {nodes{node(1)}, machines{machine(50, macB, uuidA)},
			match.Options{VMs: []proxmox.VM{vm("cp1", uuidA)}}, []string{"cp1 at 192.0.2.50 by Proxmox"}},
		"two VMs of one name": {nodes{node(1)}, machines{machine(50, macA), machine(51, macB)},
			match.Options{VMs: []proxmox.VM{vm("cp1", macA), vm("cp1", macB)}},
			[]string{"ambiguous: 192.0.2.50 is cp1's machine by MAC " + macA + " of VM cp1 (101 on pve1); 192.0.2.51 is " +
				"cp1's machine by MAC " + macB + " of VM cp1 (101 on pve1)"}},
		"the files and Proxmox go against each other": {nodes{node(1, macA), node(2)}, machines{machine(50, macA)},
			match.Options{VMs: []proxmox.VM{vm("cp2", macA)}},
			[]string{"ambiguous: 192.0.2.50 is cp1's machine by MAC " + macA + "; 192.0.2.50 is cp2's machine by MAC " + macA +
				" of VM cp2 (101 on pve1)"}},
		"missing and extra": {nodes{node(1, macA), node(2, macB)}, machines{machine(50, macB), machine(51, macC)},
			match.Options{}, []string{"cp2 at 192.0.2.50 by MAC", "missing: cp1", "extra: 192.0.2.51"}},
		"configured by us, by its host name": {nodes{node(1, macA)},
			machines{configured(talos.Ours, "cp1", machine(50))}, match.Options{},
			[]string{"cp1 at 192.0.2.50 by host name"}},
		"configured by us as another node": {nodes{node(1, macA), node(2, macB)},
			machines{configured(talos.Ours, "cp2", machine(50, macA))}, match.Options{},
			[]string{"ambiguous: 192.0.2.50 is cp1's machine by MAC " + macA +
				"; 192.0.2.50 is cp2's machine by host name cp2"}},
		"the machine that was replaced is back": {nodes{node(1, macA)},
			machines{machine(11, macA), configured(talos.Ours, "cp1", machine(50, macB))}, match.Options{},
			[]string{"ambiguous: 192.0.2.11 is cp1's machine by MAC " + macA +
				"; 192.0.2.50 is cp1's machine by host name cp1", "former: 192.0.2.50"}},
		"the machine that was replaced is back alone": {nodes{node(1, macA)},
			machines{configured(talos.Ours, "cp1", machine(50, macB))}, match.Options{},
			[]string{"ambiguous: 192.0.2.50 is cp1's machine by host name cp1, but the machine has " + macB +
				", declared is " + macA, "former: 192.0.2.50"}},
		"a host name tells nothing in maintenance": {nodes{node(1)},
			machines{configured(talos.Maintenance, "cp1", machine(50, macA))}, match.Options{},
			[]string{"missing: cp1", "extra: 192.0.2.50"}},
		"another cluster's at the declared address": {nodes{node(1)},
			machines{configured(talos.Foreign, "cp1", machine(11))}, match.Options{},
			[]string{"ambiguous: 192.0.2.11 is cp1's machine by its declared address 192.0.2.11, but it is configured, as a " +
				"node of another cluster"}},
		"something that says nothing at the declared address": {nodes{node(1, macA)},
			machines{configured(talos.Unreachable, "", machine(11))}, match.Options{},
			[]string{"missing: cp1", "extra: 192.0.2.11"}},
		"something else at the declared address": {nodes{node(1, macA)},
			machines{configured(talos.NotTalos, "", machine(11))}, match.Options{},
			[]string{"ambiguous: 192.0.2.11 is cp1's machine by its declared address 192.0.2.11, but what answers there is no " +
				"Talos node"}},
		"another cluster's elsewhere": {nodes{node(1, macA)},
			machines{configured(talos.Foreign, "cp1", machine(50)), machine(51, macA)}, match.Options{},
			[]string{"cp1 at 192.0.2.51 by MAC", "extra: 192.0.2.50"}},
		"configured, and nobody can tell by whom": {nodes{node(1)},
			machines{configured(talos.UnknownCA, "cp1", machine(11))}, match.Options{},
			[]string{"ambiguous: 192.0.2.11 is cp1's machine by its declared address 192.0.2.11, but it is configured, and " +
				"without a talosconfig nobody can tell for which cluster"}},
		"left over, and not asked to count": {nodes{node(1), node(2)}, machines{machine(50, macA), machine(51, macB)},
			match.Options{}, []string{"missing: cp1", "missing: cp2", "extra: 192.0.2.50", "extra: 192.0.2.51"}},
		"by count, numerically": {nodes{node(10), node(2), node(1, macC)},
			machines{machine(100, macA), machine(99, macB), machine(51, macC)}, match.Options{ByCount: true},
			[]string{"cp1 at 192.0.2.51 by MAC", "cp2 at 192.0.2.99 by count", "cp10 at 192.0.2.100 by count"}},
		"by count, other numbers": {nodes{node(1)}, machines{machine(50, macA), machine(51, macB)},
			match.Options{ByCount: true}, []string{"missing: cp1", "extra: 192.0.2.50", "extra: 192.0.2.51",
				"nothing is matched by count: nodes without a machine: 1, machines in maintenance without a node: 2"}},
		"by count, a declared machine is missing": {nodes{node(1, macC), node(2)},
			machines{machine(50, macA), machine(51, macB)}, match.Options{ByCount: true},
			[]string{"missing: cp1", "missing: cp2", "extra: 192.0.2.50", "extra: 192.0.2.51",
				"cp1 declares its machine, and none that answers is it: nothing is matched by count"}},
		"by count, beside something ambiguous": {nodes{node(1, macA), node(2)},
			machines{machine(50, macA), machine(51, macA), machine(52, macB)}, match.Options{ByCount: true},
			[]string{"ambiguous: 192.0.2.50 is cp1's machine by MAC " + macA + "; 192.0.2.51 is cp1's machine by MAC " + macA,
				"missing: cp2", "extra: 192.0.2.52", "duplicate: 2 machines have MAC " + macA,
				"nothing is matched by count while something is ambiguous"}},
		"by count, configured ones do not count": {nodes{node(1)},
			machines{configured(talos.Foreign, "", machine(49)), configured(talos.Ours, "old", machine(48)), machine(50, macA)},
			match.Options{ByCount: true},
			[]string{"cp1 at 192.0.2.50 by count", "extra: 192.0.2.48", "extra: 192.0.2.49"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			require.Equal(t, test.want, lines(match.Match(test.nodes, test.machines, test.options)))
		})
	}
}

func TestADeclaredNameStandsForItsAddresses(t *testing.T) {
	t.Parallel()

	named := node(1)
	named.Address = "cp1.example.net"

	result := match.Match([]*inventory.Node{named}, []discover.Machine{machine(50, macA)}, match.Options{
		Resolve: func(string) []netip.Addr { return []netip.Addr{netip.MustParseAddr("192.0.2.50")} }})
	require.Equal(t, []string{"cp1 at 192.0.2.50 by address"}, lines(result))
}

// drawn are nodes and machines with few different MACs, UUIDs and addresses, so that they get into each other's way.
func drawn(random *rand.Rand) ([]*inventory.Node, []discover.Machine, match.Options) {
	told := func() []string {
		var texts []string
		for _, text := range []string{macA, macB, macC, uuidA, uuidB, uuidC} {
			if random.IntN(5) == 0 {
				texts = append(texts, text)
			}
		}

		return texts
	}

	var (
		nodes    []*inventory.Node
		machines []discover.Machine
	)

	for i := range random.IntN(5) {
		nodes = append(nodes, node(i+1, told()...))
	}

	for i := range random.IntN(6) {
		made := machine(11+2*i-random.IntN(2), told()...)
		made.State = []talos.State{talos.Maintenance, talos.Maintenance, talos.Ours, talos.Foreign, talos.UnknownCA,
			talos.NotTalos}[random.IntN(6)]
		made.Hostname = []string{"", "cp1", "cp2"}[random.IntN(3)]
		machines = append(machines, made)
	}

	return nodes, machines, match.Options{ByCount: random.IntN(2) == 0,
		VMs: []proxmox.VM{vm("cp1", told()...), vm("cp2", told()...)}}
}

// requireSound holds what is true of every result.
func requireSound(t *testing.T, seed uint64) {
	t.Helper()

	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // for the test's cases alone
	nodes, machines, options := drawn(random)
	result := match.Match(nodes, machines, options)

	seenNodes, seenMachines := map[string]int{}, map[string]int{}

	for _, pair := range result.Pairs {
		seenNodes[pair.Node.Name]++
		seenMachines[pair.Machine.Fingerprint]++

		require.Contains(t, []talos.State{talos.Maintenance, talos.Ours}, pair.Machine.State, "seed %d", seed)
		require.Contains(t, pair.Machine.Addresses, pair.Address)

		if pair.Machine.State == talos.Maintenance {
			requireDeclared(t, seed, nodes, pair)
		}
	}

	for _, conflict := range result.Ambiguous {
		require.NotEmpty(t, conflict.Why)

		for _, node := range conflict.Nodes {
			seenNodes[node.Name]++
		}

		for _, machine := range conflict.Machines {
			seenMachines[machine.Fingerprint]++
		}
	}

	for _, node := range result.Missing {
		seenNodes[node.Name]++
	}

	for _, machine := range result.Extra {
		seenMachines[machine.Fingerprint]++
	}

	require.Len(t, seenNodes, len(nodes), "seed %d", seed)
	require.Len(t, seenMachines, len(machines), "seed %d", seed)

	for name, times := range seenNodes {
		require.Equal(t, 1, times, "%s, seed %d", name, seed)
	}

	for name, times := range seenMachines {
		require.Equal(t, 1, times, "machine %s, seed %d", name, seed)
	}

	random.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	random.Shuffle(len(machines), func(i, j int) { machines[i], machines[j] = machines[j], machines[i] })
	slices.Reverse(options.VMs)
	require.Equal(t, lines(result), lines(match.Match(nodes, machines, options)), "in another order, seed %d", seed)
}

// requireDeclared holds that a machine that will get a config is none that is declared otherwise, or as another node's.
func requireDeclared(t *testing.T, seed uint64, nodes []*inventory.Node, pair match.Pair) {
	t.Helper()

	shares := func(node *inventory.Node) bool {
		return slices.ContainsFunc(node.MACs, func(mac string) bool { return slices.Contains(pair.Machine.MACs, mac) })
	}

	if len(pair.Node.MACs) > 0 {
		require.True(t, shares(pair.Node), "%s, seed %d", pair.Node.Name, seed)
	}

	if pair.Node.UUID != "" {
		require.Equal(t, pair.Node.UUID, pair.Machine.UUID, "%s, seed %d", pair.Node.Name, seed)
	}

	for _, other := range nodes {
		if other != pair.Node {
			require.False(t, shares(other), "%s has %s's MAC, seed %d", pair.Node.Name, other.Name, seed)
			require.False(t, other.UUID != "" && other.UUID == pair.Machine.UUID, "%s has %s's UUID, seed %d", pair.Node.Name,
				other.Name, seed)
		}
	}
}

func TestEachNodeAndEachMachineIsInOneResultWhateverTheOrder(t *testing.T) {
	t.Parallel()

	for seed := range uint64(20_000) {
		requireSound(t, seed)
	}
}

// FuzzMatch draws nodes and machines from a seed.
func FuzzMatch(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(requireSound)
}
