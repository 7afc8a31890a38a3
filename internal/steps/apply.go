package steps

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/talos-mage/talos-mage/internal/base/retry"
	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/fanout"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// retryJitter keeps nodes from retrying in step.
const retryJitter = 0.1

const (
	applySequentialName = "applySequential"
	applyParallelName   = "applyParallel"
)

// Apply sends each node its machine config, one node at a time or several at once. All nodes are tried and all results
// reported.
type Apply struct {
	Parallel bool
	// Late is set after bootstrap: only the workers are served that an earlier Apply of the run left joining.
	Late bool
}

// Name tells the two modes apart, as people type them.
func (s Apply) Name() string {
	if s.Parallel {
		return applyParallelName
	}

	return applySequentialName
}

// Nodes are those that the run works on and no earlier step left out.
func (Apply) Nodes(run *Run) []*inventory.Node { return run.present() }

// Mutates marks the step as one that needs the cluster's lock.
func (Apply) Mutates() {}

// Exit is the code for a node that got no config.
func (Apply) Exit() diagnosis.ExitCode { return diagnosis.ExitApply }

// LeftOut leaves the late turn out where nobody is to be served in it.
func (s Apply) LeftOut(run *Run) string {
	if s.Late && len(run.joining()) == 0 {
		return "no worker had to wait for bootstrap"
	}

	return ""
}

// Run serves every node that answers, control planes first, and after that waits for the silent ones together.
func (s Apply) Run(ctx context.Context, run *Run) error {
	work := begin(run, s)
	if err := work.checkFiles(ctx); err != nil {
		return err
	}

	nodes := run.present()
	if s.Late {
		nodes = run.joining()
	}

	ordered := append(ofRole(nodes, inventory.ControlPlane), ofRole(nodes, inventory.Worker)...)
	limit := 1

	if s.Parallel {
		limit = run.Settings.MaxParallel.Of(len(nodes))
	}

	if run.Settings.Update {
		// A running cluster changes one node at a time, and control planes last, so that a bad config meets a worker first.
		ordered = append(ofRole(nodes, inventory.Worker), ofRole(nodes, inventory.ControlPlane)...)
		limit = 1
	}

	applier := &applier{work: work, late: s.Late, turn: make(chan struct{}, limit)}

	outcomes := fanout.Collect(ctx, limit, ordered, applier.serve, applier.broken)

	var silent []*inventory.Node

	served := outcomes[:0]
	for _, outcome := range outcomes {
		if outcome.status == "" {
			silent = append(silent, outcome.node)
		} else {
			served = append(served, outcome)
		}
	}

	served = append(served, fanout.Collect(ctx, observe.Limit, silent, applier.waitAndServe, applier.broken)...)
	return diagnosis.Join(work.conclude(served), work.dryRunOutcome(served))
}

// dryRunOutcome turns "would change" into the exit code that says so. What has drifted would change if asked for. Files
// that are older than what runs are made anew before anything else.
func (w *work) dryRunOutcome(outcomes []outcome) error {
	if !w.Settings.DryRun {
		return nil
	}

	var changing, drifted, outdated []string

	for _, outcome := range outcomes {
		switch name := outcome.node.Name; {
		case outcome.outdated:
			outdated = append(outdated, name)
		case outcome.status == report.Planned:
			changing = append(changing, name)
		case outcome.status == report.Drifted:
			drifted = append(drifted, name)
		}
	}

	var said, next []string

	if len(outdated) > 0 {
		said = append(said, "the files of "+text.List(outdated)+" are older than what runs")
		next = append(next, renderAnew(w.Run))
	}

	if len(changing) > 0 {
		said = append(said, text.List(changing)+" would change")
		next = append(next, w.again())
	}

	if len(drifted) > 0 {
		said = append(said, text.List(drifted)+" drifted from what is declared; -update would change that")
		next = append(next, w.again()+" -update")
	}

	if said == nil {
		return nil
	}

	return w.wouldChange(strings.Join(said, "; "), next[0])
}

func nodesWith(status report.Status, outcomes []outcome) []string {
	var nodes []string
	for _, outcome := range outcomes {
		if outcome.status == status {
			nodes = append(nodes, outcome.node.Name)
		}
	}

	return nodes
}

// applier is one run of the apply step.
type applier struct {
	*work
	late bool
	// turn bounds how many nodes are changed at once, also among those that were waited for.
	turn chan struct{}
	// brokenBy is a node of a running cluster that did not come back healthy from its own change: then the others are
	// left alone.
	brokenBy atomic.Pointer[inventory.Node]
}

