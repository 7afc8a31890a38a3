package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/client/config"

	"github.com/talos-mage/talos-mage/internal/atomicfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/kubeapi"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/talosapi"
)

const kubeconfigName = "kubeconfig"

// kubeconfigValidity is how long the present client certificate must still be good for the file to be left alone.
const kubeconfigValidity = 30 * 24 * time.Hour

// Kubeconfig fetches the cluster's admin kubeconfig and merges it into the user's file; the talosconfig gets the cluster's endpoints and nodes.
type Kubeconfig struct{}

// Name is the step's name.
func (Kubeconfig) Name() string { return kubeconfigName }

// Mutates marks the step as one that needs the cluster's lock.
func (Kubeconfig) Mutates() {}

// Run leaves both files alone when they are good.
func (s Kubeconfig) Run(ctx context.Context, run *Run) error {
	started := run.Clock.Now()
	problem := s.merge(ctx, run, started)

	return errors.Join(problem, s.completeTalosconfig(run))
}

func (s Kubeconfig) merge(ctx context.Context, run *Run, started time.Time) error {
	result := report.Result{Step: s.Name(), Status: report.Failed}
	finish := func(err error) error {
		result.Duration, result.Err = run.Clock.Now().Sub(started), err
		run.Report.Result(result)

		return err
	}

	data, _, err := run.fetchKubeconfig(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return finish(run.kubernetesInterrupted(ctx, s.Name()))
		}

		return finish(run.kubernetesProblem(s.Name(), diagnosis.KubeconfigUnavailable, talosapi.Explain(err), command("status", nil), err))
	}

	merged, err := kubeapi.Merge(run.Settings.Kubeconfig, data, kubeapi.MergeOptions{
		Force:       run.Settings.Force,
		MinValidity: kubeconfigValidity,
		Now:         time.Now, // certificates live in the world's time, not in the run's
		DryRun:      run.Settings.DryRun,
	})

	var refused *diagnosis.Problem

	switch {
	case errors.As(err, &refused):
		refused.Step = s.Name()

		return finish(refused)
	case err != nil:
		return finish(run.kubernetesProblem(s.Name(), diagnosis.KubeconfigUnavailable, err.Error(), "make the file writable, then "+command("kubeconfig", nil), err))
	}

	result.Status, result.Detail = report.Skipped, run.Settings.Kubeconfig+" is good"

	if merged.Changed {
		result.Status, result.Detail = report.Applied, run.Settings.Kubeconfig+", context "+merged.Context
	}

	if merged.Changed && run.Settings.DryRun {
		result.Status = report.Planned
		finish(nil) //nolint:errcheck // gives back what it got

		return dryRunOutcome(run, s.Name(), []outcome{{node: run.Cluster.ControlPlanes()[0], status: report.Planned}})
	}

	if merged.Backup != "" {
		run.Log.Info().Str("backup", merged.Backup).Msg("kept the old kubeconfig")
	}

	return finish(nil)
}

// completeTalosconfig gives the cluster's talosconfig the control planes as endpoints and all nodes as nodes, if it has none.
func (s Kubeconfig) completeTalosconfig(run *Run) error {
	talosconfig, err := config.Open(run.Settings.Talosconfig)
	if err != nil {
		return badInput(fmt.Errorf("read talosconfig: %w", err))
	}

	current := talosconfig.Contexts[talosconfig.Context]
	if current == nil {
		return nil
	}

	endpoints := make([]string, 0, len(run.Cluster.Nodes))
	for _, node := range run.Cluster.ControlPlanes() {
		endpoints = append(endpoints, node.Address)
	}

	nodes := slices.Clone(endpoints)
	for _, node := range run.Cluster.Workers() {
		nodes = append(nodes, node.Address)
	}

	changed := false

	if len(current.Endpoints) == 0 {
		current.Endpoints, changed = endpoints, true
	}

	if len(current.Nodes) == 0 {
		current.Nodes, changed = nodes, true
	}

	if !changed || run.Settings.DryRun {
		return nil
	}

	data, err := talosconfig.Bytes()
	if err != nil {
		return fmt.Errorf("encode talosconfig: %w", err)
	}

	if err := atomicfile.WriteFile(run.Settings.Talosconfig, data, 0o600); err != nil {
		return fmt.Errorf("write talosconfig: %w", err)
	}

	run.Log.Info().Str("file", run.Settings.Talosconfig).Msg("talosconfig got its endpoints and nodes")

	return nil
}
