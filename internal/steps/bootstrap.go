package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/steps/wait"
	"github.com/talos-mage/talos-mage/internal/talos"
)

const bootstrapName = "bootstrap"

// etcdPause is the wait between two surveys of all etcds.
const etcdPause = time.Second

// Bootstrap starts etcd on exactly one control plane, exactly once, and waits until it is whole and the Kubernetes API
// answers.
type Bootstrap struct{}

// Name is the step's name.
func (Bootstrap) Name() string { return bootstrapName }

// Exit is the code for an etcd that does not come up.
func (Bootstrap) Exit() diagnosis.ExitCode { return diagnosis.ExitBootstrap }

// Nodes are the control planes, also those that the run leaves out: all are asked.
func (Bootstrap) Nodes(run *Run) []*inventory.Node { return run.Cluster.ControlPlanes() }

// Mutates marks the step as one that needs the cluster's lock.
func (Bootstrap) Mutates() {}

// EndsRecipe lets a recipe go on with an etcd that works, though not with all its members.
func (Bootstrap) EndsRecipe(err error) bool {
	return slices.ContainsFunc(problemsIn(err), func(problem *diagnosis.Problem) bool {
		return problem.ID != diagnosis.EtcdIncomplete && problem.ID != diagnosis.WouldChange
	})
}

// Run surveys every control plane's etcd before, and after, anything is started.
func (s Bootstrap) Run(ctx context.Context, run *Run) error {
	bootstrapper := &bootstrapper{work: begin(run, s), clocks: make(map[string]*clocks), since: make(waits),
		installs: make(map[string]bool)}
	if err := bootstrapper.checkKinship(ctx); err != nil {
		return err
	}

	survey, problem := bootstrapper.bringUp(ctx)
	problems := collected(problem)

	if !run.Settings.DryRun && (problem == nil || problem.ID == diagnosis.EtcdIncomplete) {
		problems = append(problems, collected(bootstrapper.awaitAPI(ctx))...)
	}

	bootstrapper.reportMembers(survey, problem)

	return diagnosis.Join(joined(problems), bootstrapper.dryRunOutcome(bootstrapper.planned))
}

func collected(problem *diagnosis.Problem) []*diagnosis.Problem {
	if problem == nil {
		return nil
	}

	return []*diagnosis.Problem{problem}
}

// bootstrapper is one run of the bootstrap step.
type bootstrapper struct {
	*work
	// absent are the control planes that have no part in this run: they are reported, and not waited for.
	absent []*inventory.Node
	// sent is the Bootstrap that this run sent, if it did; undone how many reboots have undone, and planned what a dry run
	// would have done.
	sent    *sentBootstrap
	undone  int
	planned []outcome
	// clocks and since measure how long a control plane that can't say yet whether it holds data has been waited for.
	clocks map[string]*clocks
	since  waits
	// installs are the control planes that were seen to install, until they are through with it: in between they reboot.
	installs map[string]bool
}

// waits remembers since when something has been waited for.
type waits map[string]time.Time

func (w waits) of(what string, now time.Time) time.Time {
	if _, known := w[what]; !known {
		w[what] = now
	}

	return w[what]
}

// bringUp ends with an etcd that all reachable control planes belong to, or says what is in the way. A Bootstrap that a
// power cut undid is made again, a few times.
func (b *bootstrapper) bringUp(ctx context.Context) (observe.EtcdSurvey, *diagnosis.Problem) {
	for {
		survey, problem := b.decide(ctx)
		if problem != nil || b.Settings.DryRun {
			return survey, problem
		}

		survey, problem = b.awaitWhole(ctx, b.undone < maxReboots)
		if problem != nil || b.sent == nil || !b.sent.undone(survey) {
			return survey, problem
		}
	}
}

// decide asks all control planes until it is sure whether the cluster has an etcd; if it has none, it starts one.
func (b *bootstrapper) decide(ctx context.Context) (survey observe.EtcdSurvey, failed *diagnosis.Problem) {
	etcd := b.observer.VisitEtcd()
	defer etcd.Close()

	failed = b.waiter().Until(ctx, func(ctx context.Context) wait.State {
		survey = etcd.Survey(ctx)
		switch {
		case ctx.Err() != nil:
			return wait.State{}
		case b.Settings.DryRun:
			b.plan(survey)
			return wait.State{Done: true}
		case survey.Present():
			b.noteAbsent(survey)
			b.Echo.Info().Str("etcd", survey.Describe()).Msg("etcd exists, so Bootstrap is not called")

			return wait.State{Done: true, Problem: b.refuseAssumption(survey)}
		default:
			return b.advance(ctx, survey)
		}
	})
	return survey, failed
}

