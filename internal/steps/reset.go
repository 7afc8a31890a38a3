package steps

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/fanout"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/steps/wait"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// Reset takes nodes back to maintenance mode: it wipes their config and all that a life in the cluster left on them.
type Reset struct{}

// Name is the step's name.
func (Reset) Name() string { return "reset" }

// Exit is the code for a node that was not reset.
func (Reset) Exit() diagnosis.ExitCode { return diagnosis.ExitApply }

// Mutates marks the step as one that needs the cluster's lock.
func (Reset) Mutates() {}

// Nodes are those that the command line names.
func (Reset) Nodes(run *Run) []*inventory.Node { return run.Nodes() }

// Run looks at everything first, has a person agree, and then resets workers, several at once, and after them the
// control planes, one by one. It stops at the first node that does not come back.
func (s Reset) Run(ctx context.Context, run *Run) error {
	resetter := &resetter{work: begin(run, s)}

	planned, err := resetter.plan(ctx)
	if err != nil {
		return resetter.endedAs(ctx, err, report.Refused)
	}

	if err := resetter.weigh(ctx, planned); err != nil {
		return resetter.endedAs(ctx, err, report.Refused)
	}

	if err := resetter.agree(ctx, planned); err != nil {
		return resetter.failed(ctx, err)
	}

	outcomes := resetter.resetAll(ctx, planned)

	return diagnosis.Join(resetter.conclude(outcomes), resetter.wouldReset(outcomes))
}

// wouldReset is the outcome of a dry run.
func (r *resetter) wouldReset(outcomes []outcome) error {
	pending := nodesWith(report.Planned, outcomes)
	if len(pending) == 0 {
		return nil
	}

	return r.wouldChange(text.List(pending)+" would be reset", "the same command without -dryRun")
}

// resetter is one run of the step.
type resetter struct {
	*work
	// survey is how etcd was before anything was reset.
	survey observe.EtcdSurvey
	// lost is a node that did not come back from its reset: then the others are left alone.
	lost atomic.Pointer[inventory.Node]
}

// agree has a person agree to what is lost; where nothing is, nobody is asked.
func (r *resetter) agree(ctx context.Context, planned []nodeReset) error {
	asked := consent{Name: r.Cluster.Name}

	var pending []*inventory.Node

	for _, node := range planned {
		switch {
		case node.pending():
			pending = append(pending, node.seen.Node)
			asked.Losses = append(asked.Losses, node.loss())
		case node.problem != nil:
			asked.Losses = append(asked.Losses, node.seen.Node.Name+" does not answer, and keeps what it has")
		}
	}

	if len(pending) == 0 {
		return nil
	}

	if len(pending) == 1 && r.Settings.OfCluster == "" && !r.endsEtcd(pending) {
		asked.Name = pending[0].Name
	}

	asked.Losses = append(asked.Losses, r.etcdLosses(pending)...)

	return r.consent(ctx, asked)
}

// loss says what a node loses, and whose config it runs if that is not its own.
func (n nodeReset) loss() string {
	loss := n.seen.Node.Name + " loses " + n.losses
	if n.seen.Relation == observe.ConfigSwapped {
		loss += "; the machine runs the config of " + n.seen.Owner
	}

	return loss
}

// resetAll resets the workers, and then the control planes.
func (r *resetter) resetAll(ctx context.Context, planned []nodeReset) []outcome {
	broken := func(node nodeReset, err error) outcome { return r.broken(node.seen.Node, err) }
	of := func(role inventory.Role) []nodeReset {
		return filtered(planned, func(node nodeReset) bool { return node.seen.Node.Role == role })
	}

	workers := of(inventory.Worker)
	outcomes := fanout.Collect(ctx, r.Settings.MaxParallel.Of(len(workers)), workers, r.resetOne, broken)

	return append(outcomes, fanout.Collect(ctx, 1, of(inventory.ControlPlane), r.resetOne, broken)...)
}

