package steps

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/inventory"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/talosapi"
)

const bootstrapName = "bootstrap"

const (
	// resendAfter is the least time between two Bootstrap calls: a second one can stop a starting etcd for good.
	resendAfter = 30 * time.Second
	// timeSyncPause is the wait between two tries while the node's clock is not synced.
	timeSyncPause = 2 * time.Second
	// etcdPause is the wait between two looks at all etcds.
	etcdPause = time.Second
)

// Bootstrap starts etcd on exactly one control plane, exactly once, and waits until it is whole and the Kubernetes API answers.
type Bootstrap struct{}

// Name is the step's name.
func (Bootstrap) Name() string { return bootstrapName }

// Mutates marks the step as one that needs the cluster's lock.
func (Bootstrap) Mutates() {}

// EndsRecipe lets a recipe go on with an etcd that works, though not with all its members.
func (Bootstrap) EndsRecipe(err error) bool {
	return slices.ContainsFunc(problemsIn(err), func(problem *diagnosis.Problem) bool {
		return problem.ID != diagnosis.EtcdIncomplete && problem.ID != diagnosis.WouldChange
	})
}

// Run looks at every control plane's etcd before, and after, anything is started.
func (s Bootstrap) Run(ctx context.Context, run *Run) error {
	started := run.Clock.Now()
	bootstrapper := &bootstrapper{Run: run, started: started}

	survey, problem := bootstrapper.bringUp(ctx)
	problems := collected(problem)

	if !run.Settings.DryRun && (problem == nil || problem.ID == diagnosis.EtcdIncomplete) {
		problems = append(problems, collected(bootstrapper.awaitAPI(ctx))...)
	}

	bootstrapper.reportMembers(survey)

	return diagnosis.Join(joined(problems), dryRunOutcome(run, s.Name(), bootstrapper.planned))
}

func collected(problem *diagnosis.Problem) []*diagnosis.Problem {
	if problem == nil {
		return nil
	}

	return []*diagnosis.Problem{problem}
}

type bootstrapper struct {
	*Run
	started time.Time
	// absent are the control planes that have no part in this run: they are reported, and not waited for.
	absent []*inventory.Node
	// called is when Bootstrap was sent, to whom; planned what a dry run would have done.
	called   time.Time
	calledTo *inventory.Node
	planned  []outcome
}

// bringUp ends with an etcd that all reachable control planes belong to, or says what is in the way.
func (b *bootstrapper) bringUp(ctx context.Context) (etcdSurvey, *diagnosis.Problem) {
	survey, problem := b.decide(ctx)
	if problem != nil || b.Settings.DryRun {
		return survey, problem
	}

	return b.awaitWhole(ctx)
}

// decide asks all control planes until it is sure whether the cluster has an etcd; if it has none, it starts one.
func (b *bootstrapper) decide(ctx context.Context) (etcdSurvey, *diagnosis.Problem) {
	waits := newWaits()

	for {
		survey := b.surveyEtcd(ctx)
		if ctx.Err() != nil {
			return survey, b.interruptedStep(ctx, bootstrapName)
		}

		if b.Settings.DryRun {
			b.plan(survey)

			return survey, nil
		}

		if survey.present() {
			b.noteAbsent(survey)
			b.Log.Info().Str("etcd", survey.describe()).Msg("etcd exists: bootstrap is not called")

			return survey, nil
		}

		unsure, problem := b.unsure(ctx, survey)
		if problem != nil {
			return survey, problem
		}

		if unsure == nil {
			// Everybody was asked right now and is empty.
			b.noteAbsent(survey)

			again, problem := b.call(ctx, survey, waits)
			if problem != nil {
				return survey, problem
			}

			if !again {
				return survey, nil
			}

			continue
		}

		if problem := b.keepWaiting(ctx, *unsure, waits); problem != nil {
			return survey, problem
		}
	}
}

