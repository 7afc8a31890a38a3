package steps

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/steps/wait"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// etcdClock measures the two waits for etcd: until some member is healthy, and from the first time on until all have
// joined.
type etcdClock struct {
	healthy bool
	changed time.Time
	joining time.Time
}

// tick gives the wait that counts for a survey of that time.
func (c *etcdClock) tick(limits *settings.Settings, healthy bool, at time.Time) wait.Limit {
	if c.changed.IsZero() || healthy != c.healthy {
		c.healthy, c.changed = healthy, at
	}

	if !healthy {
		return wait.Limit{Since: c.changed, Limit: limits.EtcdTimeout}
	}

	if c.joining.IsZero() {
		c.joining = at
	}

	return wait.Limit{Since: c.joining, Limit: limits.EtcdJoinTimeout}
}

// awaitWhole waits until etcd is healthy, and then until the other control planes have joined; with again, also until
// it turns out that the Bootstrap has had no effect.
func (b *bootstrapper) awaitWhole(ctx context.Context, again bool) (survey observe.EtcdSurvey,
	failed *diagnosis.Problem) {
	var clock etcdClock

	began := b.Clock.Now()

	etcd := b.observer.VisitEtcd()
	defer etcd.Close()

	failed = b.waiter().Until(ctx, func(ctx context.Context) wait.State {
		// A node that does not answer makes a survey long, and what it says of the others old: it stands for the time when
		// they were asked.
		asked := b.Clock.Now()
		survey = etcd.Survey(ctx)
		if problem := b.beyondWaiting(survey, began); problem != nil {
			return wait.State{Problem: problem}
		}

		if again && b.sent != nil && b.sent.undone(survey) {
			return wait.State{Done: true}
		}

		expected := b.expected(survey)
		if survey.Agree(expected) {
			return wait.State{Done: true, Problem: b.incomplete(survey)}
		}

		awaited := survey.UnhealthyOf(expected)
		silent := len(awaited) > 0 && !slices.ContainsFunc(awaited, func(node observe.EtcdObservation) bool {
			return !b.observer.SilentByItself(node.Observation)
		})

		return wait.State{
			Limit: clock.tick(b.Settings, survey.HealthyCount() > 0, asked), Asked: asked, Silent: silent, Pause: etcdPause,
			Lines:  membershipLines(survey, expected),
			TimeUp: func(waited time.Duration) *diagnosis.Problem { return b.notWhole(ctx, survey, waited) },
		}
	})

	return survey, failed
}

// beyondWaiting is what no waiting can heal: two clusters, or an etcd that is stopped for good.
func (b *bootstrapper) beyondWaiting(survey observe.EtcdSurvey, began time.Time) *diagnosis.Problem {
	if survey.Split() {
		split := splitFinding(survey)
		return b.clusterProblem(split.ID, split.Cause, split.Next)
	}

	// A Bootstrap that works goes through the same state for a moment.
	if b.Clock.Now().Sub(began) < resendAfter {
		return nil
	}

	for _, node := range survey {
		if node.Stopped() {
			return b.problem(node.Observation, diagnosis.EtcdStopped,
				"its etcd was stopped by a second Bootstrap right after the first, and stays stopped until the node reboots",
				talosctl(node.Node, "reboot")+", then mage bootstrap")
		}
	}

	return nil
}

// splitFinding tells of etcd clusters that do not know each other, each healthy by itself.
func splitFinding(survey observe.EtcdSurvey) diagnosis.Finding {
	var sides []string
	for _, cluster := range survey.Clusters() {
		sides = append(sides, "that of "+text.List(cluster.Names()))
	}

	return diagnosis.Finding{
		ID:       diagnosis.EtcdSplit,
		Severity: diagnosis.Failure,
		Cause:    "two etcd clusters exist that do not know each other: " + text.List(sides),
		Next:     "keep the one with your data, and reset the other's nodes: docs/recovery.md",
	}
}

// splitFindings tell of them, or nothing where there is one etcd at most.
func splitFindings(survey observe.EtcdSurvey) []diagnosis.Finding {
	if !survey.Split() {
		return nil
	}

	return []diagnosis.Finding{splitFinding(survey)}
}

