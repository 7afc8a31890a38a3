package steps

import (
	"context"
	"fmt"

	"github.com/talos-mage/talos-mage/internal/cluster/release"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// delivery is how a configured node gets its new config. Before Talos 1.14 the node says whether it reboots for it;
// since then it takes every change as it is, and reboots for none.
type delivery struct {
	// mode is what the config is sent with, effect the mode in which the node takes it.
	mode, effect string
	// reboot is set where a call of its own reboots the node afterwards: the config is staged until then, so that a run
	// that ends in between is continued by the next one.
	reboot bool
	// waiting are the fields that take effect at a reboot only, unsure those of which that is not known.
	waiting, unsure []string
}

// firstWithoutReboot is the first minor version of Talos that never reboots by itself for a new config.
const firstWithoutReboot = 14

// plan finds out how the node on a connection gets its new config, by the version that it runs now.
func (a *applier) plan(ctx context.Context, conn *talos.Conn, seen observe.Observation) (delivery, error) {
	version, err := conn.Version(ctx)
	if err != nil {
		return delivery{}, a.classified(talos.OpRead, err)
	}

	if err := a.admitForm(seen, version); err != nil {
		return delivery{}, err
	}

	if numbers, known := release.Numbers(version); known && numbers[0] == 1 && numbers[1] < firstWithoutReboot {
		return delivery{mode: a.Settings.Mode}, nil
	}

	return planWithoutReboot(a.Settings.Mode, machineconfig.ChangedFields(seen.Config, a.Configs[seen.Node.Name])), nil
}

// planWithoutReboot is the plan for a node that never reboots by itself. Only what is known to wait for a reboot gets
// one.
func planWithoutReboot(mode string, changed map[machineconfig.Effect][]string) delivery {
	waiting, unsure := changed[machineconfig.EffectAtReboot], changed[machineconfig.EffectUnknown]

	switch {
	case mode == talos.ModeReboot, mode == talos.ModeAuto && len(waiting) > 0:
		return delivery{mode: talos.ModeStaged, effect: talos.ModeReboot, reboot: true, waiting: waiting}
	case mode == talos.ModeStaged:
		return delivery{mode: mode}
	default:
		return delivery{mode: mode, waiting: waiting, unsure: unsure}
	}
}

// why says what a reboot is for, as far as that is known.
func (d delivery) why() string {
	if len(d.waiting) == 0 {
		return "this change reboots the node"
	}

	return text.List(d.waiting) + " takes effect at a reboot only"
}

// tellWaiting names what has been changed and waits for a reboot, or may.
func (a *applier) tellWaiting(seen observe.Observation, plan delivery) {
	if plan.reboot || len(plan.waiting)+len(plan.unsure) == 0 {
		return
	}

	cause := text.List(plan.waiting) + " waits for a reboot"
	if len(plan.waiting) == 0 {
		cause = text.List(plan.unsure) + " may need a reboot"
	} else if len(plan.unsure) > 0 {
		cause += "; " + text.List(plan.unsure) + " may need one too"
	}

	a.Report.Finding(a.step.Name(), diagnosis.Finding{
		ID: diagnosis.RebootPending, Severity: diagnosis.Warning, Node: seen.Node.Name, Address: seen.Address,
		Cause: cause, Next: talosctl(seen.Node, "reboot"),
	})
}

// reboot reboots a node that has its new config staged, and waits until it runs it.
func (a *applier) reboot(ctx context.Context, conn *talos.Conn, seen observe.Observation) error {
	calling, stop := context.WithTimeout(ctx, a.Settings.AttemptTimeout)
	defer stop()

	if err := a.gate.Reboot(calling, conn); err != nil {
		if class := talos.Classify(talos.OpReboot, err); class == talos.Retry || class == talos.UnknownOutcome {
			return &againError{fmt.Errorf("reboot: %w", err), "its config is staged, and it could not be rebooted"}
		}

		return err
	}

	a.observer.Note(seen.Node, func(facts *observe.Facts) {
		facts.Sent, facts.SentAt = a.Configs[seen.Node.Name], a.Clock.Now()
	})

	_, problem := a.await(ctx, seen.Node, func(_ context.Context, now observe.Observation) verdict {
		return verdict{done: now.Relation == observe.ConfigSame, doing: "rebooting into its new config: " + stateText(now)}
	})

	return asError(problem)
}
