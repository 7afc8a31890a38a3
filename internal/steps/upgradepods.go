package steps

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/kube"
	"github.com/talos-mage/talos-mage/internal/kube/drain"
	"github.com/talos-mage/talos-mage/internal/steps/wait"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// giveBackLimit bounds what is still done for a node whose upgrade failed or was interrupted, by the wall's clock.
const giveBackLimit = 30 * time.Second

// tellLimit bounds the look for cordons that stay, by the wall's clock: who has stopped a run waits for it.
const tellLimit = 10 * time.Second

// podsBack is how a node stands with Kubernetes after its upgrade.
type podsBack struct {
	// returned is set if a cordon of ours was taken back, othersCordon if the node has one of somebody else.
	returned, othersCordon bool
}

// kubeNode is a node as Kubernetes knows it, and a way to change it there.
type kubeNode struct {
	kube.Node
	drainer drain.Drainer
}

// inKubernetes finds the node in Kubernetes; nil if it is none of Kubernetes'.
func (u *upgrader) inKubernetes(ctx context.Context, node *inventory.Node) (*kubeNode, error) {
	if config := u.Configs[node.Name]; config != nil && !config.RegistersNode() {
		return nil, nil //nolint:nilnil // as documented
	}

	client, err := u.kubernetes.Client(ctx)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what was asked
	}

	found, err := u.kubernetes.Find(ctx, client, node)
	if err != nil || found == nil {
		return nil, err //nolint:wrapcheck // as above
	}

	return &kubeNode{*found, drain.Drainer{Client: client, Clock: u.Clock}}, nil
}

// someReady reports whether any node is Ready in Kubernetes.
func (u *upgrader) someReady(ctx context.Context) bool {
	client, err := u.kubernetes.Client(ctx)
	if err != nil {
		return false
	}

	nodes, err := client.Nodes(ctx)

	return err == nil && slices.ContainsFunc(nodes, func(node kube.Node) bool { return node.Ready })
}

// drain takes the pods off the node, within their budgets.
func (t *turn) drain(ctx context.Context, _ *talos.Conn) error {
	if t.drained {
		return nil
	}

	t.tell(t.node, "draining")

	there, err := t.awaitInKubernetes(ctx)
	if err == nil && there != nil {
		t.cordon = drain.OwnerOf(there.Node)
		err = t.gate.Drain(ctx, there.drainer, there.Name, func(now drain.Progress) { t.tell(t.node, drainText(now)) })
		t.drained = err == nil

		if t.drained && t.cordon == drain.Nobody {
			t.cordon = drain.Ours
		}
	}

	if err == nil {
		return nil
	}

	if ctx.Err() != nil {
		return t.interrupted(ctx, t.node)
	}

	return t.about(t.seen, drain.Problem(err, t.command(t.node))).From(err)
}

// awaitInKubernetes is inKubernetes, once the API answers: that of one control plane goes away whenever it restarts.
func (t *turn) awaitInKubernetes(ctx context.Context) (there *kubeNode, err error) {
	since := t.Clock.Now()
	t.waiter().Until(ctx, func(ctx context.Context) wait.State { //nolint:errcheck // the last answer says more
		there, err = t.inKubernetes(ctx, t.node)

		return wait.State{
			Done: err == nil || !kube.MayPass(err), Node: t.node.Name, Pause: apiPause,
			Limit: wait.Limit{For: "draining: the Kubernetes API: " + kube.Explain(err), Since: since,
				Limit: t.Settings.APITimeout},
			TimeUp: func(time.Duration) *diagnosis.Problem { return drain.Problem(err, t.command(t.node)) },
		}
	})

	return there, err
}

func drainText(now drain.Progress) string {
	doing := fmt.Sprintf("draining, %d of %d pods gone", now.Gone, now.Pods)
	if len(now.Held) > 0 {
		doing += fmt.Sprintf("; held up by %s", now.Held[0])
	}

	return doing
}

