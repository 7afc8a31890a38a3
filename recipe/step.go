package recipe

import (
	"cmp"
	"context"
	"time"

	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
)

// Step is one thing to do for a cluster. The functions of this package make them; the zero Step can't be run.
type Step struct {
	plan func(*settings.Settings) steps.Step
	// located is set if a search for the machines goes before it, where that is asked for.
	located bool
}

// Name is how the step is called in outcomes, hooks and messages. That of an Apply is applySequential or applyParallel,
// as APPLY_MODE says; by Name the former.
func (s Step) Name() string {
	if s.plan == nil {
		return ""
	}

	return s.plan(&settings.Settings{}).Name()
}

// Run executes the step alone, as a recipe of its name does.
func (s Step) Run(ctx context.Context, options Options) (Result, error) {
	return Recipe{Name: cmp.Or(s.Name(), "a step"), Steps: []Step{s}}.Run(ctx, options)
}

// GenerateSecrets makes the cluster's secrets if there are none. Its name is secrets, and its exit code ExitUnexpected.
func GenerateSecrets() Step { return fixed(steps.Secrets{ByName: true}) }

// GenerateConfigs renders the machine configs and the talosconfig, and replaces those that changed. Its name is
// configs, and its exit code ExitUnexpected.
func GenerateConfigs() Step { return fixed(steps.Configs{Replace: true}) }

// Preflight finds what would make a bring-up fail, in the files and on each node. It changes nothing. Its name is
// preflight, and its exit code ExitPreflight; so it ends where no node answers.
func Preflight() Step { return located(steps.Preflight{}) }

// Apply sends each node its machine config, one at a time, or MAX_PARALLEL of them at once if APPLY_MODE is parallel.
// Nodes that have their config are skipped; on a cluster that is up nothing changes without Options.Update. Its name is
// applySequential or applyParallel, and its exit code ExitApply.
func Apply() Step {
	return Step{plan: func(s *settings.Settings) steps.Step { return steps.Applied(s) }, located: true}
}

// Verify waits until the nodes have left maintenance mode with their own config. Its name is verify, and its exit code
// ExitVerify.
func Verify() Step { return located(steps.Verify{}) }

// Bootstrap starts etcd on one control plane, exactly once, and waits until it is whole and the Kubernetes API answers.
// Its name is bootstrap, and its exit code ExitBootstrap, or ExitKubernetes for that API.
func Bootstrap() Step { return fixed(steps.Bootstrap{}) }

// Kubeconfig merges the cluster's admin kubeconfig into the file KUBECONFIG. Its name is kubeconfig, and its exit code
// ExitKubernetes.
func Kubeconfig() Step { return fixed(steps.Kubeconfig{}) }

// Health looks at a cluster that is up: nodes, etcd, Kubernetes and certificates. It changes nothing. Its name is
// health, and its exit code ExitKubernetes.
func Health() Step {
	return Step{plan: func(*settings.Settings) steps.Step { return &steps.Health{} }}
}

// InstallApps installs the cluster's first applications, once its nodes are registered: namespaces, secrets, CRDs and
// releases, with kubectl, sops and helmfile. Its name is apps, and its exit code ExitKubernetes.
func InstallApps() Step { return fixed(steps.Apps{}) }

// RotateTalosconfig renews the talosconfig's client certificate from the cluster's secrets, if it has expired or soon
// will. Its name is config:rotate, and its exit code ExitBadInput.
func RotateTalosconfig() Step { return fixed(steps.Rotate{}) }

// DefragEtcd has every member of etcd give back the space that it no longer needs, one at a time, the leader last. Its
// name is etcd:defrag, and its exit code ExitBootstrap.
func DefragEtcd() Step { return fixed(steps.EtcdDefrag{}) }

// UpgradeKubernetes brings Kubernetes to the version that the files declare, on every node, with talosctl. Its name is
// upgradeK8s, and its exit code ExitKubernetes.
func UpgradeKubernetes() Step { return fixed(steps.UpgradeK8s{}) }

// SnapshotEtcd copies etcd's data to a new file in the folder snapshots, which holds all Secrets of the cluster. Its
// name is etcd:snapshot, and its exit code ExitBootstrap.
func SnapshotEtcd() Step { return fixed(steps.EtcdSnapshot{}) }

// Upgrade brings nodes to the Talos version and the schematic that the files declare, control planes first, one by one.
// It takes a snapshot of etcd before the first of them. Options.Nodes or Options.Cluster has to say which nodes, and
// Options.LoseDataOf that they may be lost: the one node, or the cluster for several. Its name is upgrade, and its exit
// code ExitApply.
func Upgrade() Step { return fixed(steps.Upgrade{}) }

