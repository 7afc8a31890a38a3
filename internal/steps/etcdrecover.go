package steps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/snapshot"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/steps/wait"
	"github.com/talos-mage/talos-mage/internal/talos"
)

const recoverName = "etcd:recover"

// EtcdRecover restores an etcd that has lost its quorum for good, from a snapshot. Nothing is written down of it: each
// run goes on from what the control planes say.
type EtcdRecover struct{}

// Name is the step's name.
func (EtcdRecover) Name() string { return recoverName }

// Exit is the code for an etcd that was not restored.
func (EtcdRecover) Exit() diagnosis.ExitCode { return diagnosis.ExitBootstrap }

// Nodes are the control planes: all are asked.
func (EtcdRecover) Nodes(run *Run) []*inventory.Node { return run.Cluster.ControlPlanes() }

// Mutates marks the step as one that needs the cluster's lock.
func (EtcdRecover) Mutates() {}

// Run looks at the file before any node is asked, proves that no quorum can be had, saves what the members hold, has a
// person agree, wipes them, and restores one. Only an etcd that is healthy ends it well.
func (s EtcdRecover) Run(ctx context.Context, run *Run) error {
	recoverer := &recoverer{bootstrapper: &bootstrapper{work: begin(run, s), clocks: make(map[string]*clocks),
		since: make(waits), installs: make(map[string]bool)}}

	if err := recoverer.prepare(ctx); err != nil {
		return recoverer.failed(ctx, err)
	}

	by := "by an earlier run"

	restored, problem := recoverer.restoredBefore(ctx)
	if problem == nil && restored == nil {
		restored, problem = recoverer.restoreEtcd(ctx)
		by = "from " + recoverer.file
	}

	if problem == nil && restored != nil {
		problem = recoverer.complete(ctx, restored)
	}

	switch {
	case problem != nil:
		return recoverer.failed(ctx, problem)
	case restored == nil:
		recoverer.record(report.Result{Status: report.Planned, Detail: "etcd would be restored from " + recoverer.file})
		return recoverer.wouldChange("etcd would be restored from "+recoverer.file, "the same command without -dryRun")
	default:
		return recoverer.done(report.Applied, fmt.Sprintf("etcd is healthy, restored on %s %s", restored.Name, by))
	}
}

// recoverer is one run of the step.
type recoverer struct {
	*bootstrapper
	// file is what etcd is restored from, copied whether it is a database off a disk.
	file   string
	copied bool
	// agreed is set once a person has agreed to the loss, saved are the control planes whose data is on this computer.
	agreed bool
	saved  map[string]string
}

// prepare judges what the command line and the files say.
func (r *recoverer) prepare(ctx context.Context) error {
	r.file, r.saved = r.Settings.SnapshotToRestore, map[string]string{}

	file, copied, err := snapshot.Open(r.file)
	if err != nil {
		cause := fmt.Sprintf("%s is no snapshot of etcd: %s", r.file, plainCause(err))
		if errors.Is(err, fs.ErrNotExist) {
			cause = "there is no file " + r.file
		}

		return diagnosis.NewProblem(diagnosis.SnapshotUnusable, cause, "name a file that mage etcd:snapshot made").
			In(recoverName).From(err)
	}

	r.copied = copied

	if err := file.Close(); err != nil {
		return fmt.Errorf("close snapshot: %w", err)
	}

	return r.checkKinship(ctx)
}

// plainCause is what is wrong with a file, without its name, which is said already.
func plainCause(err error) string {
	var ofPath *fs.PathError
	if errors.As(err, &ofPath) {
		err = ofPath.Err
	}

	return err.Error()
}

func (r *recoverer) destroyed(node *inventory.Node) bool {
	return namesNode(r.Settings.Destroyed, node)
}

// askAll asks every control plane, and again while one may yet answer: those that an interrupted run has wiped reboot.
func (r *recoverer) askAll(ctx context.Context) (survey observe.EtcdSurvey) {
	since := r.Clock.Now()

	//nolint:errcheck // it has no limit that is a problem: whoever is missing in the survey is judged by that
	r.waiter().Until(ctx, func(ctx context.Context) wait.State {
		survey = r.observer.SurveyEtcd(ctx)
		limit := wait.Limit{For: "asking every control plane: " + survey.Describe(), Since: since, Limit: r.patience(survey)}

		return wait.State{Done: limit.Left(r.Clock.Now()) <= 0, Limit: limit, Pause: etcdPause}
	})

	return survey
}