// advance does the next thing on the way to a Bootstrap while no control plane has data: it stops, waits or calls.
func (b *bootstrapper) advance(ctx context.Context, survey observe.EtcdSurvey) wait.State {
	for _, node := range survey {
		if b.sent != nil && node.Node == b.sent.to && node.Silent() {
			gone := wait.State{
				Limit: wait.Limit{For: "no answer since Bootstrap was sent: it may or may not have taken effect",
					Since: b.sent.at, Limit: b.Settings.EtcdTimeout},
				Asked: node.Asked, Node: node.Node.Name, Pause: etcdPause,
			}
			if gone.Left(node.Asked) > 0 {
				return gone
			}
		}
	}

	if rebooting, found := b.rebootingAfterInstall(survey); found {
		return b.undecided(rebooting)
	}

	if obstacle := b.obstacle(ctx, survey); obstacle != nil {
		return wait.State{Problem: obstacle}
	}

	for _, node := range survey {
		switch {
		case node.Silent() && !b.assumedEmpty(node.Node):
			return b.lookAgain(survey, node)
		case !node.Empty() && !node.Silent():
			return b.undecided(node)
		}
	}

	// Everybody was asked right now and is empty.
	b.noteAbsent(survey)

	return b.call(ctx, survey)
}

// rebootingAfterInstall finds a control plane that was seen to install and is silent since: it holds nothing yet, and
// answers again once it has rebooted.
func (b *bootstrapper) rebootingAfterInstall(survey observe.EtcdSurvey) (rebooting observe.EtcdObservation,
	found bool) {
	for _, node := range survey {
		switch {
		case node.Silent():
			if b.installs[node.Node.Name] {
				rebooting, found = node, true
			}
		default:
			b.installs[node.Node.Name] = node.Installing() || b.installs[node.Node.Name] && !node.Up()
		}
	}

	return rebooting, found
}

// plan says where a dry run would bootstrap, if nothing holds etcd data yet.
func (b *bootstrapper) plan(survey observe.EtcdSurvey) {
	if survey.Present() {
		return
	}

	target := b.Cluster.ControlPlanes()[0]
	if b.Settings.BootstrapNode != "" {
		target = b.Cluster.Node(b.Settings.BootstrapNode)
	}

	b.planned = []outcome{{node: target, status: report.Planned}}
}

// obstacle is why Bootstrap must not be called, whatever is waited for.
func (b *bootstrapper) obstacle(ctx context.Context, survey observe.EtcdSurvey) *diagnosis.Problem {
	for _, node := range survey {
		switch {
		case b.observer.Facts(node.Node).Failed != nil && !b.assumedEmpty(node.Node):
			return b.problem(node.Observation, diagnosis.BootstrapBlocked,
				"it failed in an earlier step, and there is no etcd yet: a cluster is not started without one of its "+
					"control planes",
				"fix that first, then mage talos")
		case node.Silent() && !b.assumedEmpty(node.Node) && b.silence(node).Left(node.Asked) <= 0:
			return b.silentProblem(survey)
		case node.Silent() && b.assumedEmpty(node.Node) && b.observer.APIAnswers(ctx):
			return b.problem(node.Observation, diagnosis.AssumeEmptyRefused,
				fmt.Sprintf("it can't be assumed empty: a Kubernetes API answers at %s, so an etcd exists somewhere",
					b.Cluster.Endpoint.Host),
				command("status", nil))
		case node.NotOurs() && !b.unjudged(node.Observation):
			return b.notOurs(node.Observation)
		case node.Relation == observe.ConfigSwapped:
			return b.swapped(node.Observation)
		}
	}

	return nil
}

// silence is how long a control plane may be silent that is there: a connection can break at any moment.
func (b *bootstrapper) silence(node observe.EtcdObservation) wait.Limit {
	return wait.Limit{For: "no answer, asked again", Since: b.observer.Facts(node.Node).SilentSince,
		Limit: reachable(b.Settings)}
}

// lookAgain waits for a control plane that has just fallen silent.
func (b *bootstrapper) lookAgain(survey observe.EtcdSurvey, node observe.EtcdObservation) wait.State {
	return wait.State{
		Limit: b.silence(node), Asked: node.Asked, Node: node.Node.Name, Silent: true, Pause: etcdPause,
		TimeUp: func(time.Duration) *diagnosis.Problem { return b.silentProblem(survey) },
	}
}

// silentProblem names the first silent control plane, and in the command to go on without them all of those.
func (b *bootstrapper) silentProblem(survey observe.EtcdSurvey) *diagnosis.Problem {
	silent := observe.EtcdSurvey(filtered(survey, func(node observe.EtcdObservation) bool {
		return node.Silent() && !b.assumedEmpty(node.Node)
	}))
	empty := append(slices.Clone(b.Settings.AssumeEmpty), silent.Names()...)

	return b.problem(silent[0].Observation, diagnosis.BootstrapBlocked,
		"it does not answer, so it may hold etcd data, and a second etcd must never start",
		fmt.Sprintf("bring it up (mage status), or, if you are sure that it is empty, mage bootstrap -assumeEmpty=%s",
			strings.Join(empty, ",")))
}

