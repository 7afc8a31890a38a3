package steps

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/talos-mage/talos-mage/internal/base/retry"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/kube/drain"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/wait"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// turn is the upgrade of one node: how the node was seen last, and what has been done to it.
type turn struct {
	*upgrader

	plan  nodeUpgrade
	node  *inventory.Node
	seen  observe.Observation
	tries int

	// drained is set once the node's pods are gone, installed once the new system is on its disk, leaving once it was
	// told to reboot, or may have been, in the boot leftBoot.
	drained, installed, leaving bool
	leftBoot                    string
	// cordon is whose cordon it has, as far as that was seen.
	cordon drain.Owner
	// believedIn is the boot in which the node was seen to run what it is to run.
	believedIn string
	// pods is how it stands with Kubernetes at the end.
	pods podsBack
}

// run upgrades the node, unless it runs all that already, and has it take part again.
func (t *turn) run(ctx context.Context) *diagnosis.Problem {
	if !t.plan.Done {
		tries, err := retry.Do(ctx, t.Clock, t.retries(t.node), t.attempt, isAgain)
		t.tries = tries

		if err != nil {
			return t.giveBack(ctx, t.changeProblem(ctx, err))
		}
	}

	for _, await := range []func(context.Context) *diagnosis.Problem{t.awaitSystem, t.awaitEtcd, t.awaitPods} {
		if problem := await(ctx); problem != nil {
			return t.giveBack(ctx, problem)
		}
	}

	return nil
}

// result is how a turn that ended well is told.
func (t *turn) result() (report.Status, string) {
	status, detail := report.OK, t.plan.text()
	if !t.plan.Done {
		status, detail = report.Applied, t.plan.text()
	}

	switch {
	case t.pods.othersCordon:
		detail += "; still cordoned, and not by us"
	case t.pods.returned && t.plan.Done:
		status = report.Applied
		detail += "; takes pods again, after an earlier run had cordoned it"
	}

	return status, detail
}

// attempt does what is missing until the node is on its way into the new system.
func (t *turn) attempt(ctx context.Context, _ int) error {
	if onItsWay, err := t.look(ctx); onItsWay || err != nil {
		return err
	}

	if err := t.spare(ctx, nil); err != nil {
		return err
	}

	conn, err := t.observer.Dialer().Secure(ctx, t.seen.Address)
	if err != nil {
		return again(talos.OpDial, "", err)
	}
	defer conn.Close()

	if t.plan.Legacy {
		return inTurn(ctx, conn, t.drain, t.spare, t.upgradeAtOnce)
	}

	// Up to the reboot takes long enough for another member to be lost meanwhile.
	return inTurn(ctx, conn, t.pull, t.drain, t.install, t.spare, t.reboot)
}

// inTurn does one thing after the other.
func inTurn(ctx context.Context, conn *talos.Conn, things ...func(context.Context, *talos.Conn) error) error {
	for _, do := range things {
		if err := do(ctx, conn); err != nil {
			return err
		}
	}

	return nil
}

// look sees how the node is before anything is sent to it. It reports whether the node is on its way already: after a
// reply that was lost nothing is sent again then.
func (t *turn) look(ctx context.Context) (onItsWay bool, err error) {
	before, now := t.seen, t.observer.Contact(ctx, t.node)

	switch {
	case t.leaving && (now.Silent() || now.State == talos.Maintenance):
		return true, nil
	case now.Silent():
		return false, &againError{now.Err, "the node does not answer"}
	case now.NotOurs():
		return false, t.notOurs(now)
	case now.FailedForGood():
		return false, t.readFailure(now)
	case now.State == talos.Maintenance:
		return false, &againError{now.Err, "the node is in maintenance"}
	}

	t.seen = now

	switch now.Boot {
	case "":
		return false, &againError{now.ReadErr, "which boot the node is in could not be read"}
	case before.Boot:
		return t.leaving && talos.GoesDown(now.Stage()), nil
	}

	t.installed = false

	return t.leaving || t.runsIt(ctx), nil
}

// runsIt reports whether the node runs what it is to run.
func (t *turn) runsIt(ctx context.Context) bool {
	system, err := t.readSystem(ctx, t.seen)

	return err == nil && t.plan.runs(system.facts.Version, system.facts.Schematic)
}

// spare refuses to take a control plane down while another one is not whole. Where there is none to spare anyway that
// was agreed to.
func (t *turn) spare(ctx context.Context, _ *talos.Conn) error {
	if t.node.Role != inventory.ControlPlane || t.noQuorumToSpare {
		return nil
	}

	survey := t.observer.SurveyEtcd(ctx)
	if survey.Agree(t.Cluster.ControlPlanes()) {
		return nil
	}

	return &againError{notWholeError(survey.Describe()), "etcd is not whole"}
}

// notWholeError says how the members of an etcd are that can spare none now.
type notWholeError string

func (e notWholeError) Error() string { return string(e) }

