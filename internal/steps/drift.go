package steps

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/steps/workspace"
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

		if seen.InstallFailure != "" {
			result.status = report.Warned
			result.detail += ", but its install fails: " + seen.InstallFailure
		}

		return nil
	case observe.ConfigSwapped:
		return a.swapped(seen)
	case observe.ConfigUnsent:
		return a.unsent(seen)
	case observe.ConfigDrifted:
		if seen.Install != nil && seen.Installing() {
			return a.reconcileInstall(ctx, seen, result)
		}

		return a.reconcileDrift(ctx, seen, result)
	default:
		if _, err := a.config(seen); err != nil {
			return err
		}

		return &againError{fmt.Errorf("read the node's config: %w", seen.ReadErr), "its config could not be read"}
	}
}

// reconcileInstall corrects the config of a node whose unattended install fails. Such a node holds nothing yet, so it
// is given its config as in maintenance, and takes it for its next try; while it may succeed, it is left alone.
func (a *applier) reconcileInstall(ctx context.Context, seen observe.Observation, result *outcome) error {
	if a.Settings.DryRun && seen.InstallFailure == "" {
		result.status, result.detail = report.Planned, "installing: would be waited for, as its config differs"
		return nil
	}

	settled, problem := a.await(ctx, seen.Node, func(_ context.Context, now observe.Observation) verdict {
		return verdict{
			done:  now.State != talos.Ours || !now.Installing() || now.InstallFailure != "",
			doing: "waiting for the install to end: " + stageText(now),
		}
	})
	switch {
	case problem != nil:
		return problem
	case settled.State == talos.Ours && settled.InstallFailure != "" && settled.Relation == observe.ConfigDrifted:
		return a.send(ctx, settled, nil, result)
	default:
		return &againError{error: errors.New("apply config: the node changed its state meanwhile")}
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
	result.detail = "differs from " + a.shown(seen.Node.ConfigFile)
	result.outdated = isOutdated(a.Run, seen)

	if a.Settings.DryRun && !result.outdated {
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
		Cause: "its config differs from " + a.shown(seen.Node.ConfigFile) + ":\n" +
			machineconfig.Diff(seen.Config, a.Configs[seen.Node.Name]),
		Next: endDrift(a.Run, seen, command("applySequential", seen.Node)+" -update"),
	})
}

// planChange shows what a dry run would change.
func (a *applier) planChange(ctx context.Context, seen observe.Observation, result *outcome) error {
	conn, plan, err := a.rehearse(ctx, seen)
	if err != nil {
		return err
	}
	defer conn.Close()

	a.showDiff(seen)
	a.tellWaiting(seen, plan)

	result.status, result.detail = report.Planned, "would be applied with mode "+plan.effect

	return nil
}

// rehearse has the node check its new config, and tells how it gets it. The connection stays open for the real call.
func (a *applier) rehearse(ctx context.Context, seen observe.Observation) (conn *talos.Conn, plan delivery, err error) {
	config, err := a.config(seen)
	if err != nil {
		return nil, delivery{}, err
	}

	conn, err = a.observer.Dialer().Secure(ctx, seen.Address)
	if err != nil {
		return nil, delivery{}, a.classified(talos.OpDial, err)
	}

	if plan, err = a.checkedPlan(ctx, conn, seen, config); err != nil {
		conn.Close()
		return nil, delivery{}, err
	}

	return conn, plan, nil
}

// checkedPlan is how the declared machine on a connection gets its new config, once it has checked it.
func (a *applier) checkedPlan(ctx context.Context, conn *talos.Conn, seen observe.Observation,
	config *machineconfig.Config) (delivery, error) {
	if err := a.admitMachine(ctx, conn, seen); err != nil {
		return delivery{}, err
	}

	plan, err := a.plan(ctx, conn, seen)
	if err != nil {
		return delivery{}, err
	}

	rehearsed, err := a.gate.Rehearse(ctx, conn, config.Bytes, plan.mode)
	if err != nil {
		return delivery{}, a.classified(talos.OpDryRun, err)
	}

	plan.effect = cmp.Or(plan.effect, rehearsed.Mode)

	return plan, nil
}

