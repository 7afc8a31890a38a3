package steps

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/kube"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/steps/wait"
	"github.com/talos-mage/talos-mage/internal/talos"
)

const (
	replaceName = "replaceNode"
	joinName    = "joinEtcd"
)

// ReplaceNode puts the declared machine in the place of one that is gone for good.
func ReplaceNode(settings *settings.Settings) []Step {
	return Located(
		Retire{},        // what etcd, Kubernetes and the talosconfig know of the former machine goes
		Apply{},         // the declared machine gets the node's config
		Verify{},        // it is up
		JoinEtcd{},      // a control plane is a voter
		VerifyWorkers{}, // and it is registered in Kubernetes
	)(settings)
}

// Retire takes a machine that is gone for good out of etcd, Kubernetes and the talosconfig, once the machine that is
// declared in its place is there.
type Retire struct{}

// Name is the recipe's: to people it is its first half.
func (Retire) Name() string { return replaceName }

// Exit is the code for a machine that could not be retired.
func (Retire) Exit() diagnosis.ExitCode { return diagnosis.ExitBootstrap }

// Mutates marks the step as one that needs the cluster's lock.
func (Retire) Mutates() {}

// Nodes is the one that was named.
func (Retire) Nodes(run *Run) []*inventory.Node { return run.Nodes() }

// EndsRecipe keeps the new machine out while anything is left of the former one.
func (Retire) EndsRecipe(err error) bool { return CodeOf(err) != diagnosis.ExitDryRun }

// Run changes nothing before the new machine was seen, and before it is clear that etcd can do without the former one.
func (s Retire) Run(ctx context.Context, run *Run) error {
	retirer := &retirer{memberRemover{begin(run, s)}}

	var outcomes []outcome

	for _, node := range run.Nodes() {
		started := time.Now()
		outcomes = append(outcomes, retirer.finish(retirer.retire(ctx, node), started))
	}

	if slices.ContainsFunc(outcomes, outcome.failed) {
		return retirer.conclude(outcomes)
	}

	return diagnosis.Join(retirer.dryRunOutcome(outcomes), retirer.forgetAddress(ctx))
}

// forgetAddress takes the former machine's address out of the talosconfig. What keeps it from that is a warning: the
// new machine is let in all the same.
func (r *retirer) forgetAddress(ctx context.Context) error {
	err := r.completeTalosconfig(ctx)
	if err == nil || r.Settings.DryRun || ctx.Err() != nil {
		return err
	}

	r.Report.Finding(r.step.Name(), diagnosis.Finding{ID: diagnosis.TalosconfigNobody, Severity: diagnosis.Warning,
		Cause: "the talosconfig may name the former machine still: " + err.Error(), Next: command("kubeconfig", nil)})

	return nil
}

// retirer is one run of the step.
type retirer struct{ memberRemover }

func (r *retirer) retire(ctx context.Context, node *inventory.Node) outcome {
	result := outcome{node: node, address: node.Address, tries: 1, status: report.Failed}

	if !node.DeclaresMachine() {
		result.problem = r.about(observe.Unobserved(node, nil), diagnosis.NewProblem(diagnosis.ReplacementUnnamed,
			"the files declare neither a MAC address nor a UUID for it, so its new machine can't be told from the former one",
			"mage discover, to see the machines that wait; write the new one's MAC address into the files"))

		return result
	}

	if _, problem := r.former(ctx, node); problem != nil {
		result.problem = problem
		return result
	}

	seen, problem := r.awaitMachine(ctx, node)
	if problem == nil && node.Role == inventory.ControlPlane {
		seen, problem = r.unwiped(ctx, seen, r.Settings.ReachabilityRetries)
	}

	result.address, result.problem = seen.Address, problem

	switch {
	case problem != nil:
		return result
	case seen.State == talos.Ours:
		result.status, result.detail = report.Skipped, "the declared machine is in already"
		return result
	}

	former, problem := r.former(ctx, node)
	if problem != nil {
		result.problem = problem
		return result
	}

	return r.take(ctx, former, result)
}

// unwiped tells of a machine whose etcd would start as the member that it was, and how the machine was seen last: one
// that fell silent in between is waited for as before, so many times.
func (r *retirer) unwiped(ctx context.Context, seen observe.Observation,
	again int) (observe.Observation, *diagnosis.Problem) {
	if seen.State != talos.Maintenance {
		return seen, nil
	}

	kept, err := r.keptInMaintenance(ctx, seen)
	if err != nil && again > 0 {
		seen, problem := r.awaitMachine(ctx, seen.Node)
		if problem != nil {
			return seen, problem
		}

		return r.unwiped(ctx, seen, again-1)
	}

	if kept == "" {
		return seen, nil
	}

	return seen, r.problem(seen, diagnosis.ReplacementHoldsData, "it "+kept, "boot it once with the kernel argument "+
		constants.KernelParamWipe+"=system, which wipes that; or, if it is the former machine and has lost its config "+
		"alone, "+command("applySequential", seen.Node))
}

