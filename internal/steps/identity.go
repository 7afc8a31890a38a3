package steps

import (
	"context"
	"fmt"

	preflight "github.com/talos-mage/talos-mage/internal/check/nodes"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// wrongMachine reads, on this very connection, the hardware addresses and the UUID of the machine, and compares them
// with the declared ones. Nil means that it is the declared machine, or that nothing is declared.
func (r *Run) wrongMachine(ctx context.Context, node *inventory.Node, conn *talos.Conn) (*diagnosis.Finding, error) {
	links, err := conn.Links(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the machine's links: %w", err)
	}

	system, err := conn.SystemInformation(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the machine's UUID: %w", err)
	}

	finding := preflight.Identity(r.Cluster, node, links, system)
	if finding == nil {
		// Another machine's boots are not this node's.
		r.memory.of(node).remember(func(facts *nodeFacts) { facts.boot = system.Read })
	}

	return finding, nil
}

// identify is wrongMachine for a look. It asks once for each certificate: a machine makes itself a new one whenever it
// boots.
func (s *sight) identify(ctx context.Context, run *Run, conn *talos.Conn) {
	memory := run.memory.of(s.node)
	if memory.recall().identified == conn.Fingerprint() {
		return
	}

	finding, err := run.wrongMachine(ctx, s.node, conn)

	switch {
	case err != nil:
		s.readErr = firstError(s.readErr, err)
	case finding != nil:
		s.wrong = finding
	default:
		memory.remember(func(facts *nodeFacts) { facts.identified = conn.Fingerprint() })
	}
}

// strangerProblem is for a node that is not ours to change: another machine, another cluster's node, no Talos, or a
// node that can't be told without a talosconfig.
func (r *Run) strangerProblem(step string, seen sight) *diagnosis.Problem {
	switch {
	case seen.wrong != nil:
		return r.problem(step, seen, seen.wrong.ID, seen.wrong.Cause, seen.wrong.Next)
	case seen.State == talos.Foreign:
		return r.problem(step, seen, diagnosis.ForeignNode,
			"it is configured already, with another cluster's certificate authority",
			"check the address, and that talosconfig belongs to this cluster; to take the machine over, reset it with its "+
				"own cluster's talosconfig")
	case seen.State == talos.UnknownCA:
		problem := r.problem(step, seen, diagnosis.UnknownNodeCA,
			fmt.Sprintf("it is configured already, and without a talosconfig (%s) nobody can tell for which cluster",
				r.Settings.Talosconfig),
			"task talos:generate-config, or set TALOSCONFIG")
		problem.Exit = diagnosis.ExitBadInput

		return problem
	default:
		return r.problem(step, seen, diagnosis.NotTalos,
			"something else than Talos answers there: "+talos.Explain(seen.Err), "check the address: mage status")
	}
}