// membershipLines say of each expected control plane how its etcd is, and of one that is well whom it waits for.
func membershipLines(survey observe.EtcdSurvey, expected []*inventory.Node) []wait.Line {
	awaited := survey.UnhealthyOf(expected).Names()

	var lines []wait.Line
	for _, node := range survey {
		if slices.Contains(expected, node.Node) {
			lines = append(lines, wait.Line{Node: node.Node.Name, Text: membershipText(node, awaited)})
		}
	}

	return lines
}

func membershipText(node observe.EtcdObservation, awaited []string) string {
	switch {
	case node.Healthy() && len(awaited) == 0:
		return "etcd is healthy, its list of members is not yet that of the others"
	case node.Healthy():
		return "etcd is healthy, waits for " + text.List(awaited)
	case node.Silent():
		return "etcd: no answer from its node"
	case node.Empty() && node.Etcd.State == "Preparing" && !node.Starting():
		return "etcd waits to join"
	default:
		return node.Text()
	}
}

// noteAbsent decides which control planes are not waited for: those that are silent or in maintenance without this run
// having sent them a config, and those that an earlier step left out and that have no part in etcd. One that goes away
// later is waited for.
func (b *bootstrapper) noteAbsent(survey observe.EtcdSurvey) {
	b.absent = nil
	for _, node := range survey {
		facts := b.observer.Facts(node.Node)
		if facts.Failed != nil && !node.Healthy() || facts.Sent == nil && node.State != talos.Ours {
			b.absent = append(b.absent, node.Node)
		}
	}
}

// expected are the control planes whose etcd is waited for.
func (b *bootstrapper) expected(survey observe.EtcdSurvey) []*inventory.Node {
	var expected []*inventory.Node
	for _, node := range survey {
		if !slices.Contains(b.absent, node.Node) {
			expected = append(expected, node.Node)
		}
	}

	return expected
}

// incomplete warns of members that should not be there and fails for control planes that have no part in etcd.
func (b *bootstrapper) incomplete(survey observe.EtcdSurvey) *diagnosis.Problem {
	b.warnOfUnknownMembers(survey)

	if len(b.absent) == 0 {
		return nil
	}

	cause := fmt.Sprintf("etcd works with %d of %d: %s missing",
		survey.HealthyCount(), len(survey), text.List(names(b.absent)))
	if stale := survey.Stale(); len(stale) > 0 {
		cause += "; stale members, whose nodes are in maintenance: " + text.List(stale)
	}

	return b.clusterProblem(diagnosis.EtcdIncomplete, cause, "bring them up, then mage talos")
}

func (b *bootstrapper) warnOfUnknownMembers(survey observe.EtcdSurvey) {
	unknown := survey.UnknownMembers(b.Cluster)
	if len(unknown) == 0 {
		return
	}

	b.Report.Finding(bootstrapName, diagnosis.Finding{
		ID:       diagnosis.UnknownMembers,
		Severity: diagnosis.Warning,
		Cause:    fmt.Sprintf("etcd has members that %s does not name: %s", b.Cluster.Source, text.List(unknown)),
		Next:     "mage etcd:members; remove the ones that are gone with mage etcd:removeMember",
	})
}

// notWhole explains an etcd that did not become healthy, or that control planes did not join, in time.
func (b *bootstrapper) notWhole(ctx context.Context, survey observe.EtcdSurvey,
	waited time.Duration) *diagnosis.Problem {
	b.warnOfUnknownMembers(survey)

	if count := survey.HealthyCount(); count > 0 {
		return b.clusterProblem(diagnosis.EtcdIncomplete,
			fmt.Sprintf("etcd works with %d of %d after %s: %s; members: %s", count, len(survey), waited,
				survey.Describe(), survey.MemberText()),
			"look at the etcd service of those that are missing (talosctl service etcd), then mage bootstrap")
	}

	problem := b.clusterProblem(diagnosis.EtcdNotHealthy,
		fmt.Sprintf("etcd is not healthy after %s: %s; members: %s%s", waited, survey.Describe(), survey.MemberText(),
			survey.CauseText()),
		"bring all control planes up; look at talosctl service etcd and talosctl dmesg on each; then mage bootstrap")

	if lone := survey.LoneData(); lone != nil && !b.observer.APIAnswers(ctx) {
		problem.Cause += fmt.Sprintf("; only %s holds data, left from an earlier install or a broken bootstrap", lone.Name)
		problem.Next = fmt.Sprintf("this may be the only copy of a cluster: snapshot or copy %s first; then %s, and mage "+
			"talos", observe.EtcdDirectory, command("reset", lone))
	}

	return problem
}
