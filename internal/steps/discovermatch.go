package steps

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/check/proxmox"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/discover"
	"github.com/talos-mage/talos-mage/internal/discover/match"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// matchOptions are what there is to match machines by besides the files.
func (r *Run) matchOptions(ctx context.Context) (match.Options, error) {
	vms, err := r.virtualMachines(ctx)

	return match.Options{VMs: vms, ByCount: r.Settings.MatchByCount,
		Resolve: func(name string) []netip.Addr { return resolved(ctx, name) }}, err
}

// virtualMachines are those of Proxmox that are called like nodes; none without its API. What can't be read of it is
// said, and missing.
func (r *Run) virtualMachines(ctx context.Context) ([]proxmox.VM, error) {
	if len(r.Settings.ProxmoxEndpoints) == 0 {
		return nil, nil
	}

	apis, err := proxmox.APIs(r.Settings.ProxmoxEndpoints, r.Settings.ProxmoxTokens, r.Settings.ProxmoxInsecure)
	if err != nil {
		return nil, diagnosis.NewProblem(diagnosis.BadSetting, err.Error(),
			"set PROXMOX_VE_API_TOKEN, or leave PROXMOX_VE_ENDPOINT out").From(err)
	}

	vms, err := proxmox.VMs(ctx, apis, func(name string) bool {
		return slices.ContainsFunc(r.Cluster.Nodes, func(node *inventory.Node) bool { return match.CalledLike(name, node) })
	})
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			r.Log.Warn().Msg(line + ": nothing is matched by what it would have told")
		}
	}

	return vms, nil
}

// unmatched are the nodes of the run without a machine, and those whose machine can't be told.
func (d Discovery) unmatched(run *Run) error {
	var problems []error

	for _, conflict := range d.Matched.Ambiguous {
		if !slices.ContainsFunc(conflict.Nodes, run.selected) {
			continue
		}

		problem := diagnosis.NewProblem(diagnosis.MachineAmbiguous, conflict.Why, untilTold(conflict))
		problem.Node, problem.Address = conflict.Nodes[0].Name, conflict.Machines[0].Address().String()
		problems = append(problems, problem.In(discoverName))
	}

	for _, node := range filtered(d.Matched.Missing, run.selected) {
		problem := diagnosis.NewProblem(diagnosis.MachineMissing, "none of the machines that answer is its machine"+
			declaredAs(node), d.untilFound(node))
		problem.Node = node.Name
		problems = append(problems, problem.In(discoverName))
	}

	return diagnosis.Join(problems...)
}

// untilTold is how machines come to be told apart. One that was replaced must not come back, whatever is declared.
func untilTold(conflict match.Conflict) string {
	if former := firstAddresses(conflict.Former); len(former) > 0 {
		return fmt.Sprintf("switch the machine at %s off for good, or wipe it: it is not the one that is declared for %s; "+
			"then mage discover", text.List(former), text.List(names(conflict.Nodes)))
	}

	return "correct what is declared for " + text.List(names(conflict.Nodes)) +
		", or switch the other machine off; then mage discover"
}

// declaredAs is by what a node's machine would be known.
func declaredAs(node *inventory.Node) string {
	known := slices.Clone(node.MACs)
	if node.UUID != "" {
		known = append(known, node.UUID)
	}

	if len(known) == 0 {
		return ": its address, " + node.Address + ", does not answer, and nothing else of it is declared"
	}

	return " (" + strings.Join(known, ", ") + ")"
}

// untilFound is how a node's machine comes to be found.
func (d Discovery) untilFound(node *inventory.Node) string {
	if !node.DeclaresMachine() && len(d.Proposals) > 0 {
		return "add what is proposed for its machine to the files; then mage discover"
	}

	return "boot its machine from a Talos image, or name its network with -cidr; then mage discover"
}

// pairOf is the node that a machine is matched to.
func (d Discovery) pairOf(machine discover.Machine) (match.Pair, bool) {
	at := slices.IndexFunc(d.Matched.Pairs, func(pair match.Pair) bool {
		return pair.Machine.Address() == machine.Address()
	})
	if at < 0 {
		return match.Pair{}, false
	}

	return d.Matched.Pairs[at], true
}

