package steps

import (
	"context"
	"errors"
	"fmt"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// reconcile decides about a node that is configured by us already.
func (a *applier) reconcile(ctx context.Context, seen observe.Observation, result *outcome) error {
	switch seen.Relation {
	case observe.ConfigSame:
		result.status, result.detail = report.Skipped, "has its config"

		if sent := a.observer.Facts(seen.Node).Sent; sent != nil {
			result.status, result.detail = report.Applied, "config is there"
		}

		return nil
	case observe.ConfigSwapped:
		return a.swapped(seen)
	case observe.ConfigUnsent:
		return a.unsent(seen)
	case observe.ConfigDrifted:
		return a.reconcileDrift(ctx, seen, result)
	default:
		if _, err := a.config(seen); err != nil {
			return err
		}

		return &againError{fmt.Errorf("read the node's config: %w", seen.ReadErr), "its config could not be read"}
	}
}

// reconcileDrift gives a node its new config, unless the cluster has an etcd and nobody asked for it.
func (a *applier) reconcileDrift(ctx context.Context, seen observe.Observation, result *outcome) error {
	etcd := a.observer.SurveyEtcd(ctx)
	switch {
	case !a.Settings.Update && etcd.MayExist() && (a.Settings.DryRun || !etcd.MayTurnOutEmpty()):
		return a.leaveDrifted(seen, result)
	case a.Settings.DryRun:
		return a.planChange(ctx, seen, result)
	}

	settled, problem := a.await(ctx, seen.Node, func(ctx context.Context, now observe.Observation) verdict {
		switch {
		case now.NotOurs() || now.State == talos.Maintenance:
			return verdict{done: true}
		case !now.Up():
			// A change that reboots takes over a running installer, so the install must be over.
			return verdict{doing: "waiting for the install to end: " + stageText(now)}
		}

		// The wait may have been long, and an etcd may have come up in it.
		etcd = a.observer.SurveyEtcd(ctx)

		return verdict{
			done:  a.Settings.Update || !etcd.MayExist() || !etcd.MayTurnOutEmpty(),
			doing: "waiting for the control planes to say whether etcd exists",
		}
	})
	switch {
	case problem != nil && settled.Up() && ctx.Err() == nil:
		return a.leaveDrifted(settled, result)
	case problem != nil:
		return problem
	case settled.NotOurs() || settled.Relation != observe.ConfigDrifted:
		return &againError{error: errors.New("apply config: the node changed its state meanwhile")}
	case etcd.MayExist() && !a.Settings.Update:
		return a.leaveDrifted(settled, result)
	}

	return a.change(ctx, settled, etcd, result)
}

// leaveDrifted shows the difference and changes nothing: a running cluster is never reconfigured unasked.
func (a *applier) leaveDrifted(seen observe.Observation, result *outcome) error {
	result.status = report.Drifted
	result.detail = "differs from " + seen.Node.ConfigFile

	if a.Settings.DryRun {
		result.detail += ", only -update would change it"
	}

	a.showDiff(seen)

	return nil
}

func (a *applier) showDiff(seen observe.Observation) {
	a.Report.Finding(a.step.Name(), diagnosis.Finding{
		ID:       diagnosis.ConfigDrifted,
		Severity: diagnosis.Warning,
		Node:     seen.Node.Name,
		Address:  seen.Address,
		Cause: "its config differs from " + seen.Node.ConfigFile + ":\n" +
			machineconfig.Diff(seen.Config, a.Configs[seen.Node.Name]),
		Next: command("applySequential", seen.Node) + " -update",
	})
}

// planChange shows what a dry run would change.
func (a *applier) planChange(ctx context.Context, seen observe.Observation, result *outcome) error {
	conn, mode, err := a.rehearse(ctx, seen)
	if err != nil {
		return err
	}
	defer conn.Close()

	a.showDiff(seen)

	result.status, result.detail = report.Planned, "would be applied with mode "+mode

	return nil
}

// rehearse has the node check its new config and tell the mode in which it would take it. The connection stays open for
// the real call.
func (a *applier) rehearse(ctx context.Context, seen observe.Observation) (conn *talos.Conn, mode string, err error) {
	config, err := a.config(seen)
	if err != nil {
		return nil, "", err
	}

	conn, err = a.observer.Dialer().Secure(ctx, seen.Address)
	if err != nil {
		return nil, "", a.classified(talos.OpDial, err)
	}

	if err = a.admitMachine(ctx, conn, seen); err == nil {
		var planned talos.Applied

		planned, err = a.gate.Rehearse(ctx, conn, config.Bytes, a.Settings.Mode)
		if err == nil {
			return conn, planned.Mode, nil
		}

		err = a.classified(talos.OpDryRun, err)
	}

	conn.Close()

	return nil, "", err
}

// change sends a configured node its new config over the secure API. With an etcd, it must be healthy before and after.
func (a *applier) change(ctx context.Context, seen observe.Observation, etcd observe.EtcdSurvey,
	result *outcome) error {
	conn, mode, err := a.rehearse(ctx, seen)
	if err != nil {
		return err
	}
	defer conn.Close()

	if etcd.MayExist() {
		if err := a.mayChange(seen, etcd, mode); err != nil {
			return err
		}
	}

	a.Log.Info().Str("node", seen.Node.Name).Str("mode", mode).Msg("applying the changed config")

	applied, err := a.apply(ctx, conn, seen, a.Configs[seen.Node.Name], a.Settings.Mode)
	switch {
	case err == nil:
		a.warn(seen.Node, applied.Warnings)

		result.status, result.detail = report.Applied, "changed, mode "+applied.Mode
	case talos.Classify(talos.OpApply, err) == talos.UnknownOutcome:
		if err := a.settle(ctx, seen, err, result); err != nil {
			return err
		}
	default:
		return a.classified(talos.OpApply, err)
	}

	if !etcd.MayExist() {
		return nil
	}

	return a.healthyAgain(ctx, seen)
}

// mayChange guards a running cluster: etcd healthy, a reboot asked for, quorum kept, and the change before this one
// gone well.
func (a *applier) mayChange(seen observe.Observation, etcd observe.EtcdSurvey, mode string) error {
	if broken := a.brokenBy.Load(); broken != nil {
		return a.problem(seen, diagnosis.ChangeHeldBack,
			fmt.Sprintf("it is left unchanged, since %s did not come back healthy from its own change", broken.Name),
			"fix "+broken.Name+" first: mage status")
	}

	// A control plane whose own etcd is ill may be changed: that may be its cure.
	others := etcd.Without(seen.Node)
	if unhealthy := others.Unhealthy(); len(unhealthy) > 0 {
		problem := a.problem(seen, diagnosis.EtcdNotHealthy,
			"etcd is not healthy, so nothing is changed: "+text.List(unhealthy), command("status", nil))
		if others.Unchecked() {
			return &againError{error: problem}
		}

		return problem
	}

	if mode != talos.ModeReboot {
		return nil
	}

	if !a.Settings.Reboot {
		return a.problem(seen, diagnosis.UpdateNeedsReboot,
			"this change reboots the node", a.command(seen.Node)+" -update -reboot")
	}

	if etcd.LosesQuorumWithout(seen.Node) {
		return a.problem(seen, diagnosis.QuorumWouldBeLost,
			"rebooting it would cost etcd its quorum", "bring the other control planes up first: mage status")
	}

	a.Log.Warn().Str("node", seen.Node.Name).Msg("this change reboots the node")

	return nil
}

// healthyAgain waits until the changed node and etcd are well, before the next node is touched.
func (a *applier) healthyAgain(ctx context.Context, changed observe.Observation) error {
	_, problem := a.await(ctx, changed.Node, func(ctx context.Context, now observe.Observation) verdict {
		// A staged config takes effect at the next reboot only.
		if !now.Up() || now.Relation != observe.ConfigSame && a.Settings.Mode != talos.ModeStaged {
			return verdict{doing: "waiting for the changed node: " + stageText(now)}
		}

		unhealthy := a.observer.SurveyEtcd(ctx).Unhealthy()
		return verdict{done: len(unhealthy) == 0, doing: "waiting for etcd: " + text.List(unhealthy)}
	})
	if problem != nil {
		a.brokenBy.Store(changed.Node)
		return problem
	}

	return nil
}