// change sends a configured node its new config over the secure API. With an etcd, it must be healthy before and after.
func (a *applier) change(ctx context.Context, seen observe.Observation, etcd observe.EtcdSurvey,
	result *outcome) error {
	conn, plan, err := a.rehearse(ctx, seen)
	if err != nil {
		return err
	}
	defer conn.Close()

	if etcd.MayExist() {
		if err := a.mayChange(seen, etcd, plan); err != nil {
			return err
		}
	}

	a.Echo.Info().Str("node", seen.Node.Name).Str("mode", plan.effect).Msg("applying the changed config")

	if err := a.deliver(ctx, conn, seen, plan, result); err != nil {
		return err
	}

	if !etcd.MayExist() {
		return nil
	}

	return a.healthyAgain(ctx, seen)
}

// deliver sends the config as planned, and reboots the node if that is part of the plan.
func (a *applier) deliver(ctx context.Context, conn *talos.Conn, seen observe.Observation, plan delivery,
	result *outcome) error {
	applied, err := a.apply(ctx, conn, seen, a.Configs[seen.Node.Name], plan.mode)
	switch {
	case err == nil:
		a.warn(seen.Node, applied.Warnings)
		a.tellWaiting(seen, plan)

		result.status, result.detail = report.Applied, "changed, mode "+plan.effect
	case plan.reboot && talos.Classify(talos.OpApply, err) == talos.UnknownOutcome:
		// What is staged shows nowhere, and staging it again does no harm.
		return &againError{fmt.Errorf("apply config: %w", err), "the config was sent, but no reply came"}
	case talos.Classify(talos.OpApply, err) == talos.UnknownOutcome:
		return a.settle(ctx, seen, err, result)
	default:
		return a.classified(talos.OpApply, err)
	}

	if plan.reboot {
		return a.reboot(ctx, conn, seen)
	}

	return nil
}

// mayChange guards a running cluster: etcd healthy, a reboot asked for, quorum kept, and the change before this one
// gone well.
func (a *applier) mayChange(seen observe.Observation, etcd observe.EtcdSurvey, plan delivery) error {
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

	if plan.effect != talos.ModeReboot {
		return nil
	}

	if !a.Settings.Reboot {
		return a.problem(seen, diagnosis.UpdateNeedsReboot,
			plan.why(), a.command(seen.Node)+" -update -reboot")
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

// endDrift is what to do about a node that differs from its file: have the node take the file, by a command; or make
// an outdated file anew.
func endDrift(run *Run, seen observe.Observation, takeFile string) string {
	if !isOutdated(run, seen) {
		return takeFile
	}

	return fmt.Sprintf("%s (the node runs Kubernetes %s, as declared, and its file is older)", renderAnew(run),
		run.Cluster.KubernetesVersion)
}

// isOutdated reports whether a node runs the Kubernetes that is declared, and its file holds another. So it is after an
// upgrade, which the file would take back.
func isOutdated(run *Run, seen observe.Observation) bool {
	declared := run.Cluster.KubernetesVersion

	return kubeletVersion(seen.Config) == declared && kubeletVersion(run.Configs[seen.Node.Name]) != declared
}

func kubeletVersion(config *machineconfig.Config) string {
	return machineconfig.KubernetesOf(config.Kubelet().Image())
}

// renderAnew is how machine configs are made for what is declared by now. Those that are there hold the secrets.
func renderAnew(run *Run) string {
	shown := run.Cluster.Files.Shown

	switch path, _ := run.workspace.NewSecretsPath(); {
	case run.Settings.ConfigGenerator == workspace.NoGenerator:
		return "make the machine configs anew"
	case run.Cluster.SecretsPath() != "":
		return "mage config:generate"
	default:
		return fmt.Sprintf("restore %s, or recover it: mage config:secrets -from=%s; then mage config:generate", shown(path),
			shown(run.Cluster.ControlPlanes()[0].ConfigFile))
	}
}