func (r *resetter) resetOne(ctx context.Context, planned nodeReset) outcome {
	started := time.Now()
	result := outcome{node: planned.seen.Node, address: planned.seen.Address}

	switch {
	case planned.problem != nil:
		result.status, result.problem = report.Failed, planned.problem
	case planned.kept != "":
		result.status = report.Warned
		result.detail = planned.idle + ", where nothing can be reset: it keeps what is on " + planned.kept
	case planned.idle != "":
		result.status, result.detail = report.Skipped, planned.idle
	case r.Settings.DryRun && planned.underway:
		result.status, result.detail = report.Skipped, "on its way into a reboot already"
	case r.Settings.DryRun:
		result.status, result.detail = report.Planned, "would lose "+planned.losses
	case ctx.Err() != nil:
		result.status, result.problem = report.Failed, r.interrupted(ctx, result.node)
	case r.lost.Load() != nil:
		result.status, result.detail = report.Skipped, "left alone, since "+r.lost.Load().Name+" did not come back"
	default:
		r.change(ctx, planned, &result)
	}

	return r.finish(result, started)
}

// change resets a node, and waits until it is in maintenance.
func (r *resetter) change(ctx context.Context, planned nodeReset, result *outcome) {
	graceful, problem := r.leaves(ctx, planned.seen.Node)
	planned.request.Graceful = graceful

	if problem == nil {
		problem = r.ask(ctx, planned, result)
	}

	if problem == nil {
		result.status, result.detail = report.Applied, "in maintenance, "+planned.undone()
		return
	}

	result.status, result.problem = report.Failed, problem

	if problem.ID != diagnosis.Interrupted {
		r.lost.CompareAndSwap(nil, planned.seen.Node)
	}
}

// undone says what the reset did.
func (n nodeReset) undone() string {
	if n.underway {
		return "by a reset that was underway"
	}

	return "lost " + n.losses
}

// ask sends the reset and waits; again, if the node did not begin with it.
func (r *resetter) ask(ctx context.Context, planned nodeReset, result *outcome) *diagnosis.Problem {
	var last error

	for range r.Settings.MaxRetries + 1 {
		if !planned.underway {
			result.tries++

			err := r.send(ctx, planned)
			switch class := talos.Classify(talos.OpReset, err); {
			case ctx.Err() != nil:
				return r.interrupted(ctx, planned.seen.Node)
			case class == talos.Final:
				return r.refused(planned, err)
			case err != nil:
				last = err
			}
		}

		begun, problem := r.awaitMaintenance(ctx, planned)
		if begun || problem != nil {
			return problem
		}

		planned.underway = false
	}

	return r.problem(planned.seen, diagnosis.ResetFailed,
		fmt.Sprintf("asked %d times, it has not begun%s", result.tries, text.Because(talos.Explain(last))),
		"wait until what it does is over (mage status), then "+r.command(planned.seen.Node)).From(last)
}

// refused is the problem of a node that does not take the call.
func (r *resetter) refused(planned nodeReset, err error) *diagnosis.Problem {
	if problem, ok := diagnosis.AsProblem(err); ok {
		return problem
	}

	failed := r.problem(planned.seen, diagnosis.ResetFailed, "the node refused to be reset: "+talos.Explain(err),
		command("status", nil)).From(err)
	if id, remedy, known := diagnosed(err); known {
		failed.ID, failed.Cause, failed.Next = id, talos.Explain(err), remedy
	}

	return failed
}

// send asks the node, on the very connection on which it turned out to be the declared machine.
func (r *resetter) send(ctx context.Context, planned nodeReset) error {
	node := planned.seen.Node

	conn, err := r.observer.Dialer().Secure(ctx, planned.seen.Address)
	if err != nil {
		return err //nolint:wrapcheck // its class is the caller's to judge
	}
	defer conn.Close()

	wrong, err := r.observer.WrongMachine(ctx, node, conn)

	switch {
	case err != nil:
		return err //nolint:wrapcheck // as above
	case wrong != nil:
		seen := planned.seen
		seen.Wrong = wrong

		return r.notOurs(seen)
	}

	r.Report.Progress(r.step.Name(), report.Progress{Node: node.Name, Text: "asked to reset", Since: r.Clock.Now()})

	calling, stop := context.WithTimeout(ctx, r.Settings.AttemptTimeout)
	defer stop()

	return r.gate.Reset(calling, conn, planned.request) //nolint:wrapcheck // as above
}

