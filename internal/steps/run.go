package steps

import (
	"context"
	"slices"

	"github.com/rs/zerolog"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	"github.com/talos-mage/talos-mage/internal/base/clock"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	clustersecrets "github.com/talos-mage/talos-mage/internal/cluster/secrets"
	"github.com/talos-mage/talos-mage/internal/cluster/throwaway"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/gate"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/workspace"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// Run is what a step is given: what was read of the cluster, a way to the nodes, a clock and a recorder. Nothing is
// global.
type Run struct {
	*workspace.Contents

	Clock  clock.Clock
	Report *report.Recorder
	Log    zerolog.Logger
	// Echo is for log lines that say what results and progress say, too.
	Echo zerolog.Logger
	// Ask has a person answer a question; nil where there is none.
	Ask func(ctx context.Context, question string) (answer string, err error)
	// Unheard is set where nobody may read the report: what the run failed for is then told in full.
	Unheard bool
	// Agree agrees in a person's place to the loss of what has that name, or says why not; nil where a person does.
	Agree func(name string) error
	// Hooks are an embedding program's.
	Hooks Hooks
	// NewSecrets makes the secrets of a cluster that is born with a Talos release.
	NewSecrets func(talosVersion string) (*secrets.Bundle, error)
	// Outdated is set once the run found machine configs that no longer fit what is declared, and left them alone.
	Outdated *diagnosis.Finding

	workspace *workspace.Workspace
	observer  *observe.Observer
	finder    finder
	// gate is the way of every change to a node or a file.
	gate gate.Gate
	lock clusterLock
	// filesChecked is set once the files were judged, which no step of a run does again.
	filesChecked bool
}

// New starts a run: it reads the inventory, the machine configs and the talosconfig.
// Bad input is an error with exit code 2; a file that a later step may still make is not.
func New(ctx context.Context, settings *settings.Settings, environ []string, recorder *report.Recorder,
	log zerolog.Logger, clk clock.Clock) (*Run, error) {
	files := workspace.New(ctx, settings, environ)

	return newRun(files, files.Load, recorder, log, clk)
}

// NewAnywhere starts a run that may do without a cluster: where no file declares one, it has no nodes.
func NewAnywhere(ctx context.Context, settings *settings.Settings, environ []string, recorder *report.Recorder,
	log zerolog.Logger, clk clock.Clock) (*Run, error) {
	files := workspace.New(ctx, settings, environ)

	return newRun(files, files.LoadAny, recorder, log, clk)
}

func newRun(files *workspace.Workspace, load func() error, recorder *report.Recorder, log zerolog.Logger,
	clk clock.Clock) (*Run, error) {
	if err := load(); err != nil {
		return nil, err
	}

	run := &Run{
		Contents:   &files.Contents,
		Clock:      clk,
		Report:     recorder,
		Log:        log,
		Echo:       log,
		NewSecrets: clustersecrets.New,
		workspace:  files,
		gate:       gate.New(files.Settings.DryRun),
		lock:       clusterLock{workspace: files, clock: clk, log: log},
	}

	run.observer = observe.New(&files.Contents, clk, run.lookFor)

	return run, CheckNames(run.Settings, run.Cluster)
}

// Nodes are the nodes that this run works on: all, or those that -node= names.
func (r *Run) Nodes() []*inventory.Node { return filtered(r.Cluster.Nodes, r.selected) }

func (r *Run) selected(node *inventory.Node) bool {
	return len(r.Settings.Node) == 0 || r.Settings.OfCluster != "" || namesNode(r.Settings.Node, node)
}

func namesNode(names []string, node *inventory.Node) bool {
	return slices.Contains(names, node.Name) || slices.Contains(names, node.Address)
}

// present are the nodes of the run that no earlier step had to leave out.
func (r *Run) present() []*inventory.Node {
	return filtered(r.Nodes(), func(node *inventory.Node) bool { return r.observer.Facts(node).Failed == nil })
}

// joining are the workers that apply left for later, and no step has had to leave out.
func (r *Run) joining() []*inventory.Node {
	return filtered(r.present(), func(node *inventory.Node) bool { return r.observer.Facts(node).Joining })
}

// unjudged reports whether what answers can't be told to be ours or to be as declared, since throwaway secrets stand
// in for the cluster's own.
func (r *Run) unjudged(seen observe.Observation) bool {
	config := r.Configs[seen.Node.Name]

	return seen.Wrong == nil && (seen.State == talos.UnknownCA && r.workspace.Made.StandIn != "" ||
		seen.State == talos.Ours && config != nil && throwaway.Made(config.Bytes))
}

// notJudged is what is said of such a node.
const notJudged = "configured, but not judged: throwaway secrets can't tell whose it is, or whether it has drifted"

func filtered[T any](all []T, wanted func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(one T) bool { return !wanted(one) })
}

func ofRole(nodes []*inventory.Node, role inventory.Role) []*inventory.Node {
	return filtered(nodes, func(node *inventory.Node) bool { return node.Role == role })
}

func names(nodes []*inventory.Node) []string {
	names := make([]string, 0, len(nodes))
	for _, node := range nodes {
		names = append(names, node.Name)
	}

	return names
}