// serve applies to a node that answers; the outcome of a silent one is left open.
func (a *applier) serve(ctx context.Context, node *inventory.Node) outcome {
	started := time.Now()

	seen, conn := a.observer.Connect(ctx, node)
	if conn != nil {
		defer conn.Close()
	}

	if seen.Silent() && !a.Settings.DryRun {
		a.Report.Progress(a.step.Name(), report.Progress{Node: node.Name, Text: "no answer: served last", Since: seen.At})
		return outcome{node: node}
	}

	result := a.applyTo(ctx, seen, conn)
	if result.status == "" {
		return result
	}

	return a.finish(result, started)
}

// waitAndServe waits for a silent node within its clock, and then applies; again if it falls silent meanwhile, but not
// for ever.
func (a *applier) waitAndServe(ctx context.Context, node *inventory.Node) outcome {
	started := time.Now()
	for range a.Settings.MaxRetries + 1 {
		if result := a.waitAndServeOnce(ctx, node); result.status != "" {
			return a.finish(result, started)
		}
	}

	seen := observe.Observation{Node: node, Probed: talos.Probed{Address: a.observer.Addresses(node)[0]}}
	gaveUp := a.problem(seen, diagnosis.ApplyGaveUp, "it keeps answering and falling silent", a.command(node))
	return a.finish(outcome{node: node, address: seen.Address, status: report.Failed, problem: gaveUp}, started)
}

func (a *applier) waitAndServeOnce(ctx context.Context, node *inventory.Node) outcome {
	seen, problem := a.await(ctx, node, func(ctx context.Context, seen observe.Observation) verdict {
		return verdict{done: !seen.Silent() || a.joins(ctx, seen)}
	})
	switch {
	case problem != nil:
		if a.late {
			a.unsigned(node, problem)
		}

		return outcome{node: node, status: report.Failed, address: seen.Address, problem: problem}
	case seen.Silent():
		a.observer.Note(node, func(facts *observe.Facts) { facts.Joining = true })
		return outcome{node: node, status: report.Joining, address: seen.Address,
			detail: a.joiningText(seen)}
	default:
		return a.applyTo(ctx, seen, nil)
	}
}

// joins tells of a worker with a closed port that no waiting opens it yet: its certificate is signed at the endpoint,
// by trustd, and behind a VIP trustd answers after bootstrap only. A machine that is just booting has its port open
// within the time in which a node counts as unreachable.
func (a *applier) joins(ctx context.Context, seen observe.Observation) bool {
	if a.late || seen.Node.Role != inventory.Worker || seen.Silence != talos.Refused {
		return false
	}

	silent := a.Clock.Now().Sub(a.observer.Facts(seen.Node).SilentSince)
	return (silent >= reachable(a.Settings) || a.Settings.NoWait) && !a.observer.TrustdAnswers(ctx)
}

// applyTo does what the node's state asks for, with retries; every attempt observes anew. The outcome of a
// node that falls silent before it was sent anything is left open. The first attempt is made on the given connection,
// if there is one.
func (a *applier) applyTo(ctx context.Context, seen observe.Observation, conn *talos.Conn) outcome {
	node := seen.Node

	select {
	case a.turn <- struct{}{}:
	default:
		a.Report.Progress(a.step.Name(),
			report.Progress{Node: node.Name, Text: "answers, waiting for its turn", Since: seen.At})
		a.turn <- struct{}{}
	}

	defer func() { <-a.turn }()

	result := outcome{node: node, address: seen.Address}

	tries, err := retry.Do(ctx, a.Clock, a.retries(node), func(ctx context.Context, attempt int) error {
		if attempt > 1 {
			if seen, conn = a.observer.Connect(ctx, node); conn != nil {
				defer conn.Close()
			}
		}

		doing := "applying"
		if attempt > 1 {
			doing = fmt.Sprintf("applying, attempt %d", attempt)
		}

		a.Report.Progress(a.step.Name(), report.Progress{Node: node.Name, Text: doing, Since: a.Clock.Now()})

		return a.attempt(ctx, seen, conn, &result)
	}, isAgain)

	result.tries = tries
	result.address = seen.Address
	switch {
	case err == nil:
		return result
	case errors.Is(err, errFellSilent) && ctx.Err() == nil:
		return outcome{node: node}
	}

	result.status = report.Failed
	result.problem = a.applyProblem(ctx, seen, tries, err)
	return result
}