// plan says where a dry run would bootstrap, if nothing holds etcd data yet.
func (b *bootstrapper) plan(survey etcdSurvey) {
	if survey.present() {
		return
	}

	target := b.Cluster.ControlPlanes()[0]
	if b.Settings.BootstrapNode != "" {
		target = b.Cluster.Node(b.Settings.BootstrapNode)
	}

	b.planned = []outcome{{node: target, status: report.Planned}}
}

// unsure finds a control plane that can't say yet whether it holds etcd data; or the reason why it never will.
func (b *bootstrapper) unsure(ctx context.Context, survey etcdSurvey) (*etcdSight, *diagnosis.Problem) {
	var unsure *etcdSight

	for _, node := range survey {
		failed := b.memory.of(node.node).recall().failed

		switch {
		case failed != nil && !b.assumedEmpty(node.node):
			return nil, b.problem(bootstrapName, node.sight, diagnosis.BootstrapBlocked,
				"it failed in an earlier step, and there is no etcd yet: a cluster is not started without one of its control planes",
				"mend that first, then mage talos")
		case node.silent() && b.assumedEmpty(node.node):
			if problem := b.mayAssumeEmpty(ctx, node); problem != nil {
				return nil, problem
			}
		case node.silent():
			problem := b.problem(bootstrapName, node.sight, diagnosis.BootstrapBlocked,
				"it does not answer, so nobody knows whether it holds etcd data; a second etcd must never start",
				fmt.Sprintf("bring it up (mage status), or if it is sure to be empty: mage bootstrap -assumeEmpty=%s", node.node.Name))

			return nil, problem
		case node.State != talosapi.Maintenance && node.State != talosapi.Ours:
			return nil, b.strangerProblem(bootstrapName, node.sight)
		case node.config == configSwapped:
			return nil, b.swappedProblem(bootstrapName, node.sight)
		case !node.empty() && unsure == nil:
			unsure = &node
		}
	}

	return unsure, nil
}

func (b *bootstrapper) assumedEmpty(node *inventory.Node) bool {
	return namesNode(b.Settings.AssumeEmpty, node)
}

// mayAssumeEmpty refuses the assumption while something proves that a cluster exists.
func (b *bootstrapper) mayAssumeEmpty(ctx context.Context, node etcdSight) *diagnosis.Problem {
	if !b.apiAnswers(ctx) {
		return nil
	}

	return b.problem(bootstrapName, node.sight, diagnosis.AssumeEmptyRefused,
		fmt.Sprintf("it can't be assumed empty: a Kubernetes API answers at %s, so an etcd exists somewhere", b.Cluster.Endpoint.Host),
		command("status", nil))
}

// waits remembers since when each control plane has been waited for.
type waits map[string]time.Time

func newWaits() waits { return make(waits) }

func (w waits) since(name string, now time.Time) time.Time {
	if _, known := w[name]; !known {
		w[name] = now
	}

	return w[name]
}

func (b *bootstrapper) keepWaiting(ctx context.Context, node etcdSight, waits waits) *diagnosis.Problem {
	limit, what := b.Settings.StageTimeout, "waiting for its etcd service: "+orUnknown(node.etcd.State)+because(node.lastEvent())
	if node.State == talosapi.Maintenance {
		limit, what = b.Settings.VerificationTimeout, "in maintenance: it has no config yet"
	}

	since := waits.since(node.node.Name, b.Clock.Now())
	left := limit - b.Clock.Now().Sub(since)

	if left <= 0 || b.Settings.NoWait {
		next := fmt.Sprintf("talosctl -n %s -e %s service etcd", node.node.Address, node.node.Address)
		if node.State == talosapi.Maintenance {
			next = command("applySequential", node.node)
		}

		return b.problem(bootstrapName, node.sight, diagnosis.BootstrapBlocked, what, next)
	}

	b.Report.Progress(bootstrapName, report.Progress{Node: node.node.Name, Text: what, Since: since, Left: left})

	if b.Clock.Sleep(ctx, etcdPause) != nil {
		return b.interruptedStep(ctx, bootstrapName)
	}

	return nil
}