// take has what is left of the former machine removed.
func (r *retirer) take(ctx context.Context, former []talos.EtcdMember, result outcome) outcome {
	var what []string
	for _, member := range former {
		what = append(what, "member "+describeMember(member))
	}

	name, left := r.formerName(ctx, result.node, former)
	if name != "" {
		what = append(what, "the Kubernetes node "+name)
	}

	if len(what) == 0 {
		what = []string{"nothing"}
	}

	result.detail = text.List(what) + " of the former machine"

	if r.Settings.DryRun {
		result.status = report.Planned
		result.detail = "would remove " + result.detail

		return result
	}

	if left == nil {
		left = r.deleteNode(ctx, name)
	}

	for _, member := range former {
		if result.problem = r.remove(ctx, member); result.problem != nil {
			return r.failedFor(result)
		}
	}

	if result.problem = left; left != nil {
		return r.failedFor(result)
	}

	result.status, result.detail = report.Applied, "removed "+result.detail

	return result
}

// formerName is what Kubernetes calls the node of the former machine; empty if it lists none, as far as can be told.
// Where the files leave the name to the machine, its member of etcd tells it, or its address.
func (r *retirer) formerName(ctx context.Context, node *inventory.Node,
	former []talos.EtcdMember) (string, *diagnosis.Problem) {
	if !node.IgnoreHostname {
		return node.Hostname, nil
	}

	var registered []kube.Node

	err := r.askKubernetes(ctx, func(ctx context.Context, client *kube.Client) (err error) {
		registered, err = client.Nodes(ctx)
		return err
	})
	if err != nil {
		return "", r.nodeLeft("the Kubernetes node of the former machine can't be looked for: "+kube.Explain(err),
			"kubectl get nodes; then kubectl delete node with the name of the one that is gone", err)
	}

	var unknown []string

	for _, candidate := range registered {
		named := slices.ContainsFunc(former, func(member talos.EtcdMember) bool { return member.Hostname == candidate.Name })

		switch owner := r.observer.NodeOf(candidate); {
		case named, owner == node && !candidate.Ready:
			return candidate.Name, nil
		case owner == nil && !candidate.Ready:
			unknown = append(unknown, candidate.Name)
		}
	}

	if len(unknown) > 0 {
		r.Report.Finding(r.step.Name(), diagnosis.Finding{ID: diagnosis.NodeObjectLeft, Severity: diagnosis.Warning,
			Node: node.Name, Cause: fmt.Sprintf("Kubernetes lists %s, not Ready and at no declared node's address: perhaps the "+
				"former machine's, whose name the files don't tell", text.List(unknown)),
			Next: "kubectl delete node " + unknown[0] + ", if it is the former machine's"})
	}

	return "", nil
}

// failedFor names the node that a problem of the cluster is about.
func (r *retirer) failedFor(result outcome) outcome {
	result.status, result.detail = report.Failed, ""
	if result.problem.Node == "" {
		result.problem.Node, result.problem.Address = result.node.Name, result.address
	}

	return result
}

// awaitMachine waits until the declared machine answers, and no other in its place.
func (r *retirer) awaitMachine(ctx context.Context, node *inventory.Node) (observe.Observation, *diagnosis.Problem) {
	if r.Settings.DryRun {
		seen := r.observer.Observe(ctx, node)
		return seen, r.judgeMachine(seen).problem
	}

	return r.await(ctx, node, func(_ context.Context, seen observe.Observation) verdict { return r.judgeMachine(seen) })
}

func (r *retirer) judgeMachine(seen observe.Observation) verdict {
	switch {
	case seen.Wrong != nil && seen.State == talos.Ours:
		return verdict{problem: r.problem(seen, diagnosis.FormerMachineAnswers, fmt.Sprintf(
			"the machine that %s is to replace answers at %s: %s", seen.Node.Name, seen.Address, seen.Wrong.Cause),
			"power that machine off for good, then "+r.command(seen.Node))}
	case seen.NotOurs():
		return verdict{problem: r.notOurs(seen)}
	default:
		return verdict{done: !seen.Silent(), doing: "waiting for the declared machine"}
	}
}

// former are the members of etcd that the node's former machine has left behind, if etcd can do without them. The node
// is a member of no etcd while it waits to be let in.
func (r *retirer) former(ctx context.Context, node *inventory.Node) ([]talos.EtcdMember, *diagnosis.Problem) {
	if node.Role != inventory.ControlPlane {
		return nil, nil
	}

	survey, problem := r.survey(ctx)
	if problem != nil {
		return nil, problem
	}

	at := slices.IndexFunc(survey, func(seen observe.EtcdObservation) bool { return seen.Node == node })
	if seen := survey[at]; seen.State == talos.Ours && seen.Wrong == nil {
		return nil, nil
	}

	if verdict := r.judgeMachine(survey[at].Observation); verdict.problem != nil {
		return nil, verdict.problem
	}

	members := filtered(listed(survey), func(member talos.EtcdMember) bool { return r.isOf(node, member) })
	for _, member := range members {
		if problem := r.obstacle(ctx, survey, member); problem != nil {
			return nil, problem
		}
	}

	return members, nil
}