// awaitPods waits until Kubernetes has the node back, and takes back the cordon that is ours, also that of an earlier
// run. One that somebody else has made stays.
func (t *turn) awaitPods(ctx context.Context) *diagnosis.Problem {
	since, waiter := t.Clock.Now(), t.waiter()
	waiter.Interrupted = func(ctx context.Context) *diagnosis.Problem { return t.interrupted(ctx, t.node) }

	return waiter.Until(ctx, func(ctx context.Context) wait.State {
		done, doing := t.returnPods(ctx)

		return wait.State{
			Done: done, Node: t.node.Name, Pause: apiPause,
			Limit: wait.Limit{For: doing, Since: since, Limit: t.Settings.APITimeout},
			TimeUp: func(waited time.Duration) *diagnosis.Problem {
				return t.problem(t.seen, diagnosis.UpgradeNotInKubernetes,
					fmt.Sprintf("it runs %s, but Kubernetes does not have it back after %s: %s", t.plan.Version, waited, doing),
					t.command(t.node)+" continues")
			},
		}
	})
}

// returnPods looks once; it says what it waits for.
func (t *turn) returnPods(ctx context.Context) (done bool, waitsFor string) {
	there, err := t.inKubernetes(ctx, t.node)

	switch {
	case err != nil:
		return false, "the Kubernetes API: " + kube.Explain(err)
	case there == nil:
		return true, ""
	case !there.Ready && t.becomesReady:
		return false, "not Ready in Kubernetes: " + there.Reason
	}

	owner, err := there.drainer.Cordoned(ctx, there.Name)
	if err == nil && owner == drain.Ours {
		_, err = t.gate.Uncordon(ctx, there.drainer, there.Name)
		t.pods.returned = err == nil
	}

	if err != nil {
		return false, "cordoned: " + kube.Explain(err)
	}

	t.pods.othersCordon = owner == drain.Others

	return true, ""
}

// giveBack ends the turn of a node that did not come through. A cordon of ours, also of an earlier run, is taken back
// as long as the node takes part in its old system; else it is said that it stays.
func (t *turn) giveBack(ctx context.Context, problem *diagnosis.Problem) *diagnosis.Problem {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), giveBackLimit)
	defer stop()

	there, ours, err := t.ownCordon(ctx, t.node)
	if err == nil && !ours || err != nil && t.cordon != drain.Ours {
		return problem
	}

	takesPart := !t.plan.Done && !t.leaving || problem.ID == diagnosis.UpgradeRolledBack
	if err == nil && takesPart {
		if _, err := t.gate.Uncordon(ctx, there.drainer, there.Name); err == nil {
			return problem
		}
	}

	t.tellCordon(t.node)

	return problem
}

// ownCordon finds a node in Kubernetes, and whether it has a cordon of ours.
func (u *upgrader) ownCordon(ctx context.Context, node *inventory.Node) (there *kubeNode, ours bool, err error) {
	there, err = u.inKubernetes(ctx, node)
	if err != nil || there == nil {
		return there, false, err
	}

	owner, err := there.drainer.Cordoned(ctx, there.Name)

	return there, owner == drain.Ours, err //nolint:wrapcheck // it says what was asked
}

// tellCordon says once of a node that it stays cordoned.
func (u *upgrader) tellCordon(node *inventory.Node) {
	if _, told := u.told.LoadOrStore(node, true); told {
		return
	}

	u.Report.Finding(u.step.Name(), diagnosis.Finding{
		ID: diagnosis.CordonLeft, Severity: diagnosis.Warning, Node: node.Name, Address: node.Address,
		Cause: "it stays cordoned, so that no pods are placed on it",
		Next:  u.command(node) + " takes the cordon back once the node is whole; at once: kubectl uncordon " + node.Hostname,
	})
}

// ownCordons are the nodes with a cordon of ours, as Kubernetes lists them.
func (u *upgrader) ownCordons(ctx context.Context) ([]*inventory.Node, error) {
	client, err := u.kubernetes.Client(ctx)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what was asked
	}

	listed, err := client.Nodes(ctx)

	var cordoned []*inventory.Node
	for _, registered := range listed {
		if node := u.observer.NodeOf(registered); node != nil && drain.OwnerOf(registered) == drain.Ours {
			cordoned = append(cordoned, node)
		}
	}

	return cordoned, err //nolint:wrapcheck // as above
}

// tellCordons names the nodes that this run or an earlier one leaves cordoned, however this one ends.
func (u *upgrader) tellCordons(ctx context.Context) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), tellLimit)
	defer stop()

	cordoned, err := u.ownCordons(ctx)
	if err != nil {
		return
	}

	for _, node := range cordoned {
		u.tellCordon(node)
	}
}