// Remarks are what the table does not show: what is in no pair, and what a pair rests on; and the proposals.
func (d Discovery) Remarks() string {
	var lines []string

	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }

	for _, pair := range d.Matched.Pairs {
		switch pair.By {
		case match.ByAddress:
			say("%s: only its address says that %s is its machine: any other would be taken there", pair.Node.Name,
				pair.Address)
		case match.ByCount:
			say("%s: only the order says that %s is its machine", pair.Node.Name, pair.Address)
		}
	}

	for _, conflict := range d.Matched.Ambiguous {
		say("ambiguous: %s", conflict.Why)
	}

	for _, node := range d.Matched.Missing {
		say("missing: %s%s", node.Name, declaredAs(node))
	}

	if len(d.Matched.Pairs)+len(d.Matched.Ambiguous)+len(d.Matched.Missing) > 0 {
		for _, machine := range d.Matched.Extra {
			say("extra: %s is no declared node's: %s", machine.Address(), stateOf(machine))
		}
	}

	for _, duplicate := range d.Matched.Duplicates {
		say("duplicate: %s have %s", text.List(firstAddresses(duplicate.Machines)), duplicate.What)
	}

	if d.Matched.Uncounted != "" {
		say("%s", d.Matched.Uncounted)
	}

	if len(d.Proposals) > 0 {
		say("\nTo have these machines known by themselves, add to the files:")
	}

	for _, proposal := range d.Proposals {
		say("\n%s", strings.TrimSuffix(proposal.YAML, "\n"))
	}

	if len(lines) == 0 {
		return ""
	}

	return strings.Join(lines, "\n") + "\n"
}

func firstAddresses(machines []discover.Machine) []string {
	var list []string
	for _, machine := range machines {
		list = append(list, machine.Address().String())
	}

	return list
}

// matchedNext is how to go on with machines that are matched. Those that wait at other addresses than the declared ones
// are found again by what is kept of them.
func (d Discovery) matchedNext(kept bool) string {
	var moved, waiting bool

	for _, pair := range d.Matched.Pairs {
		waiting = waiting || pair.Machine.State == talos.Maintenance
		moved = moved || pair.Address.String() != pair.Node.Address
	}

	switch {
	case !waiting:
		return "mage status"
	case moved && !kept:
		return "the same command with -save; then mage preflight"
	default:
		return "mage preflight"
	}
}

// matchDocument is how machines are matched, in JSON.
type matchDocument struct {
	Missing    []string            `json:"missing"`
	Extra      []string            `json:"extra"`
	Ambiguous  []conflictDocument  `json:"ambiguous"`
	Duplicates []duplicateDocument `json:"duplicates"`
	Uncounted  string              `json:"uncounted,omitempty"`
	Proposals  []proposalDocument  `json:"proposals"`
}

type conflictDocument struct {
	Nodes     []string `json:"nodes"`
	Addresses []string `json:"addresses"`
	Why       string   `json:"why"`
}

type duplicateDocument struct {
	What      string   `json:"what"`
	Addresses []string `json:"addresses"`
}

type proposalDocument struct {
	Node    string `json:"node,omitempty"`
	Address string `json:"address"`
	YAML    string `json:"yaml"`
}

func (d Discovery) matchDocument() matchDocument {
	document := matchDocument{Missing: names(d.Matched.Missing), Extra: orNone(firstAddresses(d.Matched.Extra)),
		Ambiguous: []conflictDocument{}, Duplicates: []duplicateDocument{}, Uncounted: d.Matched.Uncounted,
		Proposals: []proposalDocument{}}

	for _, conflict := range d.Matched.Ambiguous {
		document.Ambiguous = append(document.Ambiguous,
			conflictDocument{names(conflict.Nodes), firstAddresses(conflict.Machines), conflict.Why})
	}

	for _, duplicate := range d.Matched.Duplicates {
		document.Duplicates = append(document.Duplicates,
			duplicateDocument{duplicate.What, firstAddresses(duplicate.Machines)})
	}

	for _, proposal := range d.Proposals {
		shown := proposalDocument{Address: proposal.Machine.Address().String(), YAML: proposal.YAML}
		if proposal.Node != nil {
			shown.Node = proposal.Node.Name
		}

		document.Proposals = append(document.Proposals, shown)
	}

	return document
}