// isOf reports whether a member is a node's, by its name or where others find it.
func (r *retirer) isOf(node *inventory.Node, member talos.EtcdMember) bool {
	if member.Hostname != "" && !node.IgnoreHostname {
		return strings.EqualFold(member.Hostname, node.Hostname)
	}

	addresses := r.observer.Addresses(node)

	return slices.ContainsFunc(peerAddresses(member),
		func(address string) bool { return slices.Contains(addresses, address) })
}

// JoinEtcd waits until control planes are voters of the etcd that the others have.
type JoinEtcd struct{}

// Name is the step's name.
func (JoinEtcd) Name() string { return joinName }

// Exit is the code for a control plane that did not join.
func (JoinEtcd) Exit() diagnosis.ExitCode { return diagnosis.ExitBootstrap }

// Nodes are the control planes that the run works on and no earlier step left out.
func (JoinEtcd) Nodes(run *Run) []*inventory.Node {
	return ofRole(run.present(), inventory.ControlPlane)
}

// LeftOut leaves the step out for workers.
func (s JoinEtcd) LeftOut(run *Run) string {
	if len(s.Nodes(run)) == 0 {
		return "no control plane has to join etcd"
	}

	return ""
}

// Run waits for one control plane after the other.
func (s JoinEtcd) Run(ctx context.Context, run *Run) error {
	work := begin(run, s)
	if run.Settings.DryRun {
		return work.done(report.Skipped, "dry run: nothing to wait for")
	}

	var outcomes []outcome

	for _, node := range s.Nodes(run) {
		started := time.Now()
		outcomes = append(outcomes, work.finish(work.awaitVoter(ctx, node), started))
	}

	return work.conclude(outcomes)
}

// awaitVoter waits until a control plane is a healthy voter, of the one etcd that there is.
func (w *work) awaitVoter(ctx context.Context, node *inventory.Node) outcome {
	var seen observe.EtcdObservation

	since := w.Clock.Now()
	waiter := w.waiter()
	waiter.Interrupted = func(ctx context.Context) *diagnosis.Problem { return w.interrupted(ctx, node) }

	problem := waiter.Until(ctx, func(ctx context.Context) wait.State {
		survey := w.observer.SurveyEtcd(ctx)
		if survey.Split() {
			split := splitFinding(survey)
			return wait.State{Problem: w.clusterProblem(split.ID, split.Cause, split.Next)}
		}

		seen = survey[slices.IndexFunc(survey, func(of observe.EtcdObservation) bool { return of.Node == node })]

		return wait.State{
			Done: seen.Healthy(), Node: node.Name, Asked: seen.Asked, Pause: etcdPause,
			Limit: wait.Limit{For: membershipText(seen, nil), Since: since, Limit: w.Settings.EtcdJoinTimeout},
			TimeUp: func(waited time.Duration) *diagnosis.Problem {
				return w.problem(seen.Observation, diagnosis.EtcdIncomplete,
					fmt.Sprintf("no voter of etcd after %s: %s", waited, seen.Text()), talosctl(node, "service etcd"))
			},
		}
	})

	result := outcome{node: node, address: seen.Address, status: report.OK, tries: 1,
		detail: "etcd member " + memberName(seen.MemberID)}
	if problem != nil {
		result.status, result.detail, result.problem = report.Failed, "", problem
	}

	return result
}

// keptInMaintenance says what a machine without a config may still hold of etcd; empty if that is nothing. With a
// config that etcd would start again. The error is why its disks could not be read: then it may hold anything.
func (w *work) keptInMaintenance(ctx context.Context, seen observe.Observation) (kept string, err error) {
	const mayHold = "is in maintenance, and may hold etcd's data"

	conn, err := w.observer.Dialer().Open(ctx, seen.Probed)
	if err != nil {
		return mayHold + ": " + talos.Explain(err), err //nolint:wrapcheck // the text says what was asked
	}
	defer conn.Close()

	volumes, err := conn.DiscoveredVolumes(ctx)
	if err != nil {
		return mayHold + ": " + talos.Explain(err), err //nolint:wrapcheck // the text says what was asked
	}

	for _, volume := range volumes {
		holds := volume.Label == constants.EphemeralPartitionLabel || volume.Label == constants.EtcdDataVolumeID
		if holds && volume.Name != "" {
			return fmt.Sprintf("%s: %s on %s is not wiped", mayHold, volume.Label, volume.Disk), nil
		}
	}

	return "", nil
}
