package steps

import (
	"cmp"
	"context"
	"fmt"

	"github.com/rs/zerolog"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	"github.com/talos-mage/talos-mage/internal/base/clock"
	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	clustersecrets "github.com/talos-mage/talos-mage/internal/cluster/secrets"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/gate"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// Run is what a step is given: the cluster, the settings, a way to the nodes, a clock and a recorder. Nothing is
// global.
type Run struct {
	observe.Subject

	// Environ is the environment, as "NAME=value", in which the user's programs are found and run.
	Environ []string
	Report  *report.Recorder
	Log     zerolog.Logger
	// NewSecrets makes the secrets of a cluster that is born with a Talos release.
	NewSecrets func(talosVersion string) (*secrets.Bundle, error)

	files    *reading.Files
	observer *observe.Observer
	lock     *clusterLock
	// made says what became of making files in memory.
	made check.Made
	// filesChecked is set once the files were judged, which no step of a run does again.
	filesChecked bool
}

// New starts a run: it reads the inventory, the machine configs and the talosconfig.
// Bad input is an error with exit code 2; a file that a later step may still make is not.
func New(ctx context.Context, settings *settings.Settings, environ []string, recorder *report.Recorder,
	log zerolog.Logger,
	clk clock.Clock) (*Run, error) {
	run := &Run{
		Subject:    observe.Subject{Settings: settings, Clock: clk},
		Environ:    environ,
		Report:     recorder,
		Log:        log,
		NewSecrets: clustersecrets.New,
	}
	run.observer = observe.New(&run.Subject)
	run.files = run.newFiles(ctx)

	if err := run.load(); err != nil {
		return nil, err
	}

	return run, run.checkNames()
}

// load reads the cluster's files.
func (r *Run) load() error {
	cluster, err := inventory.Load(r.inventoryOptions())
	if err != nil {
		return badInput(err)
	}

	r.Settings.MoveConfigDir(cluster.ConfigDir)

	return r.take(cluster)
}

// reload takes up what the configs step has made: machine configs say more about a cluster than its talconfig.
func (r *Run) reload() error { return r.take(r.Cluster.Renewed()) }

func (r *Run) take(cluster *inventory.Cluster) error {
	r.Cluster = cluster
	r.loadConfigs()

	return r.loadCredentials()
}

// newFiles are what the run reads, each file once. A context that ends stops the programs that decrypt.
func (r *Run) newFiles(ctx context.Context) *reading.Files {
	shown := reading.New(r.Settings.RootDir, nil).Shown

	return reading.New(r.Settings.RootDir, func(path string, data []byte) ([]byte, error) {
		return r.sops().Decrypt(ctx, shown(path), data)
	})
}

func (r *Run) inventoryOptions() inventory.Options {
	return inventory.Options{
		TalosDir:  r.Settings.TalosDir,
		Source:    inventory.Kind(r.Settings.ClusterSource),
		ConfigDir: r.Settings.ClusterConfigDir,
		Environ:   r.Environ,
		Files:     r.files,
	}
}

func (r *Run) loadConfigs() {
	r.Configs = make(map[string]*machineconfig.Config)

	for _, node := range r.Cluster.Nodes {
		config, err := r.Cluster.MachineConfig(node)
		if err == nil {
			r.Configs[node.Name] = config
		}
	}
}

func (r *Run) loadCredentials() error {
	file := r.files.Open(r.Settings.Talosconfig)
	if file.Missing() || file.Unwritten && r.made.StandIn != "" {
		r.Credentials = nil

		return nil
	}

	credentials, err := talos.ParseCredentials(file.Data)
	if err = cmp.Or(file.Err, err); err != nil {
		return badInput(fmt.Errorf("read talosconfig %s: %w", r.Settings.Talosconfig, err))
	}

	r.Credentials = credentials

	return nil
}

// checkNames refuses settings that name nodes which the inventory does not have.
func (r *Run) checkNames() error {
	named := map[string][]string{
		"NODE":         r.Settings.Node,
		"-assumeEmpty": r.Settings.AssumeEmpty,
	}

	if r.Settings.BootstrapNode != "" {
		named["BOOTSTRAP_NODE"] = []string{r.Settings.BootstrapNode}
	}

	for name := range r.Settings.NodeAddresses {
		named["NODE_ADDRESSES"] = append(named["NODE_ADDRESSES"], name)
	}

	for _, variable := range []string{"NODE", "-assumeEmpty", "BOOTSTRAP_NODE", "NODE_ADDRESSES"} {
		for _, name := range named[variable] {
			if err := r.checkName(variable, name); err != nil {
				return err
			}
		}
	}

	return nil
}

func (r *Run) checkName(variable, name string) error {
	node := r.Cluster.Node(name)
	if node == nil {
		names := make([]string, 0, len(r.Cluster.Nodes))
		for _, node := range r.Cluster.Nodes {
			names = append(names, node.Name)
		}

		return &diagnosis.Problem{Finding: diagnosis.Finding{
			ID:       diagnosis.UnknownNode,
			Severity: diagnosis.Failure,
			Cause: fmt.Sprintf("%s names %q, which is not a node of %s; it takes %s", variable, name, r.Cluster.Source,
				text.List(names)),
			Next: "correct " + variable,
		}}
	}

	if variable == "BOOTSTRAP_NODE" && node.Role != inventory.ControlPlane {
		return &diagnosis.Problem{Finding: diagnosis.Finding{
			ID:       diagnosis.UnknownNode,
			Severity: diagnosis.Failure,
			Node:     node.Name,
			Cause:    "BOOTSTRAP_NODE names a worker: etcd runs on control planes only",
			Next:     "name a control plane",
		}}
	}

	return nil
}

// gate is the way of every change to a node or a file.
func (r *Run) gate() gate.Gate { return gate.New(r.Settings.DryRun) }

// Nodes are the nodes that this run works on: all, or those that -node= names.
func (r *Run) Nodes() []*inventory.Node {
	if len(r.Settings.Node) == 0 {
		return r.Cluster.Nodes
	}

	var nodes []*inventory.Node

	for _, node := range r.Cluster.Nodes {
		if r.selected(node) {
			nodes = append(nodes, node)
		}
	}

	return nodes
}

func (r *Run) selected(node *inventory.Node) bool {
	return len(r.Settings.Node) == 0 || namesNode(r.Settings.Node, node)
}

func namesNode(names []string, node *inventory.Node) bool {
	for _, name := range names {
		if name == node.Name || name == node.Address {
			return true
		}
	}

	return false
}

// present are the nodes of the run that no earlier step had to leave out.
func (r *Run) present(nodes []*inventory.Node) []*inventory.Node {
	var present []*inventory.Node

	for _, node := range nodes {
		if r.observer.Facts(node).Failed == nil {
			present = append(present, node)
		}
	}

	return present
}

// joining are the workers that apply left for later, and no step has had to leave out.
func (r *Run) joining() []*inventory.Node {
	var joining []*inventory.Node

	for _, node := range r.present(r.Nodes()) {
		if r.observer.Facts(node).Joining {
			joining = append(joining, node)
		}
	}

	return joining
}

func ofRole(nodes []*inventory.Node, role inventory.Role) []*inventory.Node {
	var matching []*inventory.Node

	for _, node := range nodes {
		if node.Role == role {
			matching = append(matching, node)
		}
	}

	return matching
}

func names(nodes []*inventory.Node) []string {
	names := make([]string, 0, len(nodes))
	for _, node := range nodes {
		names = append(names, node.Name)
	}

	return names
}
