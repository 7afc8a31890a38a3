package steps

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/steps/wait"
)

// weigh looks at etcd before anything is reset, and refuses what would cost it its quorum. All of a cluster may go, and
// so may the last member, if somebody agrees to that.
func (r *resetter) weigh(ctx context.Context, planned []nodeReset) error {
	var leaving []*inventory.Node
	for _, node := range planned {
		if node.pending() && node.seen.Node.Role == inventory.ControlPlane {
			leaving = append(leaving, node.seen.Node)
		}
	}

	if !slices.ContainsFunc(planned, nodeReset.pending) {
		return nil
	}

	r.survey = r.surveyed(ctx)

	switch {
	case ctx.Err() != nil:
		return interrupted(ctx, r.step.Name())
	case r.Settings.OfCluster != "", !r.hasQuorum(), r.endsEtcd(leaving), r.survey.QuorumWithout(leaving):
		return nil
	default:
		return r.heldBack(r.survey, leaving)
	}
}

// surveyed asks about etcd, and waits where nothing but a first health check is missing.
func (r *resetter) surveyed(ctx context.Context) (survey observe.EtcdSurvey) {
	since := r.Clock.Now()

	_ = r.waiter().Until(ctx, func(ctx context.Context) wait.State {
		survey = r.observer.SurveyEtcd(ctx)

		return wait.State{
			Done:   !survey.Unchecked() || survey.HealthyCount() == len(survey),
			Limit:  wait.Limit{For: "until etcd has had its first health checks", Since: since, Limit: r.Settings.EtcdTimeout},
			Pause:  etcdPause,
			TimeUp: func(time.Duration) *diagnosis.Problem { return nil }, // it is judged as it is
		}
	})

	return survey
}

// hasQuorum reports whether etcd worked before anything was reset.
func (r *resetter) hasQuorum() bool { return r.survey.QuorumWithout(nil) }

// endsEtcd reports whether no member of a working etcd is left without these nodes.
func (r *resetter) endsEtcd(leaving []*inventory.Node) bool {
	return r.hasQuorum() && r.survey.MembersWithout(leaving) == 0
}

func (r *resetter) heldBack(survey observe.EtcdSurvey, leaving []*inventory.Node) *diagnosis.Problem {
	held := r.clusterProblem(diagnosis.ResetHeldBack, fmt.Sprintf("without %s etcd would lose its quorum: %s",
		text.List(names(leaving)), survey.Describe()), "make its other members healthy: mage etcd:status")
	held.Exit = diagnosis.ExitBootstrap

	return held
}

// etcdLosses say what the reset of some nodes means for etcd.
func (r *resetter) etcdLosses(pending []*inventory.Node) []string {
	leaving := ofRole(pending, inventory.ControlPlane)
	if len(leaving) == 0 {
		return nil
	}

	left := r.survey.MembersWithout(leaving)

	switch {
	case r.hasQuorum() && left == 0:
		return []string{"No member of etcd is left: all that Kubernetes keeps is lost, unless you have a snapshot (mage " +
			"etcd:snapshot)"}
	case r.hasQuorum() && left < 3 && left < r.survey.MembersWithout(nil):
		return []string{fmt.Sprintf("etcd goes on with %s, and stops when it loses one more", text.Counted(left, "member"))}
	case r.survey.Present() && !r.hasQuorum():
		return []string{"etcd has no quorum, and each of these may hold its data: " + r.survey.Describe()}
	default:
		return nil
	}
}

// leaves decides whether a node leaves the cluster in order, by how etcd is right before. A drain and a leave need an
// etcd that works; the last member has nobody to leave to. Of a cluster that is to stay, it waits until etcd can spare
// the node.
func (r *resetter) leaves(ctx context.Context, node *inventory.Node) (graceful bool, problem *diagnosis.Problem) {
	if node.Role == inventory.Worker || !r.hasQuorum() {
		return r.hasQuorum(), nil
	}

	leaving := []*inventory.Node{node}
	since := r.Clock.Now()

	problem = r.waiter().Until(ctx, func(ctx context.Context) wait.State {
		now := r.observer.SurveyEtcd(ctx)
		last := now.QuorumWithout(nil) && now.MembersWithout(leaving) == 0
		spared := now.QuorumWithout(leaving)
		graceful = spared && now.CanLeave(node)

		return wait.State{
			Done: spared || last || r.Settings.OfCluster != "", Node: node.Name, Pause: etcdPause,
			Limit: wait.Limit{For: "until etcd can spare it", Since: since, Limit: r.Settings.EtcdTimeout},
			TimeUp: func(time.Duration) *diagnosis.Problem {
				held := r.heldBack(now, leaving)
				held.Node = node.Name

				return held
			},
		}
	})

	return graceful, problem
}