// target is the control plane that gets the call: the one asked for, else the first of the inventory that answers and is empty.
func (b *bootstrapper) target(survey etcdSurvey) *inventory.Node {
	for _, node := range survey {
		if node.empty() && (b.Settings.BootstrapNode == "" || namesNode([]string{b.Settings.BootstrapNode}, node.node)) {
			return node.node
		}
	}

	return nil
}

// call sends Bootstrap to the target, directly. It tells whether everybody has to be asked again.
func (b *bootstrapper) call(ctx context.Context, survey etcdSurvey, waits waits) (again bool, problem *diagnosis.Problem) {
	target := b.target(survey)
	if target == nil {
		return false, b.clusterProblem(diagnosis.BootstrapBlocked, "no control plane can be bootstrapped: "+survey.describe(), command("status", nil))
	}

	if since := b.Clock.Now().Sub(b.called); !b.called.IsZero() && since < resendAfter {
		b.Report.Progress(bootstrapName, report.Progress{Node: target.Name, Text: "looking whether the first Bootstrap took effect", Since: b.called, Left: resendAfter - since})

		if b.Clock.Sleep(ctx, etcdPause) != nil {
			return false, b.interruptedStep(ctx, bootstrapName)
		}

		return true, nil
	}

	seen := survey[slices.IndexFunc(survey, func(node etcdSight) bool { return node.node == target })]

	b.Report.Progress(bootstrapName, report.Progress{Node: target.Name, Text: "bootstrapping etcd", Since: b.Clock.Now()})

	err := b.send(ctx, seen)

	switch class := talosapi.Classify(talosapi.OpBootstrap, err); {
	case err == nil:
		b.Log.Info().Str("node", target.Name).Msg("etcd bootstrapped")
		b.called, b.calledTo = b.Clock.Now(), target

		return false, nil
	case class == talosapi.Done, class == talosapi.UnknownOutcome:
		// Done means that data appeared meanwhile. Either way: look at etcd before anything else.
		b.called, b.calledTo = b.Clock.Now(), target

		return true, nil
	case class == talosapi.Retry:
		return b.retryLater(ctx, seen, err, waits)
	default:
		problem := b.problem(bootstrapName, seen.sight, diagnosis.BootstrapFailed,
			"the node refused to bootstrap: "+talosapi.Explain(err), command("status", nil))
		problem.Err = err

		return false, problem
	}
}

func (b *bootstrapper) send(ctx context.Context, seen etcdSight) error {
	conn, err := b.dialer().Secure(ctx, seen.Address)
	if err != nil {
		return err
	}
	defer conn.Close()

	calling, stop := context.WithTimeout(ctx, b.Settings.AttemptTimeout)
	defer stop()

	return conn.Bootstrap(calling)
}

// retryLater waits out a refusal that may pass, such as a clock that is not synced yet.
func (b *bootstrapper) retryLater(ctx context.Context, seen etcdSight, cause error, waits waits) (bool, *diagnosis.Problem) {
	id, limit := diagnosis.BootstrapFailed, b.Settings.StageTimeout
	next := command("bootstrap", nil)

	if talosapi.IsTimeNotSynced(cause) {
		id, limit = diagnosis.TimeNotSynced, b.Settings.TimeSyncTimeout
		next = fmt.Sprintf("check that %s reaches its NTP servers: talosctl -n %s -e %s get timeservers", seen.node.Name, seen.node.Address, seen.node.Address)
	}

	text := talosapi.Explain(cause)
	since := waits.since("bootstrap: "+string(id), b.Clock.Now())

	left := limit - b.Clock.Now().Sub(since)
	if left <= 0 {
		problem := b.problem(bootstrapName, seen.sight, id, fmt.Sprintf("%s, for %s", text, b.since(since)), next)
		problem.Err = cause

		return false, problem
	}

	b.Report.Progress(bootstrapName, report.Progress{Node: seen.node.Name, Text: text, Since: since, Left: left})

	if b.Clock.Sleep(ctx, timeSyncPause) != nil {
		return false, b.interruptedStep(ctx, bootstrapName)
	}

	return true, nil
}