// retries is how often, and with which pauses, something is tried again for a node.
func (w *work) retries(node *inventory.Node) retry.Policy {
	return retry.Policy{
		Retries:    w.Settings.MaxRetries,
		Initial:    w.Settings.InitialDelay,
		Max:        w.Settings.MaxDelay,
		Multiplier: w.Settings.BackoffMultiplier,
		Jitter:     retryJitter,
		Waiting: func(attempt int, pause time.Duration, cause error) {
			w.Log.Warn().Str("node", node.Name).Str("again in", pause.Round(time.Second).String()).
				Msg(fmt.Sprintf("attempt %d failed: %s", attempt, explainAttempt(cause)))
			w.Report.Progress(w.step.Name(), report.Progress{Node: node.Name,
				Text: fmt.Sprintf("waits after failed attempt %d", attempt), Since: w.Clock.Now(), Left: pause,
				Failed: explainAttempt(cause)})
		},
	}
}

// errFellSilent is of a node that answered a moment ago, as when somebody else has just configured it: it is waited for
// like one that was silent from the beginning.
var errFellSilent = errors.New("the node fell silent")

// againError marks a cause that may pass: the attempt is worth repeating.
type againError struct {
	error
	// what the attempt came to, in plain words; empty where the error itself says all.
	what string
}

func (e *againError) Unwrap() error { return e.error }

func isAgain(err error) bool { return errors.As(err, new(*againError)) }

// explainAttempt says in plain words why an attempt failed.
func explainAttempt(err error) string {
	var again *againError
	if errors.As(err, &again) && again.what != "" {
		return again.what + text.Because(talos.Explain(again.error))
	}

	return talos.Explain(err)
}

func (a *applier) applyProblem(ctx context.Context, seen observe.Observation, tries int, err error) *diagnosis.Problem {
	if ctx.Err() != nil {
		return a.interrupted(ctx, seen.Node)
	}

	if problem, ok := diagnosis.AsProblem(err); ok {
		return problem
	}

	var again *againError
	if errors.As(err, &again) {
		problem := a.problem(seen, diagnosis.ApplyGaveUp,
			fmt.Sprintf("gave up after %d attempts: %s", tries, explainAttempt(again)), a.command(seen.Node))
		problem.Err = err

		if id, remedy, known := diagnosed(again.error); known {
			problem.ID, problem.Next = id, remedy
		}

		return problem
	}

	problem := a.problem(seen, diagnosis.ApplyRejected, "the node refused the config: "+talos.Explain(err),
		"correct the config (mage config:generate), then "+a.command(seen.Node))
	problem.Err = err

	// What answered may be no node that could refuse anything.
	if id, remedy, known := diagnosed(err); known {
		problem.ID, problem.Cause, problem.Next = id, talos.Explain(err), remedy
	}

	return problem
}

// attempt does one thing for the node, according to what was seen.
func (a *applier) attempt(ctx context.Context, seen observe.Observation, conn *talos.Conn,
	result *outcome) error {
	switch {
	case a.unjudged(seen):
		result.status, result.detail = report.Skipped, notJudged
		return nil
	case seen.NotOurs():
		return a.notOurs(seen)
	case seen.FailedForGood():
		return a.readFailure(seen)
	case seen.State == talos.Maintenance:
		return a.send(ctx, seen, conn, result)
	case seen.State == talos.Ours:
		return a.reconcile(ctx, seen, result)
	case a.Settings.DryRun:
		result.status, result.detail = report.Planned, "no answer: would be waited for"
		return nil
	default:
		return errFellSilent
	}
}

// send gives a node in maintenance its config, or one whose unattended install fails. Checks and identity are read on
// the very connection that sends it.
func (a *applier) send(ctx context.Context, seen observe.Observation, conn *talos.Conn, result *outcome) error {
	state := "in maintenance"
	if seen.State == talos.Ours {
		state = "its install fails"
	}

	config, err := a.config(seen)
	switch {
	case err != nil && a.Settings.DryRun && a.workspace.Made.WhyNot != nil:
		result.status, result.detail = report.Planned, state+": would get its config, once it is made"
		return nil
	case err != nil:
		return err
	}

	if conn == nil {
		if conn, err = a.observer.Dialer().Open(ctx, seen.Probed); err != nil {
			if seen.ReadErr = err; seen.FailedForGood() {
				return a.readFailure(seen)
			}

			return a.classified(talos.OpDial, err)
		}
		defer conn.Close()
	}

	if err := a.admit(ctx, conn, seen, config); err != nil {
		return err
	}

	if a.Settings.DryRun {
		result.status, result.detail = report.Planned, state+": would get its config"
		return nil
	}

	applied, err := a.apply(ctx, conn, seen, config, talos.ModeAuto)
	switch {
	case err == nil:
		a.warn(seen.Node, applied.Warnings)
		result.status, result.detail = report.Applied, "config sent"

		return nil
	case talos.Classify(talos.OpApply, err) == talos.UnknownOutcome:
		return a.settle(ctx, seen, err, result)
	default:
		return a.classified(talos.OpApply, err)
	}
}

