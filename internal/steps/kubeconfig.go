package steps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/client/config"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/kube"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/talos"
	"github.com/talos-mage/talos-mage/internal/talos/talosconfig"
)

const kubeconfigName = "kubeconfig"

// kubeconfigValidity is how long the present client certificate must still be good for the file to be left alone.
const kubeconfigValidity = 30 * 24 * time.Hour

// Kubeconfig fetches the cluster's admin kubeconfig and merges it into the user's file; the talosconfig gets the
// cluster's endpoints and nodes.
type Kubeconfig struct{}

// Name is the step's name.
func (Kubeconfig) Name() string { return kubeconfigName }

// Exit is the code for a kubeconfig that could not be had.
func (Kubeconfig) Exit() diagnosis.ExitCode { return diagnosis.ExitKubernetes }

// Mutates marks the step as one that needs the cluster's lock.
func (Kubeconfig) Mutates() {}

// Run leaves both files alone when they are good.
func (s Kubeconfig) Run(ctx context.Context, run *Run) error {
	if err := run.checkKinship(ctx, s.Name()); err != nil {
		return err
	}

	started := run.Clock.Now()
	problem := s.merge(ctx, run, started)
	return diagnosis.Join(problem, s.completeTalosconfig(run))
}

func (s Kubeconfig) merge(ctx context.Context, run *Run, started time.Time) error {
	result := report.Result{Step: s.Name(), Status: report.Failed}
	finish := func(err error) error {
		result.Duration, result.Err = run.Clock.Now().Sub(started), err
		run.Report.Result(result)

		return err
	}

	data, err := awaitKubeconfig(ctx, run)
	switch {
	case ctx.Err() != nil:
		return finish(interrupted(ctx, s.Name()))
	case err != nil && run.Settings.DryRun:
		run.plan(s.Name(), "would be fetched once a control plane is up")
		return wouldMake(s.Name(), run.Settings.Kubeconfig)
	case err != nil:
		return finish(s.unavailable(talos.Explain(err), command("status", nil), err))
	}

	merged, err := run.gate().MergeKubeconfig(run.Settings.Kubeconfig, data, kube.MergeOptions{
		Force:       run.Settings.Force,
		MinValidity: kubeconfigValidity,
		Now:         time.Now, // certificates live in the world's time, not in the run's
		LockFolder:  run.temporaryFolder(),
	})

	var refused *diagnosis.Problem
	switch {
	case errors.As(err, &refused):
		refused.Step = s.Name()
		return finish(refused)
	case err != nil:
		return finish(s.unavailable(err.Error(), "make the file writable, then "+command("kubeconfig", nil), err))
	}

	result.Status, result.Detail = report.Skipped, run.Settings.Kubeconfig+" is good"

	if merged.Changed {
		result.Status, result.Detail = report.Applied, run.Settings.Kubeconfig+", context "+merged.Context
	}

	if merged.Changed && run.Settings.DryRun {
		result.Status = report.Planned
		finish(nil) //nolint:errcheck // gives back what it got

		return wouldMake(s.Name(), run.Settings.Kubeconfig)
	}

	if merged.Backup != "" {
		run.Log.Info().Str("backup", merged.Backup).Msg("kept the old kubeconfig")
	}

	return finish(nil)
}

func (s Kubeconfig) unavailable(cause, next string, err error) *diagnosis.Problem {
	failed := problem(s.Name(), s.Exit(), diagnosis.KubeconfigUnavailable, cause, next)
	failed.Err = err
	return failed
}

// completeTalosconfig gives the cluster's context of the talosconfig the control planes as endpoints and all nodes as
// nodes, if it lacks them. Everything else in the file stays.
func (s Kubeconfig) completeTalosconfig(run *Run) error {
	path := run.Settings.Talosconfig

	// Not config.Open: it would make an empty file where there is none.
	data, err := os.ReadFile(path)
	switch {
	case isNotExist(err):
		return nil
	case err != nil:
		return badInput(fmt.Errorf("read talosconfig: %w", err))
	}

	parsed, err := talosconfig.Parse(data)
	if err != nil {
		return badInput(fmt.Errorf("read talosconfig %s: %w", path, err))
	}

	if !fillContext(parsed.Contexts[parsed.Context], run.Cluster) {
		return nil
	}

	if run.Settings.DryRun {
		run.plan(s.Name(), path+" would get its endpoints and nodes")
		return wouldMake(s.Name(), path)
	}

	if data, err = parsed.Bytes(); err != nil {
		return fmt.Errorf("encode talosconfig: %w", err)
	}

	if err := run.gate().WriteFile(path, data, 0o600); err != nil {
		return unwritable(s.Name(), path, err)
	}

	run.Log.Info().Str("file", path).Msg("talosconfig got its endpoints and nodes")

	return nil
}

// fillContext reports whether the context lacked anything.
func fillContext(current *config.Context, cluster *inventory.Cluster) bool {
	if current == nil || len(current.Endpoints) > 0 && len(current.Nodes) > 0 {
		return false
	}

	endpoints := addressesOf(cluster.ControlPlanes())

	if len(current.Endpoints) == 0 {
		current.Endpoints = endpoints
	}

	if len(current.Nodes) == 0 {
		current.Nodes = slices.Concat(endpoints, addressesOf(cluster.Workers()))
	}

	return true
}

func addressesOf(nodes []*inventory.Node) []string {
	addresses := make([]string, 0, len(nodes))
	for _, node := range nodes {
		addresses = append(addresses, node.Address)
	}

	return addresses
}