// awaitWhole waits until etcd is healthy, and then until the other control planes have joined.
func (b *bootstrapper) awaitWhole(ctx context.Context) (etcdSurvey, *diagnosis.Problem) {
	began := b.Clock.Now()

	var healthySince time.Time

	for {
		survey := b.surveyEtcd(ctx)
		if ctx.Err() != nil {
			return survey, b.interruptedStep(ctx, bootstrapName)
		}

		if survey.split() {
			return survey, b.clusterProblem(diagnosis.EtcdSplit,
				"two etcd clusters exist that do not know each other: "+survey.describe(),
				"keep the one with your data; reset the other's nodes: docs/recovery.md")
		}

		for _, node := range survey {
			if node.stopped() && b.Clock.Now().Sub(began) > resendAfter {
				return survey, b.problem(bootstrapName, node.sight, diagnosis.EtcdStopped,
					"its etcd was stopped by a second Bootstrap right after the first, and stays stopped until the node reboots",
					fmt.Sprintf("talosctl -n %s -e %s reboot, then mage bootstrap", node.node.Address, node.node.Address))
			}
		}

		expected := b.expected(survey)

		if survey.agree(expected) {
			return survey, b.incomplete(survey)
		}

		limit, since := b.Settings.EtcdTimeout, began

		if survey.healthyCount() > 0 {
			if healthySince.IsZero() {
				healthySince = b.Clock.Now()
			}

			limit, since = b.Settings.EtcdJoinTimeout, healthySince
		} else {
			healthySince = time.Time{}
		}

		left := limit - b.Clock.Now().Sub(since)
		if left <= 0 || b.Settings.NoWait && survey.healthyCount() > 0 {
			return survey, b.notWhole(ctx, survey, since)
		}

		for _, node := range survey {
			if !node.healthy() && slices.Contains(expected, node.node) {
				b.Report.Progress(bootstrapName, report.Progress{Node: node.node.Name, Text: node.waitingText(), Since: since, Left: left})
			}
		}

		if b.Clock.Sleep(ctx, etcdPause) != nil {
			return survey, b.interruptedStep(ctx, bootstrapName)
		}
	}
}

func (e etcdSight) waitingText() string {
	if e.etcd.State == "Preparing" {
		return "etcd waits to join"
	}

	return "etcd: " + orUnknown(e.etcd.State) + because(e.etcd.LastMessage)
}

// noteAbsent decides which control planes are not waited for: those that are silent or in maintenance without this run having sent them a
// config, and those that an earlier step left out. One that goes away later is waited for.
func (b *bootstrapper) noteAbsent(survey etcdSurvey) {
	b.absent = nil

	for _, node := range survey {
		facts := b.memory.of(node.node).recall()

		if node.State != talosapi.Ours && (facts.sent == nil || facts.failed != nil) {
			b.absent = append(b.absent, node.node)
		}
	}
}

// expected are the control planes whose etcd is waited for.
func (b *bootstrapper) expected(survey etcdSurvey) []*inventory.Node {
	var expected []*inventory.Node

	for _, node := range survey {
		if !slices.Contains(b.absent, node.node) {
			expected = append(expected, node.node)
		}
	}

	return expected
}