// patience is how long it is waited for those that do not answer, or can't say yet whether they hold data. Whoever
// names those that are destroyed expects the others to be there.
func (r *recoverer) patience(survey observe.EtcdSurvey) (longest time.Duration) {
	for _, node := range survey {
		switch destroyed := r.destroyed(node.Node); {
		case node.Leader != 0:
			return 0 // it works
		case node.Silent() && (destroyed || len(r.Settings.Destroyed) == 0 || r.Settings.NoWait):
			longest = max(longest, reachable(r.Settings))
		case node.Silent():
			longest = max(longest, r.Settings.NodeWait)
		case node.State == talos.Ours && (!node.Certain || node.Starting()):
			longest = max(longest, r.Settings.StageTimeout)
		}
	}

	return longest
}

// restoredBefore is the control plane on which an earlier run has restored etcd, as the node itself tells; nil if none
// has.
func (r *recoverer) restoredBefore(ctx context.Context) (*inventory.Node, *diagnosis.Problem) {
	survey := r.askAll(ctx)
	if ctx.Err() != nil {
		return nil, interrupted(ctx, recoverName)
	}

	for _, node := range survey {
		if node.Wrong == nil && (node.HasData || node.Running()) && r.tellsRestore(ctx, node) && !r.lostAgain(ctx, node) {
			r.Log.Info().Str("node", node.Node.Name).Msg("an earlier run has restored etcd there")
			return node.Node, nil
		}
	}

	return nil, nil
}

// lostAgain reports whether a restored etcd has lost its quorum since: while it is restored it has but one member,
// which needs nobody to lead.
func (r *recoverer) lostAgain(ctx context.Context, node observe.EtcdObservation) bool {
	for leaderless(node) {
		if node.Asked.Sub(node.Began()) > resendAfter || r.Clock.Sleep(ctx, etcdPause) != nil {
			return true
		}

		node = r.observer.ObserveEtcd(ctx, node.Node)
	}

	return false
}

func (r *recoverer) tellsRestore(ctx context.Context, node observe.EtcdObservation) bool {
	conn, err := r.observer.Dialer().Secure(ctx, node.Address)
	if err != nil {
		return false
	}
	defer conn.Close()

	restored, err := conn.EtcdRestored(ctx)

	return err == nil && restored
}

// restoreEtcd wipes what is left of the former etcd, and restores it on one control plane. In a dry run it is nobody.
func (r *recoverer) restoreEtcd(ctx context.Context) (*inventory.Node, *diagnosis.Problem) {
	for {
		survey := r.askAll(ctx)
		if problem := r.refuse(ctx, survey); problem != nil {
			return nil, problem
		}

		holders := filtered(survey, func(node observe.EtcdObservation) bool { return node.HasData })

		if problem := r.save(ctx, holders); problem != nil {
			return nil, problem
		}

		if err := r.agree(ctx, survey, holders); err != nil {
			return nil, r.asProblem(ctx, err)
		}

		switch {
		case r.Settings.DryRun:
			return nil, nil
		case len(holders) == 0:
			return r.restore(ctx)
		}

		// A person may have thought for an hour.
		if problem := r.refuse(ctx, r.askAll(ctx)); problem != nil {
			return nil, problem
		}

		if problem := r.wipe(ctx, holders); problem != nil {
			return nil, problem
		}
	}
}

func (r *recoverer) asProblem(ctx context.Context, err error) *diagnosis.Problem {
	if problem, ok := diagnosis.AsProblem(err); ok {
		return problem
	}

	if ctx.Err() != nil {
		return interrupted(ctx, recoverName)
	}

	return r.clusterProblem(diagnosis.RecoverFailed, err.Error(), r.typed()).From(err)
}

// typed is the command again.
func (r *recoverer) typed(destroyed ...string) string {
	typed := "mage " + recoverName + " " + r.file
	if all := append(slices.Clone(r.Settings.Destroyed), destroyed...); len(all) > 0 {
		typed += " -destroyed=" + strings.Join(all, ",")
	}

	return typed
}

