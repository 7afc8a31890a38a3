package steps

import (
	"fmt"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// strangerProblem is for a node that is not ours to change: another machine, another cluster's node, no Talos, or a
// node that can't be told without a talosconfig.
func (r *Run) strangerProblem(step string, seen observe.Observation) *diagnosis.Problem {
	switch {
	case seen.Wrong != nil:
		return r.problem(step, seen, seen.Wrong.ID, seen.Wrong.Cause, seen.Wrong.Next)
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
