package steps

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/wait"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// interrupted is the problem of a step that a signal ended.
func interrupted(ctx context.Context, step string) *diagnosis.Problem {
	return diagnosis.NewProblem(diagnosis.Interrupted, "stopped before it was done",
		"run the same command again: it looks at the nodes first and continues where it stopped").
		In(step).From(context.Cause(ctx))
}

// work is one step of a run at work.
type work struct {
	*Run
	step Step
	// started is the wall's time: what people are shown is how long they waited, also in a rehearsal.
	started time.Time
}

func begin(run *Run, step Step) *work { return &work{run, step, time.Now()} }

// problem is the step's failure for one node, with the step's exit code.
func (w *work) problem(seen observe.Observation, id diagnosis.ID, cause, next string) *diagnosis.Problem {
	failed := w.about(seen, diagnosis.NewProblem(id, cause, next))
	failed.Exit = w.step.Exit()

	return failed
}

// about says of which node a problem is. The exit code stays the catalogue's.
func (w *work) about(seen observe.Observation, problem *diagnosis.Problem) *diagnosis.Problem {
	problem.Step, problem.Err = w.step.Name(), cmp.Or(seen.Err, seen.ReadErr)
	problem.Node, problem.Address = seen.Node.Name, seen.Address

	return problem
}

// clusterProblem is the step's failure for the cluster as a whole, with the step's exit code.
func (w *work) clusterProblem(id diagnosis.ID, cause, next string) *diagnosis.Problem {
	failed := diagnosis.NewProblem(id, cause, next).In(w.step.Name())
	failed.Exit = w.step.Exit()

	return failed
}

// wouldChange is the outcome of a dry run that found something to do.
func (w *work) wouldChange(what, next string) *diagnosis.Problem {
	planned := diagnosis.NewProblem(diagnosis.WouldChange, "dry run: "+what, next).In(w.step.Name())
	planned.Severity = diagnosis.Warning

	return planned
}

// unexpected is the problem for what is a fault of this program.
func (w *work) unexpected(node *inventory.Node, err error) *diagnosis.Problem {
	return w.about(observe.Unobserved(node, err), diagnosis.NewProblem(diagnosis.Unexpected,
		"unexpected error: "+err.Error(), "run the same command again with LOG_LEVEL=debug, and report it"))
}

// interrupted is the problem of a node whose step a signal ended.
func (w *work) interrupted(ctx context.Context, node *inventory.Node) *diagnosis.Problem {
	ended := interrupted(ctx, w.step.Name())
	ended.Node = node.Name

	return ended
}

// ofStep is an error as this step's; that of something which a signal ended is the signal's.
func (w *work) ofStep(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return interrupted(ctx, w.step.Name())
	}

	if problem, ok := diagnosis.AsProblem(err); ok {
		problem.Step = w.step.Name()
	}

	return err
}

// shown is a path as people want to read it.
func (w *work) shown(path string) string { return w.workspace.Files.Shown(path) }

// done records the result of a step that concerns the cluster as a whole.
func (w *work) done(status report.Status, detail string) error {
	w.record(report.Result{Status: status, Detail: detail})
	return nil
}

// failed records that such a step failed, and why; and of which node, if it is about one.
func (w *work) failed(ctx context.Context, err error) error {
	return w.endedAs(ctx, err, report.Failed)
}

func (w *work) endedAs(ctx context.Context, err error, status report.Status) error {
	err = w.ofStep(ctx, err)
	result := report.Result{Status: status, Err: err}

	if problem, ok := diagnosis.AsProblem(err); ok {
		result.Node, result.Address = problem.Node, problem.Address
	}

	w.record(result)

	return err
}

// record is for a result of this step, which took as long as the step so far.
func (w *work) record(result report.Result) {
	result.Step, result.Duration = w.step.Name(), time.Since(w.started)
	w.Report.Result(result)
}

// finish records how the step went for a node since it began with that.
func (w *work) finish(of outcome, started time.Time) outcome {
	w.Report.Result(report.Result{
		Node: of.node.Name, Address: of.address, Step: w.step.Name(), Status: of.status, Attempts: of.tries,
		Duration: time.Since(started), Detail: of.detail, Err: asError(of.problem),
	})

	return of
}

// broken is the outcome for a node whose handling broke off for a reason that lies in this program.
func (w *work) broken(node *inventory.Node, err error) outcome {
	return w.finish(outcome{node: node, status: report.Failed, problem: w.unexpected(node, err)}, time.Now())
}

// wouldWrite records what a dry run found that this step would write.
func (w *work) wouldWrite(file, detail string) error {
	w.record(report.Result{Status: report.Planned, Detail: detail})
	return w.wouldChange(file+" would be written", "the same command without -dryRun")
}

// conclude joins the errors of outcomes, in the inventory's order. Nodes that failed are left out of later steps.
func (w *work) conclude(outcomes []outcome) error {
	var problems []*diagnosis.Problem
	for _, node := range w.Cluster.Nodes {
		for _, result := range outcomes {
			if result.node == node && result.failed() {
				problems = append(problems, result.problem)
				w.observer.Note(node, func(facts *observe.Facts) { facts.Failed = result.problem })
			}
		}
	}

	return joined(problems)
}

// waiter waits on the step's behalf.
func (w *work) waiter() *wait.Waiter {
	return &wait.Waiter{Step: w.step.Name(), Clock: w.Clock, Report: w.Report, NoWait: w.Settings.NoWait,
		Interrupted: func(ctx context.Context) *diagnosis.Problem { return interrupted(ctx, w.step.Name()) }}
}

// command is how to type the step for one node.
func (w *work) command(node *inventory.Node) string { return command(w.step.Name(), node) }

// again is the command for the step and the nodes that the run was asked for.
func (w *work) again() string {
	named := strings.Join(w.Settings.Node, ",")

	switch again := w.command(nil); {
	case named == "":
		return again
	case w.step.Name() == replaceName: // it names its node without a flag
		return again + " " + named
	default:
		return again + " -node=" + named
	}
}

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
			fmt.Sprintf("it is configured already, and without a talosconfig (%s) there is no telling for which cluster",
				w.Settings.Talosconfig),
			"mage config:generate, or set TALOSCONFIG")
		unknown.Exit = diagnosis.ExitBadInput
		return unknown
	default:
		return w.problem(seen, diagnosis.NotTalos,
			"something other than Talos answers there: "+talos.Explain(seen.Err), "check the address: mage status")
	}
}

// swapped is for a machine that runs another node's config.
func (w *work) swapped(seen observe.Observation) *diagnosis.Problem {
	return w.about(seen, diagnosis.NewProblem(diagnosis.NodesSwapped,
		fmt.Sprintf("the machine at %s's address runs the config of %s", seen.Node.Name, seen.Owner),
		fmt.Sprintf("compare the addresses and MACs of %s and %s in the talconfig; then %s and apply again",
			seen.Node.Name, seen.Owner, command("reset", seen.Node))))
}

// unsent is for a machine that runs a config which this run did not send it.
func (w *work) unsent(seen observe.Observation) *diagnosis.Problem {
	return w.about(seen, diagnosis.NewProblem(diagnosis.ConfigUnsent,
		"it runs a config that this run did not send: somebody else is configuring the same machine",
		command("status", nil)))
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

	switch {
	case node == nil:
		return "mage " + step
	case step == replaceName: // it names its node without a flag
		return "mage " + step + " " + node.Name
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

// unwritable is the problem of a file that could not be written; nil if it could.
func unwritable(path string, err error) error {
	if err == nil {
		return nil
	}

	return diagnosis.Unwritable(path, err)
}