// agree has a person agree to what is lost, once a run.
func (r *recoverer) agree(ctx context.Context, survey, holders observe.EtcdSurvey) error {
	if r.agreed {
		return nil
	}

	asked := consent{Name: r.Cluster.Name,
		Losses: []string{"all that Kubernetes has kept since " + r.file + " was made: etcd is restored from it"}}

	for _, node := range holders {
		loss := "the etcd on " + node.Node.Name + ", which is wiped and reboots"
		if path := r.saved[node.Node.Name]; path != "" {
			loss += "; a copy is in " + path
		}

		asked.Losses = append(asked.Losses, loss)
	}

	for _, node := range survey {
		if node.Silent() {
			asked.Losses = append(asked.Losses, "what "+node.Node.Name+" holds, which does not answer: if it comes back "+
				"unwiped, a second etcd may start")
		}
	}

	err := r.consent(ctx, asked)
	r.agreed = err == nil

	return err
}

// refuse is why etcd must not be restored: it has its quorum, or may get it back.
func (r *recoverer) refuse(ctx context.Context, survey observe.EtcdSurvey) *diagnosis.Problem {
	if ctx.Err() != nil {
		return interrupted(ctx, recoverName)
	}

	if problem := r.works(ctx, survey); problem != nil {
		return problem
	}

	var silent, uncertain, holding []string

	for _, node := range survey {
		destroyed := r.destroyed(node.Node)

		switch {
		case node.Silent() && !destroyed:
			silent = append(silent, node.Node.Name)
		case node.Silent():
		case node.NotOurs():
			return r.notOurs(node.Observation)
		case node.Relation == observe.ConfigSwapped:
			return r.swapped(node.Observation)
		case node.State == talos.Maintenance && destroyed:
		case node.State == talos.Maintenance:
			if kept, _ := r.keptInMaintenance(ctx, node.Observation); kept != "" { // it says why it could not be read
				uncertain = append(uncertain, node.Node.Name+" "+kept)
			}
		case !node.Certain || node.Starting():
			uncertain = append(uncertain, node.Describe())
		case destroyed:
		case node.HasData && !leaderless(node):
			uncertain = append(uncertain, node.Describe())
		case node.HasData && !node.Learner: // one that does not vote yet is of no help to a quorum
			holding = append(holding, node.Node.Name)
		}
	}

	return r.mayComeBack(survey, silent, uncertain, holding)
}

// leaderless is an etcd that runs and says itself that it has no quorum.
func leaderless(node observe.EtcdObservation) bool {
	return node.Running() && node.MemberID != 0 && node.Leader == 0
}

// works is the problem of an etcd that has its quorum, here or where only Kubernetes tells of it.
func (r *recoverer) works(ctx context.Context, survey observe.EtcdSurvey) *diagnosis.Problem {
	for _, node := range survey {
		if node.Leader != 0 || node.Healthy() {
			return r.problem(node.Observation, diagnosis.RecoverNotNeeded, "etcd has its quorum, and nothing is restored "+
				"over it: "+survey.Describe(), command("etcd:status", nil))
		}
	}

	if (&observe.Kubernetes{Observer: r.observer}).Ready(ctx, "") == nil {
		return r.clusterProblem(diagnosis.RecoverNotNeeded, fmt.Sprintf("the Kubernetes API at %s is ready, so an etcd with "+
			"its quorum is behind it: %s", r.Cluster.Endpoint.Host, survey.Describe()), command("status", nil))
	}

	return nil
}