func (b *bootstrapper) assumedEmpty(node *inventory.Node) bool {
	return namesNode(b.Settings.AssumeEmpty, node)
}

// refuseAssumption refuses to take a control plane for empty that is a member of the etcd that exists.
func (b *bootstrapper) refuseAssumption(survey observe.EtcdSurvey) *diagnosis.Problem {
	for _, node := range survey {
		if node.Silent() && b.assumedEmpty(node.Node) && survey.Lists(node.Node) {
			return b.problem(node.Observation, diagnosis.AssumeEmptyRefused,
				"it can't be assumed empty: it is a member of the running etcd",
				"bring it up, then mage bootstrap without -assumeEmpty")
		}
	}

	return nil
}

// undecided waits for a control plane that can't say yet whether it holds etcd data.
func (b *bootstrapper) undecided(node observe.EtcdObservation) wait.State {
	clock, id, next := b.clockOf(node)
	return wait.State{
		Limit: clock.Limit, Asked: node.Asked, Node: node.Node.Name, Pause: etcdPause,
		TimeUp: func(waited time.Duration) *diagnosis.Problem {
			return b.problem(node.Observation, id, fmt.Sprintf("%s, for %s", clock.For, waited), next)
		},
	}
}

// clockOf is the clock that counts for such a control plane, what its end is called and what to do then.
func (b *bootstrapper) clockOf(node observe.EtcdObservation) (runningClock, diagnosis.ID, string) {
	name := node.Node.Name
	if b.clocks[name] == nil {
		b.clocks[name] = &clocks{}
	}

	timeWait := "time of " + name
	if !node.Unsynced() {
		delete(b.since, timeWait)
	}

	clock := b.clocks[name].tick(b.observer, node.Observation)
	switch {
	case node.State == talos.Maintenance:
		return clock, diagnosis.BootstrapBlocked, command("applySequential", node.Node)
	case node.Silent():
		return clock, diagnosis.BootstrapBlocked, command("status", nil)
	case clock.kind == failingClock:
		return clock, diagnosis.InstallFailed, correctInstall(node.Node)
	case node.Installing():
		return clock, diagnosis.BootstrapBlocked, command("verify", node.Node)
	case node.Unsynced():
		clock.For = "its clock is not synced, and etcd waits for that"
		clock.Since, clock.Limit.Limit = b.since.of(timeWait, b.Clock.Now()), b.Settings.TimeSyncTimeout
		return clock, diagnosis.TimeNotSynced, timeCommand(node.Node)
	case node.Status == nil && node.ReadErr != nil:
		id, known := talos.Diagnose(node.ReadErr)
		if !known {
			id = diagnosis.BootstrapBlocked
		}

		return clock, id, command("status", nil)
	default:
		clock.For = "waiting for its etcd service: " + observe.OrUnknown(node.Etcd.State) + text.Because(node.LastEvent())
		return clock, diagnosis.BootstrapBlocked, talosctl(node.Node, "service etcd")
	}
}

func timeCommand(node *inventory.Node) string {
	return fmt.Sprintf("check that %s reaches its NTP servers: %s", node.Name, talosctl(node, "get timeservers"))
}

// reportMembers records a result for each control plane, and leaves out of later steps those that etcd lacks. What one
// of them is in the way of, or a signal, is not the others' failure.
func (b *bootstrapper) reportMembers(survey observe.EtcdSurvey, problem *diagnosis.Problem) {
	for _, node := range survey {
		result := report.Result{
			Node:     node.Node.Name,
			Address:  node.Address,
			Step:     bootstrapName,
			Status:   report.OK,
			Duration: time.Since(b.started),
			Detail:   fmt.Sprintf("etcd member %016x", node.MemberID),
		}
		switch {
		case b.Settings.DryRun && len(b.planned) > 0 && b.planned[0].node == node.Node:
			result.Status, result.Detail = report.Planned, "etcd would be bootstrapped here"
		case b.Settings.DryRun:
			result.Detail = node.Text()
		case problem != nil && problem.Node == node.Node.Name, problem != nil && problem.ID == diagnosis.Interrupted:
			result.Status, result.Detail, result.Err = report.Failed, "", problem
		case problem != nil && problem.Node != "":
			result.Status, result.Detail = report.Skipped, node.Text()
		case !node.Healthy():
			result.Status, result.Detail, result.Err = report.Failed, "", errors.New(node.Text())
			b.observer.Note(node.Node, func(facts *observe.Facts) { facts.Failed = problem })
		case b.sent == nil || b.sent.earlier:
			result.Status = report.Skipped
		case node.Node == b.sent.to:
			result.Status = report.Applied
			result.Attempts = 1
		}

		b.Report.Result(result)
	}
}
