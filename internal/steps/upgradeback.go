package steps

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/nodes"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/release"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/steps/wait"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// awaitSystem waits until the node has rebooted into the new system and all that it starts is up. Only what the node
// itself runs by then is believed: it goes back to the system before if the new one does not come up.
func (t *turn) awaitSystem(ctx context.Context) *diagnosis.Problem {
	seen, problem := t.await(ctx, t.node, t.judge)
	if seen.Address != "" {
		t.seen = seen
	}

	if problem == nil || ctx.Err() != nil || t.plan.Done || problem.ID == diagnosis.UpgradeRolledBack ||
		problem.ID == diagnosis.UpgradeOtherSystem {
		return problem
	}

	switch {
	case t.believedIn != "":
		problem.Cause = "it runs " + t.plan.Version + ", but does not come up: " + problem.Cause
	case seen.State == talos.Ours && seen.Boot == t.leftBoot:
		problem.ID, problem.Next = diagnosis.UpgradeFailed, t.command(t.node)
		problem.Cause = "it was told to reboot into " + t.plan.Version + ", and has not done so: " + problem.Cause
	default:
		problem.Cause = "it did not come back from the reboot into " + t.plan.Version + ": " + problem.Cause
	}

	return problem
}

func (t *turn) judge(ctx context.Context, seen observe.Observation) verdict {
	switch {
	case seen.NotOurs():
		return verdict{problem: t.notOurs(seen)}
	case t.leaving && seen.Silence == talos.Refused:
		return verdict{doing: "rebooting into " + t.plan.Version + ", port refused"}
	case t.leaving && seen.Silent():
		return verdict{doing: "rebooting into " + t.plan.Version + ", no answer"}
	case seen.Silent() || seen.State == talos.Maintenance:
		return verdict{}
	case t.leaving && (seen.Boot == t.leftBoot || seen.Boot == ""):
		return verdict{doing: "about to reboot into " + t.plan.Version}
	}

	if t.believedIn == "" || seen.Boot != t.believedIn {
		system, err := t.readSystem(ctx, seen)
		if err != nil {
			return verdict{doing: "answers again: " + talos.Explain(err)}
		}

		if !t.plan.runs(system.facts.Version, system.facts.Schematic) {
			t.seen = seen
			return verdict{problem: t.disbelieve(ctx, system.facts)}
		}

		t.believedIn = seen.Boot
	}

	return verdict{
		done:  seen.Stage() == talos.StageRunning && seen.Complete() && seen.Installed(),
		doing: "runs " + t.plan.Version + ": " + stageText(seen),
	}
}

// disbelieve is the problem of a node that came back with something else than it is to run.
func (t *turn) disbelieve(ctx context.Context, running check.Facts) *diagnosis.Problem {
	switch {
	case release.IsBuildOf(t.plan.Version, running.Version):
		return t.problem(t.seen, diagnosis.UpgradeOtherSystem,
			fmt.Sprintf("it runs %s, but made from schematic %s instead of %s", running.Version,
				cmp.Or(running.Schematic, "none"), t.plan.Schematic),
			"look at what the installer image "+t.plan.Image+" is made of")
	case running.Version != t.plan.RunningVersion:
		return t.problem(t.seen, diagnosis.UpgradeOtherSystem,
			fmt.Sprintf("it runs %s, neither %s as before nor %s", running.Version, t.plan.RunningVersion, t.plan.Version),
			"find out who else upgrades it; then "+t.command(t.node))
	}

	how := "the installer ended well, but the new system did not come up"
	if t.plan.Legacy {
		how = "its own drain or the installer failed, or the new system did not come up"
	}

	return t.problem(t.seen, diagnosis.UpgradeRolledBack,
		fmt.Sprintf("it rebooted and runs %s again, not %s: %s, and the node went back to the one before (A/B rollback)%s",
			running.Version, t.plan.Version, how, t.missing(ctx)),
		"look at the machine's console while it boots, or correct the schematic; then "+t.command(t.node))
}

// missing names the extensions that the node runs now and that the new image lacks: the usual cause.
func (t *turn) missing(ctx context.Context) string {
	conn, err := t.observer.Dialer().Secure(ctx, t.seen.Address)
	if err != nil {
		return ""
	}
	defer conn.Close()

	running, err := conn.Extensions(ctx)
	lacking := nodes.LackingExtensions(t.Cluster, t.node, t.plan.Image, running)

	if err != nil || len(lacking) == 0 {
		return ""
	}

	return "; the new image lacks what the old one has: " + text.List(lacking)
}

// awaitEtcd waits until all members of etcd are healthy again.
func (t *turn) awaitEtcd(ctx context.Context) *diagnosis.Problem {
	if t.node.Role != inventory.ControlPlane {
		return nil
	}

	since, waiter := t.Clock.Now(), t.waiter()
	waiter.Interrupted = func(ctx context.Context) *diagnosis.Problem { return t.interrupted(ctx, t.node) }

	return waiter.Until(ctx, func(ctx context.Context) wait.State {
		asked, survey := t.Clock.Now(), t.observer.SurveyEtcd(ctx)

		return wait.State{
			Done: survey.Agree(t.Cluster.ControlPlanes()), Asked: asked, Pause: etcdPause,
			Limit: wait.Limit{For: "waits for etcd", Since: since, Limit: t.Settings.EtcdTimeout},
			Lines: membershipLines(survey, t.Cluster.ControlPlanes()),
			TimeUp: func(waited time.Duration) *diagnosis.Problem {
				return t.problem(t.seen, diagnosis.UpgradeEtcdNotBack,
					fmt.Sprintf("it runs %s, but etcd is not whole %s after it came back: %s%s", t.plan.Version, waited,
						survey.Describe(), survey.CauseText()), command("etcd:status", nil))
			},
		}
	})
}