// mayComeBack is the problem of a quorum that control planes may still bring back.
func (r *recoverer) mayComeBack(survey observe.EtcdSurvey, silent, uncertain, holding []string) *diagnosis.Problem {
	majority := len(survey)/2 + 1 //nolint:mnd // of all
	switch {
	case len(uncertain) > 0:
		return r.clusterProblem(diagnosis.QuorumPossible, "an etcd may come back by itself: "+strings.Join(uncertain, "; "),
			"wait for it: mage bootstrap; or name a control plane with -destroyed= whose etcd is beyond repair")
	case len(silent) > 0:
		return r.clusterProblem(diagnosis.QuorumPossible, text.List(silent)+" did not answer at any known address, and may "+
			"hold etcd's quorum", "bring them up, or, if they are destroyed: "+r.typed(silent...))
	case len(holding) >= majority:
		return r.clusterProblem(diagnosis.QuorumPossible, fmt.Sprintf("%s answer and hold etcd's data, which is a quorum, "+
			"though none has a leader: do they reach each other?", text.List(holding)),
			"mage etcd:status; or name those with -destroyed= whose etcd is beyond repair")
	default:
		return nil
	}
}

// complete waits until the restored etcd is healthy, the other control planes have joined and Kubernetes answers, and
// names who may hold the former etcd still.
func (r *recoverer) complete(ctx context.Context, restored *inventory.Node) *diagnosis.Problem {
	if problem := r.wipeFormer(ctx, restored); problem != nil {
		return problem
	}

	r.noteAbsent(r.observer.SurveyEtcd(ctx))

	survey, problem := r.awaitWhole(ctx, false)
	if problem != nil && problem.ID == diagnosis.EtcdIncomplete && r.onlyAbsentMissing(survey) {
		problem = nil
	}

	r.nameDangers(survey)

	if problem == nil {
		problem = r.awaitAPI(ctx)
	}

	return problem
}

// onlyAbsentMissing reports whether all that answer are healthy voters.
func (r *recoverer) onlyAbsentMissing(survey observe.EtcdSurvey) bool {
	return survey.Agree(r.expected(survey))
}

// wipeFormer wipes the former etcd of control planes that came back after etcd was restored.
func (r *recoverer) wipeFormer(ctx context.Context, restored *inventory.Node) *diagnosis.Problem {
	survey := r.settled(ctx, restored)
	current := listed(survey)

	former := filtered(survey, func(node observe.EtcdObservation) bool {
		return node.Node != restored && node.Wrong == nil && leaderless(node) && current != nil &&
			!slices.ContainsFunc(current, func(member talos.EtcdMember) bool { return member.ID == node.MemberID })
	})
	if len(former) == 0 || r.Settings.DryRun {
		return nil
	}

	if problem := r.save(ctx, former); problem != nil {
		return problem
	}

	if err := r.agree(ctx, former, former); err != nil {
		return r.asProblem(ctx, err)
	}

	return r.wipe(ctx, former)
}

// settled asks the control planes until each says whose etcd it has: one that has just come back can't yet.
func (r *recoverer) settled(ctx context.Context, restored *inventory.Node) (survey observe.EtcdSurvey) {
	since := r.Clock.Now()

	//nolint:errcheck // it has no limit that is a problem: what is not clear by then is awaited with the others
	r.waiter().Until(ctx, func(ctx context.Context) wait.State {
		survey = r.observer.SurveyEtcd(ctx)

		open := filtered(survey, func(node observe.EtcdObservation) bool {
			return node.Node != restored && node.State == talos.Ours && (!node.Certain || node.HasData && node.MemberID == 0)
		})
		limit := wait.Limit{For: "looking whose etcd each control plane has", Since: since, Limit: r.Settings.EtcdTimeout}

		return wait.State{
			Done:  listed(survey) != nil && len(open) == 0 || limit.Left(r.Clock.Now()) <= 0,
			Limit: limit, Pause: etcdPause,
		}
	})

	return survey
}

// nameDangers names the control planes that nobody could ask whether they hold the former etcd.
func (r *recoverer) nameDangers(survey observe.EtcdSurvey) {
	for _, node := range survey {
		if node.Silent() {
			r.Report.Finding(recoverName, formerEtcd(node, r.typed()))
		}
	}
}

func formerEtcd(node observe.EtcdObservation, next string) diagnosis.Finding {
	return diagnosis.Finding{
		ID: diagnosis.FormerEtcdAway, Severity: diagnosis.Warning, Node: node.Node.Name, Address: node.Address,
		Cause: "it does not answer, and may hold the former etcd: if it comes back unwiped, a second etcd may start",
		Next:  "wipe its disk before it is connected again; or, once it answers, " + next,
	}
}