// awaitMaintenance waits until a node that was asked is in maintenance. It reports whether the node began at all.
func (r *resetter) awaitMaintenance(ctx context.Context, planned nodeReset) (begun bool, problem *diagnosis.Problem) {
	node, asked := planned.seen.Node, r.Clock.Now()
	begun = planned.underway

	problem = r.followReset(ctx, node, func(ctx context.Context) (observe.Observation, string, wait.State) {
		now := r.observer.Observe(ctx, node)
		if (now.Silent() || now.Wrong != nil) && r.follow(ctx, now) {
			now = r.observer.Observe(ctx, node)
		}

		state := wait.State{Pause: redialLast}
		idle := now.State == talos.Ours && !leaving(now)

		switch {
		case now.NotOurs():
			state.Problem = r.notOurs(now)
		case now.State == talos.Maintenance:
			begun, state.Done = true, true
		case idle && (begun || rebooted(planned.seen, now)):
			begun, state.Problem = true, r.withoutEffect(planned, now)
		case idle && now.Asked.Sub(asked) > reachable(r.Settings):
			state.Done = true
		case !idle:
			begun = true
		}

		state.TimeUp = func(waited time.Duration) *diagnosis.Problem { return r.noReturn(planned, now, waited) }

		return now, resetText(now), state
	})

	return begun, problem
}

// drainsItself is how long a node in its cluster tries to move its pods before it resets. Source: siderolabs/talos,
// pkg/kubernetes/kubernetes.go (DrainTimeout) at v1.14.1.
const drainsItself = 5 * time.Minute

// followReset looks at a node that was asked for a reset until it has ended. Whatever the node does on the way may take
// as long as any node may take for that.
func (w *work) followReset(ctx context.Context, node *inventory.Node,
	look func(context.Context) (now observe.Observation, doing string, state wait.State)) *diagnosis.Problem {
	var (
		since time.Time
		known string
	)

	waiter := w.waiter()
	waiter.NoWait = false // it was answering
	waiter.Interrupted = func(ctx context.Context) *diagnosis.Problem { return w.interrupted(ctx, node) }

	return waiter.Until(ctx, func(ctx context.Context) wait.State {
		now, doing, state := look(ctx)
		if doing != known {
			known, since = doing, now.At
		}

		limit := w.Settings.StageTimeout + drainsItself
		if now.Silent() {
			limit = w.Settings.NodeWait
		}

		state.Asked, state.Node = now.Asked, node.Name
		state.Limit = wait.Limit{For: doing, Since: since, Limit: limit}

		return state
	})
}

// rebooted reports whether a node answers in another boot than before.
func rebooted(before, now observe.Observation) bool {
	return before.Boot != "" && now.Boot != "" && before.Boot != now.Boot
}

// resetText says in a few words what a node does that was asked.
func resetText(now observe.Observation) string {
	switch {
	case now.Silence == talos.Refused:
		return "port refused: shutting down or booting"
	case now.Silent():
		return "no answer: rebooting"
	default:
		return orUnread(now.Stage())
	}
}

// withoutEffect is the problem of a node that has its config still.
func (r *resetter) withoutEffect(planned nodeReset, now observe.Observation) *diagnosis.Problem {
	cause := "it rebooted and came back with its config: nothing was wiped"
	if planned.request.Graceful && planned.seen.Node.Role == inventory.ControlPlane {
		cause += "; a reset that can't leave etcd ends like that"
	}

	return r.problem(now, diagnosis.ResetWithoutEffect, cause, "look at the machine's console; then "+
		r.command(planned.seen.Node))
}

// noReturn is the problem of a node that is not in maintenance in time.
func (r *resetter) noReturn(planned nodeReset, now observe.Observation, waited time.Duration) *diagnosis.Problem {
	if !now.Silent() {
		return r.problem(now, diagnosis.ResetFailed, fmt.Sprintf("%s unchanged for %s", orUnread(now.Stage()), waited),
			talosctl(now.Node, "dmesg"))
	}

	cause := fmt.Sprintf("it has been silent for %s since its reset: off, at another address, since its own went with "+
		"its config, or ", waited)
	if len(planned.request.Partitions) == 0 && !planned.underway {
		cause += "without anything to boot from: Talos is no longer on its disk"
	} else {
		cause += "stopped by an ISO or PXE that comes before its disk, which Talos is on, in the boot order"
	}

	failed := r.problem(now, diagnosis.ResetNoReturn, cause,
		"look at the machine's console and its boot order; or "+r.elsewhere(now.Node))
	if errors.Is(now.Err, context.Canceled) {
		failed.Err = nil
	}

	return failed
}