// pull has the node fetch the installer before anything stops on it.
func (t *turn) pull(ctx context.Context, conn *talos.Conn) error {
	if t.installed {
		return nil
	}

	ctx, stop := context.WithTimeout(ctx, t.Settings.InstallTimeout)
	defer stop()

	t.tell(t.node, "pulling the installer")

	told := -1

	return again(talos.OpPull, "the installer could not be pulled", t.gate.PullImage(ctx, conn, t.plan.Image,
		func(done, total int64) {
			if total == 0 || int(10*done/total) == told {
				return
			}

			told = int(10 * done / total)
			t.tell(t.node, fmt.Sprintf("still pulling the installer, %d%% of %s", 10*told, sizeText(total)))
		}))
}

// install has the node write the new system beside the one that it runs. An installer of an earlier call whose reply
// was lost is waited for: the next one then finds nothing in its way.
func (t *turn) install(ctx context.Context, conn *talos.Conn) error {
	if t.installed {
		return nil
	}

	t.tell(t.node, "installing "+t.plan.Version)

	var failed error

	since := t.Clock.Now()
	waiter := t.waiter()
	waiter.Interrupted = func(ctx context.Context) *diagnosis.Problem { return t.interrupted(ctx, t.node) }

	problem := waiter.Until(ctx, func(ctx context.Context) wait.State {
		calling, stop := context.WithTimeout(ctx, t.Settings.InstallTimeout)
		defer stop()

		failed = t.gate.InstallUpgrade(calling, conn, t.plan.Image,
			func(line string) { t.tell(t.node, "installing "+t.plan.Version+": "+line) })

		return wait.State{
			Done: !talos.IsInstallerBusy(failed), Node: t.node.Name, Pause: t.Settings.CheckInterval,
			Limit: wait.Limit{For: "another installer runs on it", Since: since, Limit: t.Settings.InstallTimeout},
			TimeUp: func(waited time.Duration) *diagnosis.Problem {
				return t.problem(t.seen, diagnosis.UpgradeFailed, fmt.Sprintf("another installer has been running on it for %s",
					waited), talosctl(t.node, "dmesg"))
			},
		}
	})
	if problem != nil {
		return problem
	}

	t.installed = failed == nil

	return again(talos.OpUpgrade, "it is not known whether the new system was installed", failed)
}

// reboot reboots the node into what was installed.
func (t *turn) reboot(ctx context.Context, conn *talos.Conn) error {
	t.tell(t.node, "rebooting into "+t.plan.Version)

	ctx, stop := context.WithTimeout(ctx, t.Settings.AttemptTimeout)
	defer stop()

	return t.leave(talos.OpReboot, t.gate.Reboot(ctx, conn))
}

// upgradeAtOnce is for a node that does all of it by itself.
func (t *turn) upgradeAtOnce(ctx context.Context, conn *talos.Conn) error {
	t.tell(t.node, "upgrading: still pulling the installer")

	ctx, stop := context.WithTimeout(ctx, t.Settings.InstallTimeout)
	defer stop()

	return t.leave(talos.OpUpgrade, t.gate.UpgradeAtOnce(ctx, conn, t.plan.Image))
}

// leave takes in what came of a call that has the node reboot: it does so also where only the reply was lost.
func (t *turn) leave(op talos.Operation, err error) error {
	class := talos.Classify(op, err)
	t.leaving, t.leftBoot = class == talos.Done || class == talos.UnknownOutcome, t.seen.Boot

	t.observer.Note(t.node, func(facts *observe.Facts) { facts.Rebooting = t.leaving })

	return again(op, "the call may not have arrived", err)
}

// again marks the errors after which the node is looked at and the attempt repeated.
func again(op talos.Operation, what string, err error) error {
	switch talos.Classify(op, err) {
	case talos.Retry, talos.UnknownOutcome:
		return &againError{err, what}
	default:
		return err
	}
}

// changeProblem says why the node was not upgraded.
func (t *turn) changeProblem(ctx context.Context, err error) *diagnosis.Problem {
	if ctx.Err() != nil {
		return t.interrupted(ctx, t.node)
	}

	if problem, ok := diagnosis.AsProblem(err); ok {
		return problem
	}

	id, remedy, known := diagnosed(err)

	var (
		failure   *talos.Error
		installer *talos.InstallerError
		notWhole  notWholeError
	)

	switch {
	case known:
	case errors.As(err, &notWhole):
		id, remedy = diagnosis.UpgradeEtcdUnhealthy, command("etcd:status", nil)
	case errors.As(err, &installer):
		id, remedy = diagnosis.UpgradeFailed, talosctl(t.node, "dmesg")+" tells more; the node runs "+t.plan.RunningVersion+
			" as before"
	case talos.IsImageMissing(err):
		id, remedy = diagnosis.UpgradeImageMissing, "correct the version or the schematic, then "+t.command(t.node)
	case errors.As(err, &failure) && failure.Op == talos.OpPull:
		id, remedy = diagnosis.UpgradePullFailed, "look at the node's way to the registry, then "+t.command(t.node)
	default:
		id, remedy = diagnosis.UpgradeFailed, t.command(t.node)
	}

	cause := explainAttempt(err)
	if t.tries > 1 {
		cause = fmt.Sprintf("gave up after %d attempts: %s", t.tries, cause)
	}

	return t.problem(t.seen, id, cause, remedy).From(err)
}