// WipeNodes takes nodes back to maintenance mode, and destroys all that they hold of a cluster: their config, etcd's
// data and that of workloads. Options.Nodes or Options.Cluster has to say which nodes, and Options.LoseDataOf that
// their data may be lost: the one node, or the cluster for several. Its name is reset, and its exit code ExitApply.
func WipeNodes() Step { return fixed(steps.Reset{}) }

// Func is a step of the program's own: do is called with the cluster, under its lock. An error fails the step for the
// cluster as a whole, with ExitUnexpected, and ends the recipe. A dry run does not call it, and says that it would be.
// The name must not be empty.
func Func(name string, do func(ctx context.Context, cluster Cluster) error) Step {
	if name == "" || do == nil {
		return Step{}
	}

	return fixed(own{name: name, do: do})
}

// Cluster is what the files declare of the cluster that a run is for.
type Cluster struct {
	// Name is the cluster's.
	Name string
	// Endpoint is the URL of its Kubernetes API.
	Endpoint string
	// Nodes are those that the run works on, in the order of the files.
	Nodes []Node
	// Talosconfig and Kubeconfig are the absolute paths of these files, which an earlier step may have to make.
	Talosconfig, Kubeconfig string
}

// Node is a node as the files declare it.
type Node struct {
	// Name is unique in the cluster.
	Name string
	// Address is the declared IP address or DNS name, without a port.
	Address string
	// ControlPlane tells control planes from workers.
	ControlPlane bool
}

func fixed(step steps.Step) Step {
	return Step{plan: func(*settings.Settings) steps.Step { return step }}
}

func located(step steps.Step) Step {
	made := fixed(step)
	made.located = true

	return made
}

// stepsOf are the steps of a list whose length no setting changes.
func stepsOf(list func(*settings.Settings) []steps.Step) []Step {
	made := make([]Step, 0, len(list(&settings.Settings{})))
	for i := range cap(made) {
		made = append(made, Step{plan: func(s *settings.Settings) steps.Step { return list(s)[i] }, located: true})
	}

	return made
}

func clusterOf(run *steps.Run) Cluster {
	cluster := Cluster{Name: run.Cluster.Name, Talosconfig: run.Settings.Talosconfig, Kubeconfig: run.Settings.Kubeconfig}
	if run.Cluster.Endpoint != nil {
		cluster.Endpoint = run.Cluster.Endpoint.String()
	}

	for _, node := range run.Nodes() {
		cluster.Nodes = append(cluster.Nodes,
			Node{Name: node.Name, Address: node.Address, ControlPlane: node.Role == inventory.ControlPlane})
	}

	return cluster
}

// own is a step of the program's.
type own struct {
	name string
	do   func(ctx context.Context, cluster Cluster) error
}

// Name is the program's for it.
func (o own) Name() string { return o.name }

// Exit is the code for its error.
func (own) Exit() diagnosis.ExitCode { return diagnosis.ExitUnexpected }

// Mutates has it hold the lock: nobody here knows what it changes.
func (own) Mutates() {}

// EndsRecipe is so for every error: nobody here knows what builds on the step.
func (own) EndsRecipe(err error) bool { return steps.CodeOf(err) != diagnosis.ExitDryRun }

// Run calls the program, unless it is a dry run.
func (o own) Run(ctx context.Context, run *steps.Run) error {
	if run.Settings.DryRun {
		would := diagnosis.NewProblem(diagnosis.WouldChange, "dry run: "+o.name+" would be called",
			"the same run without Options.DryRun").In(o.name)
		would.Severity = diagnosis.Warning
		run.Report.Result(report.Result{Step: o.name, Status: report.Planned, Detail: "would be called"})

		return would
	}

	return call(ctx, run, o, report.Applied, func() error { return o.do(ctx, clusterOf(run)) })
}

// call has the program's code executed, as a step, and records how that went.
func call(ctx context.Context, run *steps.Run, step steps.Step, done report.Status, code func() error) error {
	started := time.Now()
	result := report.Result{Step: step.Name(), Status: done}

	if err := code(); err != nil {
		result.Status, result.Err = report.Failed, ownProblem(ctx, step, err)
	}

	result.Duration = time.Since(started)
	run.Report.Result(result)

	return result.Err
}

func ownProblem(ctx context.Context, step steps.Step, err error) error {
	if ctx.Err() != nil {
		return diagnosis.NewProblem(diagnosis.Interrupted, "stopped before it was done",
			"the same run again: it looks at the nodes first and continues where it stopped").In(step.Name()).From(err)
	}

	problem := diagnosis.NewProblem(diagnosis.OwnCodeFailed, err.Error(),
		"do what it says, then the same run again").In(step.Name()).From(err)
	problem.Exit = step.Exit()

	return problem
}
