package steps

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/fanout"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
)

const upgradeName = "upgrade"

// Upgrade brings nodes to the Talos release and the schematic that the files declare: control planes first, one by one,
// then workers. A node that runs both already is left as it is, so a run that ended early is continued by the next.
type Upgrade struct{}

// Name is the step's name.
func (Upgrade) Name() string { return upgradeName }

// Exit is the code for a node that could not be upgraded.
func (Upgrade) Exit() diagnosis.ExitCode { return diagnosis.ExitApply }

// Nodes are those that the run works on.
func (Upgrade) Nodes(run *Run) []*inventory.Node { return run.Nodes() }

// Mutates marks the step as one that needs the cluster's lock.
func (Upgrade) Mutates() {}

// Run refuses before anything is touched, keeps a snapshot of etcd, and then upgrades node after node up to the first
// that does not come back whole.
func (s Upgrade) Run(ctx context.Context, run *Run) error {
	upgrader := &upgrader{work: begin(run, s), kubernetes: &observe.Kubernetes{Observer: run.observer}}

	anew, err := upgrader.renderAnew(ctx)
	if err != nil {
		return err
	}

	defer upgrader.tellCordons(ctx)

	plan, err := upgrader.planUpgrade(ctx, anew)
	if err != nil {
		return err
	}

	if run.Settings.DryRun {
		return upgrader.showUpgrade(plan)
	}

	if err := upgrader.secure(ctx, plan); err != nil {
		return err
	}

	upgrader.noQuorumToSpare, upgrader.becomesReady = plan.NoQuorumToSpare, upgrader.someReady(ctx)

	controlPlanes, workers := plan.of(inventory.ControlPlane), plan.of(inventory.Worker)
	outcomes := fanout.Collect(ctx, 1, controlPlanes, upgrader.serve, upgrader.brokenUpgrade)
	outcomes = append(outcomes, fanout.Collect(ctx, run.Settings.MaxParallel.Of(len(workers)), workers, upgrader.serve,
		upgrader.brokenUpgrade)...)

	return upgrader.conclude(outcomes)
}

// of are the nodes of a role.
func (p upgradePlan) of(role inventory.Role) []nodeUpgrade {
	return filtered(p.Nodes, func(node nodeUpgrade) bool { return node.Seen.Node.Role == role })
}

// upgrader is one run of the step.
type upgrader struct {
	*work
	kubernetes *observe.Kubernetes
	// noQuorumToSpare is set where etcd stands still while a control plane reboots, which was agreed to.
	noQuorumToSpare bool
	// becomesReady is set where nodes become Ready in Kubernetes: without a CNI none does.
	becomesReady bool
	// brokenBy is the first node that did not come through: then no other is begun.
	brokenBy atomic.Pointer[inventory.Node]
	// told are the nodes of which it was said that they stay cordoned.
	told sync.Map
}

// secure keeps a verified snapshot of etcd before a control plane goes down, and then has a person agree.
func (u *upgrader) secure(ctx context.Context, plan upgradePlan) error {
	pending := filtered(plan.Nodes, func(node nodeUpgrade) bool { return !node.Done })
	if len(pending) == 0 {
		return nil
	}

	asked := consent{Name: u.Cluster.Name}
	if len(pending) == 1 && !plan.NoQuorumToSpare {
		asked.Name = pending[0].Seen.Node.Name
	}

	for _, node := range pending {
		asked.Losses = append(asked.Losses, node.Seen.Node.Name+" is drained and reboots, "+node.text())
	}

	if plan.takesDown() {
		path, err := u.keepSnapshot(ctx)
		if err != nil {
			return err
		}

		if plan.NoQuorumToSpare {
			asked.Losses = append(asked.Losses, plan.noQuorumText(),
				"a control plane that does not come back takes etcd with it; what it held until now is in "+path)
		}
	}

	return u.consent(ctx, asked)
}

// keepSnapshot takes a snapshot of etcd, and verifies it.
func (u *upgrader) keepSnapshot(ctx context.Context) (path string, err error) {
	snapshotter := &snapshotter{u.work}
	path = snapshotter.path(time.Now())

	sources, err := snapshotter.sources(u.observer.SurveyEtcd(ctx), false)
	if err != nil {
		return path, u.failed(ctx, err)
	}

	return path, snapshotter.take(ctx, sources, path)
}

// serve has one node upgraded, unless another one has not come through.
func (u *upgrader) serve(ctx context.Context, node nodeUpgrade) outcome {
	started, result := time.Now(), outcome{node: node.Seen.Node, address: node.Seen.Address}

	if broken := u.brokenBy.Load(); broken != nil {
		result.status, result.detail = report.Skipped, "left alone, since "+broken.Name+" did not come through"
		return u.finish(result, started)
	}

	turn := &turn{upgrader: u, plan: node, node: node.Seen.Node, seen: node.Seen}

	if problem := turn.run(ctx); problem != nil {
		u.brokenBy.CompareAndSwap(nil, turn.node)

		result.status, result.problem = report.Failed, problem
	} else {
		result.status, result.detail = turn.result()
	}

	result.address, result.tries = turn.seen.Address, turn.tries

	return u.finish(result, started)
}

// brokenUpgrade is the outcome of a node whose turn broke off for a reason that lies in this program.
func (u *upgrader) brokenUpgrade(node nodeUpgrade, err error) outcome {
	u.brokenBy.CompareAndSwap(nil, node.Seen.Node)

	return u.broken(node.Seen.Node, err)
}

func (u *upgrader) tell(node *inventory.Node, doing string) {
	u.Report.Progress(u.step.Name(), report.Progress{Node: node.Name, Text: doing, Since: u.Clock.Now()})
}
