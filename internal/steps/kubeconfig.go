package steps

import (
	"context"
	"path/filepath"
	"time"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/kube"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/workspace"
	"github.com/talos-mage/talos-mage/internal/talos"
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
	merger := &kubeconfigMerger{begin(run, s)}
	if err := merger.checkKinship(ctx); err != nil {
		return err
	}

	return diagnosis.Join(merger.merge(ctx), merger.completeTalosconfig(ctx))
}

// kubeconfigMerger is one run of the kubeconfig step.
type kubeconfigMerger struct{ *work }

func (m *kubeconfigMerger) merge(ctx context.Context) error {
	path, shown := m.Settings.Kubeconfig, m.shown(m.Settings.Kubeconfig)

	data, err := awaitKubeconfig(ctx, m.Run)
	switch {
	case err != nil && m.Settings.DryRun && ctx.Err() == nil:
		return m.wouldWrite(shown, "would be fetched once a control plane is up")
	case err != nil || ctx.Err() != nil:
		return m.failed(ctx, m.unavailable(talos.Explain(err), command("status", nil), err))
	}

	merged, err := m.gate.MergeKubeconfig(path, data, kube.MergeOptions{
		Force:       m.Settings.Force,
		MinValidity: kubeconfigValidity,
		Now:         workspace.CertificateTime,
		LockFolder:  m.workspace.TemporaryFolder(),
	})

	_, refused := diagnosis.AsProblem(err)
	switch {
	case refused:
		return m.failed(ctx, err)
	case err != nil:
		return m.failed(ctx, m.unavailable(err.Error(), "make the file writable, then "+m.command(nil), err))
	case !merged.Changed:
		return m.done(report.Skipped, shown+" is good")
	case m.Settings.DryRun:
		return m.wouldWrite(shown, shown+", context "+merged.Context)
	}

	m.warnUnlessIgnored(ctx, path)

	if merged.Backup != "" {
		m.Log.Info().Str("backup", merged.Backup).Msg("kept the old kubeconfig")
	}

	return m.done(report.Applied, shown+", context "+merged.Context)
}

// warnUnlessIgnored says so if git would take the file into a commit.
func (m *kubeconfigMerger) warnUnlessIgnored(ctx context.Context, path string) {
	if !m.workspace.Unignored(ctx, path) {
		return
	}

	m.Report.Finding(m.step.Name(), diagnosis.Finding{
		ID:       diagnosis.KubeconfigNotIgnored,
		Severity: diagnosis.Warning,
		Cause:    "git does not ignore " + m.shown(path) + ", which holds an administrator's key of the cluster",
		Next:     "list " + filepath.Base(path) + "* in " + m.shown(filepath.Join(filepath.Dir(path), ".gitignore")),
	})
}

func (m *kubeconfigMerger) unavailable(cause, next string, err error) *diagnosis.Problem {
	return m.clusterProblem(diagnosis.KubeconfigUnavailable, cause, next).From(err)
}