// admit lets a config out only to the declared machine, whose disks, links and version were checked. It reads on the
// very connection that sends.
func (a *applier) admit(ctx context.Context, conn *talos.Conn, seen observe.Observation,
	config *machineconfig.Config) error {
	if err := a.admitMachine(ctx, conn, seen); err != nil {
		return err
	}

	if a.observer.Facts(seen.Node).CheckedFingerprint == conn.Fingerprint() {
		return nil
	}

	// Another certificate than the one that preflight saw, or no preflight: the checks are made here.
	facts := check.ReadFacts(ctx, conn)
	facts.State = talos.Maintenance // also if it could not be installed so far: all that follows is ahead of it
	if unread := facts.IdentityUnread(); unread != nil && seen.Node.DeclaresMachine() {
		return &againError{fmt.Errorf("read the machine's facts: %w", unread), identityUnread}
	}

	var refusals []*diagnosis.Problem
	for _, finding := range table.Node(ctx, &check.Node{
		Node: seen.Node, Cluster: a.Cluster, Config: config, Facts: facts, Settings: a.checkSettings(),
	}) {
		if finding.Severity != diagnosis.OK {
			a.Report.Finding(a.step.Name(), finding)
		}

		if finding.Severity == diagnosis.Failure {
			refusals = append(refusals, a.findingProblem(seen, finding))
		}
	}

	if len(refusals) > 0 {
		return refusals[0]
	}

	return nil
}

const identityUnread = "could not read whether it is the declared machine"

// admitMachine refuses a machine that is not the declared one.
func (a *applier) admitMachine(ctx context.Context, conn *talos.Conn, seen observe.Observation) error {
	finding, err := a.observer.WrongMachine(ctx, seen.Node, conn)
	switch {
	case err != nil && seen.Node.DeclaresMachine():
		return &againError{err, identityUnread}
	case finding != nil && a.follow(ctx, seen):
		return errFellSilent
	case finding != nil:
		return a.findingProblem(seen, *finding)
	default:
		return nil
	}
}

func (a *applier) findingProblem(seen observe.Observation, finding diagnosis.Finding) *diagnosis.Problem {
	if finding.ExitCode() != diagnosis.ExitBadInput {
		finding.Exit = a.step.Exit()
	}

	finding.Node, finding.Address = seen.Node.Name, seen.Address
	return finding.Problem(a.step.Name(), nil)
}

// apply makes the call and remembers that it was made: from here on the node's clocks count from now.
func (a *applier) apply(ctx context.Context, conn *talos.Conn, seen observe.Observation, config *machineconfig.Config,
	mode string) (talos.Applied, error) {
	calling, stop := context.WithTimeout(ctx, a.Settings.AttemptTimeout)
	defer stop()

	a.observer.Note(seen.Node, func(facts *observe.Facts) {
		facts.Sent, facts.SentAt, facts.SentTo = config, a.Clock.Now(), facts.Boot
		facts.Unsure, facts.LeftMaintenance = false, false
		facts.ForgetFailure()
	})

	applied, err := a.gate.Apply(calling, conn, config.Bytes, mode)
	a.observer.Note(seen.Node, func(facts *observe.Facts) {
		switch {
		case mode == talos.ModeStaged: // the node goes on with what it has, whether this arrived or not
			facts.Sent = nil
		case err == nil:
		case talos.Classify(talos.OpApply, err) == talos.UnknownOutcome:
			facts.Unsure = true
		default:
			facts.Sent = nil
		}
	})

	return applied, err
}

// classified wraps an error as one to repeat or one that is final.
func (a *applier) classified(op talos.Operation, err error) error {
	if talos.Classify(op, err) == talos.Retry {
		return &againError{error: err}
	}

	return err
}

func (a *applier) config(seen observe.Observation) (*machineconfig.Config, error) {
	if config := a.Configs[seen.Node.Name]; config != nil {
		return config, nil
	}

	_, err := a.Cluster.MachineConfig(seen.Node)
	cause := "its machine config can't be read"

	if err != nil {
		cause = err.Error()
	}

	return nil, a.about(seen, diagnosis.NewProblem(diagnosis.ConfigUnusable, cause, "mage config:generate"))
}

func (a *applier) warn(node *inventory.Node, warnings []string) {
	for _, warning := range warnings {
		a.Log.Warn().Str("node", node.Name).Msg("the node warns: " + warning)
	}
}