// incomplete warns of members that should not be there and fails for control planes that have no part in etcd.
func (b *bootstrapper) incomplete(survey etcdSurvey) *diagnosis.Problem {
	if strangers := survey.strangers(b.Cluster); len(strangers) > 0 {
		b.Report.Finding(bootstrapName, diagnosis.Finding{
			ID:       diagnosis.UnknownMembers,
			Severity: diagnosis.Warning,
			Cause:    fmt.Sprintf("etcd has members that %s does not name: %s", b.Cluster.Source, list(strangers)),
			Next:     "talosctl etcd members; remove the ones that are gone with talosctl etcd remove-member",
		})
	}

	if len(b.absent) == 0 {
		return nil
	}

	cause := fmt.Sprintf("etcd works with %d of %d: %s missing", survey.healthyCount(), len(survey), list(names(b.absent)))
	if stale := survey.stale(); len(stale) > 0 {
		cause += "; stale members, whose nodes are in maintenance: " + list(stale)
	}

	return b.clusterProblem(diagnosis.EtcdIncomplete, cause, "bring them up, then mage talos")
}

// notWhole explains an etcd that did not become healthy, or that control planes did not join, in time.
func (b *bootstrapper) notWhole(ctx context.Context, survey etcdSurvey, since time.Time) *diagnosis.Problem {
	cause := fmt.Sprintf("etcd is not whole after %s: %s", b.since(since), survey.describe())
	next := "talosctl -n <node> -e <node> service etcd, or dmesg; then mage bootstrap"
	id := diagnosis.EtcdNotHealthy

	if survey.healthyCount() > 0 {
		id = diagnosis.EtcdIncomplete
		cause = fmt.Sprintf("etcd works with %d of %d after %s: %s", survey.healthyCount(), len(survey), b.since(since), survey.describe())
	} else if lone := b.loneData(survey); lone != nil && !b.apiAnswers(ctx) {
		cause += fmt.Sprintf("; only %s holds data, left from an earlier install or a broken bootstrap", lone.Name)
		next = fmt.Sprintf("this may be the only copy of a cluster: snapshot or copy %s first; then talosctl -n %s -e %s reset --system-labels-to-wipe EPHEMERAL --reboot --graceful=false, and mage bootstrap",
			etcdDirectory, lone.Address, lone.Address)
	} else if survey.memberCount() > 1 {
		cause += fmt.Sprintf("; %d members are listed, so quorum needs %d", survey.memberCount(), survey.memberCount()/2+1)
	}

	return b.clusterProblem(id, cause, next)
}

// loneData is the only control plane that holds data, when all others were asked and are empty.
func (b *bootstrapper) loneData(survey etcdSurvey) *inventory.Node {
	var lone *inventory.Node

	for _, node := range survey {
		switch {
		case node.data && lone == nil:
			lone = node.node
		case !node.empty():
			return nil
		}
	}

	return lone
}

func (b *bootstrapper) clusterProblem(id diagnosis.ID, cause, next string) *diagnosis.Problem {
	return &diagnosis.Problem{Step: bootstrapName, Finding: diagnosis.Finding{
		ID: id, Severity: diagnosis.Failure, Cause: cause, Next: next, Exit: diagnosis.ExitBootstrap,
	}}
}

// reportMembers records a result for each control plane.
func (b *bootstrapper) reportMembers(survey etcdSurvey) {
	for _, node := range survey {
		result := report.Result{
			Node:     node.node.Name,
			Address:  node.Address,
			Step:     bootstrapName,
			Status:   report.OK,
			Duration: b.Clock.Now().Sub(b.started),
			Detail:   fmt.Sprintf("etcd member %016x", node.member),
		}

		switch {
		case b.Settings.DryRun && len(b.planned) > 0 && b.planned[0].node == node.node:
			result.Status, result.Detail = report.Planned, "etcd would be bootstrapped here"
		case b.Settings.DryRun:
			result.Detail = node.describe()
		case !node.healthy():
			result.Status, result.Detail = report.Failed, ""
			result.Err = fmt.Errorf("%s", node.describe())
		case node.node == b.calledTo:
			result.Status = report.Applied
			result.Attempts = 1
		case b.calledTo == nil:
			result.Status = report.Skipped
		}

		b.Report.Result(result)
	}
}
