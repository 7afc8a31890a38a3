package steps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/client/config"

	"github.com/talos-mage/talos-mage/internal/base/plainfile"
	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/kube"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/steps/workspace"
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

// completeTalosconfig gives the cluster's context of the talosconfig the control planes as endpoints and all nodes as
// nodes, if it lacks them or has addresses of machines that were replaced. Everything else in the file stays.
func (m *kubeconfigMerger) completeTalosconfig(ctx context.Context) error {
	path := m.Settings.Talosconfig

	// Not config.Open: it would make an empty file where there is none.
	data, _, err := plainfile.Read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return workspace.BadInput(fmt.Errorf("read talosconfig: %w", err))
	}

	parsed, err := talosconfig.Parse(data)
	if err != nil {
		return workspace.BadInput(fmt.Errorf("read talosconfig %s: %w", path, err))
	}

	if !m.fillContext(parsed.Contexts[parsed.Context]) {
		return nil
	}

	if m.Settings.DryRun {
		return m.wouldWrite(path, path+" would get its endpoints and nodes")
	}

	if data, err = parsed.Bytes(); err != nil {
		return fmt.Errorf("encode talosconfig: %w", err)
	}

	if err := unwritable(path, m.gate.WriteFile(path, data, 0o600)); err != nil {
		return m.ofStep(ctx, err)
	}

	m.Log.Info().Str("file", path).Msg("talosconfig got its endpoints and nodes")
	return nil
}

// fillContext reports whether the context lacked anything.
func (m *kubeconfigMerger) fillContext(current *config.Context) bool {
	if current == nil {
		return false
	}

	controlPlanes := addressesOf(m.Cluster.ControlPlanes())
	endpoints := m.renewed(current.Endpoints, controlPlanes)
	nodes := m.renewed(current.Nodes, slices.Concat(controlPlanes, addressesOf(m.Cluster.Workers())))
	changed := !slices.Equal(endpoints, current.Endpoints) || !slices.Equal(nodes, current.Nodes)
	current.Endpoints, current.Nodes = endpoints, nodes

	return changed
}

// renewed are the addresses that are there, if they are still somebody's; else those that are, and all wanted ones.
func (m *kubeconfigMerger) renewed(present, wanted []string) []string {
	kept := filtered(present, func(address string) bool { return !m.isGone(address) })
	if len(kept) > 0 && len(kept) == len(present) {
		return present
	}

	for _, address := range wanted {
		kept = text.AppendNew(kept, address)
	}

	return kept
}

// isGone reports whether no node has an address, and no certificate is for it: it is that of a machine that was
// replaced. A name, and an address where nodes learn theirs, may be anybody's.
func (m *kubeconfigMerger) isGone(endpoint string) bool {
	host := check.EndpointHost(endpoint)

	address, err := netip.ParseAddr(host)
	if err != nil || host == m.Cluster.Endpoint.Hostname() {
		return false
	}

	return !slices.ContainsFunc(m.Cluster.Nodes, func(node *inventory.Node) bool {
		config := m.Configs[node.Name]
		return config == nil || config.UsesDHCP() || len(config.Addresses()) == 0 ||
			slices.Contains(m.observer.Addresses(node), host) || slices.Contains(config.CertSANs(), host) ||
			slices.Contains(config.VIPs(), address)
	})
}

func addressesOf(nodes []*inventory.Node) []string {
	addresses := make([]string, 0, len(nodes))
	for _, node := range nodes {
		addresses = append(addresses, node.Address)
	}

	return addresses
}
