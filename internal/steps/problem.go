package steps

import (
	"cmp"
	"context"
	"fmt"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/wait"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// problem is a failure in a step for a reason of the catalogue, with the code that the run ends with.
func problem(step string, exit diagnosis.ExitCode, id diagnosis.ID, cause, next string) *diagnosis.Problem {
	return &diagnosis.Problem{Step: step, Finding: diagnosis.Finding{
		ID: id, Severity: diagnosis.Failure, Cause: cause, Next: next, Exit: exit,
	}}
}

// interrupted is the problem of a step that a signal ended.
func interrupted(ctx context.Context, step string) *diagnosis.Problem {
	ended := problem(step, diagnosis.ExitInterrupt, diagnosis.Interrupted, "stopped before it was done",
		"run the same command again: it looks at the nodes first and goes on where it stopped")
	ended.Err = context.Cause(ctx)
	return ended
}

// wouldChange is the outcome of a dry run that found something to do.
func wouldChange(step, what, next string) *diagnosis.Problem {
	planned := problem(step, diagnosis.ExitDryRun, diagnosis.WouldChange, "dry run: "+what, next)
	planned.Severity = diagnosis.Warning
	return planned
}

// work is one step of a run at work.
type work struct {
	*Run
	step Step
}

// problem is the step's failure for one node; the code is the step's.
func (w *work) problem(seen observe.Observation, id diagnosis.ID, cause, next string) *diagnosis.Problem {
	failed := w.clusterProblem(id, cause, next)
	failed.Node, failed.Address, failed.Err = seen.Node.Name, seen.Address, cmp.Or(seen.Err, seen.ReadErr)
	return failed
}

// clusterProblem is the step's failure for the cluster as a whole.
func (w *work) clusterProblem(id diagnosis.ID, cause, next string) *diagnosis.Problem {
	return problem(w.step.Name(), w.step.Exit(), id, cause, next)
}

// unexpected is the problem for what is a fault of this program.
func (w *work) unexpected(node *inventory.Node, err error) *diagnosis.Problem {
	failed := w.problem(observe.Unobserved(node, err), diagnosis.Unexpected, "unexpected error: "+err.Error(),
		"run the same command again with LOG_LEVEL=debug, and report it")
	failed.Exit = diagnosis.ExitUnexpected
	return failed
}

// interrupted is the problem of a node whose step a signal ended.
func (w *work) interrupted(ctx context.Context, node *inventory.Node) *diagnosis.Problem {
	ended := interrupted(ctx, w.step.Name())
	ended.Node = node.Name
	return ended
}

// waiter waits on the step's behalf.
func (w *work) waiter() *wait.Waiter {
	return &wait.Waiter{Step: w.step.Name(), Clock: w.Clock, Report: w.Report, NoWait: w.Settings.NoWait,
		Interrupted: func(ctx context.Context) *diagnosis.Problem { return interrupted(ctx, w.step.Name()) }}
}

// command is how to type the step for one node.
func (w *work) command(node *inventory.Node) string { return command(w.step.Name(), node) }

// readFailure is for a node that no waiting makes readable.
func (w *work) readFailure(seen observe.Observation) *diagnosis.Problem {
	id, remedy, _ := diagnosed(seen.ReadErr)
	return w.problem(seen, id, talos.Explain(seen.ReadErr), remedy)
}

// notOurs is for a node that is not ours to change: another machine, another cluster's node, no Talos, or a node that
// can't be told without a talosconfig.
func (w *work) notOurs(seen observe.Observation) *diagnosis.Problem {
	switch {
	case seen.Wrong != nil:
		return w.problem(seen, seen.Wrong.ID, seen.Wrong.Cause, seen.Wrong.Next)
	case seen.State == talos.Foreign:
		return w.problem(seen, diagnosis.ForeignNode,
			"it is configured already, with another cluster's certificate authority",
			"check the address, and that talosconfig belongs to this cluster; to take the machine over, reset it with its "+
				"own cluster's talosconfig")
	case seen.State == talos.UnknownCA:
		unknown := w.problem(seen, diagnosis.UnknownNodeCA,
			fmt.Sprintf("it is configured already, and without a talosconfig (%s) nobody can tell for which cluster",
				w.Settings.Talosconfig),
			"task talos:generate-config, or set TALOSCONFIG")
		unknown.Exit = diagnosis.ExitBadInput
		return unknown
	default:
		return w.problem(seen, diagnosis.NotTalos,
			"something else than Talos answers there: "+talos.Explain(seen.Err), "check the address: mage status")
	}
}

// swapped is for a machine that runs another node's config.
func (w *work) swapped(seen observe.Observation) *diagnosis.Problem {
	failed := w.problem(seen, diagnosis.NodesSwapped,
		fmt.Sprintf("the machine at %s's address runs the config of %s", seen.Node.Name, seen.Owner),
		fmt.Sprintf("compare the addresses and MACs of %s and %s in the talconfig; then reset the machine and apply again",
			seen.Node.Name, seen.Owner))
	failed.Exit = diagnosis.ExitVerify
	return failed
}

// unsent is for a machine that runs a config which this run did not send it.
func (w *work) unsent(seen observe.Observation) *diagnosis.Problem {
	failed := w.problem(seen, diagnosis.ConfigUnsent,
		"it runs a config that this run did not send: somebody else configures the same machine", command("status", nil))
	failed.Exit = diagnosis.ExitVerify
	return failed
}

// diagnosed is the kind of trouble that an error tells by itself, such as a proxy that leads nowhere or a wrong clock,
// and what to do about it.
func diagnosed(err error) (id diagnosis.ID, remedy string, known bool) {
	if id, known = talos.Diagnose(err); !known {
		return "", "", false
	}

	entry, _ := diagnosis.Lookup(id)
	return id, entry.Remedy, true
}

// command is what to type for a step, for one node or for all.
func command(step string, node *inventory.Node) string {
	// To people the second half of verify is verify too.
	if step == verifyWorkersName {
		step = verifyName
	}

	if node == nil {
		return "mage " + step
	}

	return fmt.Sprintf("mage %s -node=%s", step, node.Name)
}

// talosctl is a talosctl command for one node, asked directly.
func talosctl(node *inventory.Node, command string) string {
	return fmt.Sprintf("talosctl -n %s -e %s %s", node.Address, node.Address, command)
}

// asError is a problem as an error: nil for none.
func asError(problem *diagnosis.Problem) error {
	if problem == nil {
		return nil
	}

	return problem
}
