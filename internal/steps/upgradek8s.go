package steps

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/kube"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/steps/wait"
	ctl "github.com/talos-mage/talos-mage/internal/talos/talosctl"
)

// UpgradeK8s brings Kubernetes to the version that the files declare, on all nodes, by way of the user's talosctl.
type UpgradeK8s struct{}

// Name is the step's name.
func (UpgradeK8s) Name() string { return "upgradeK8s" }

// Exit is the code for an upgrade that did not get to its end.
func (UpgradeK8s) Exit() diagnosis.ExitCode { return diagnosis.ExitKubernetes }

// Mutates marks the step as one that needs the cluster's lock.
func (UpgradeK8s) Mutates() {}

// Nodes are all nodes of the cluster: there is no upgrade of some.
func (UpgradeK8s) Nodes(run *Run) []*inventory.Node { return run.Cluster.Nodes }

// Run looks at everything that could stop the upgrade halfway before it begins, and believes only what Kubernetes shows
// afterwards. Run again, it goes on where it stopped.
func (s UpgradeK8s) Run(ctx context.Context, run *Run) error {
	u := &kubernetesUpgrader{
		work: begin(run, s), access: &observe.Kubernetes{Observer: run.observer}, to: run.Cluster.KubernetesVersion,
		program: run.workspace.Talosctl(),
	}

	plan, err := u.plan(ctx)

	switch {
	case err != nil:
		return u.fails(ctx, err, report.Refused)
	case plan.empty():
		u.recordAll(report.Skipped, "runs Kubernetes "+u.to)
		u.compareConfigs(ctx)

		return nil
	case u.Settings.DryRun:
		return u.wouldUpgrade(plan)
	}

	if err := u.upgrade(ctx); err != nil {
		return err
	}

	if problem := u.believe(ctx); problem != nil {
		return u.failed(ctx, problem)
	}

	u.recordAll(report.Applied, "runs Kubernetes "+u.to)
	u.compareConfigs(ctx)

	return nil
}

// kubernetesUpgrader is one run of the step.
type kubernetesUpgrader struct {
	*work
	access  *observe.Kubernetes
	program ctl.Talosctl
	to      string
	// asked is the control plane that talosctl talks to.
	asked observe.Observation
}

// kubernetesPlan is what an upgrade would do.
type kubernetesPlan struct {
	// outdated are the components that do not run the version, or are not ready.
	outdated []kube.Component
	// changes are what talosctl tells that it would do.
	changes []ctl.Line
}

// empty reports whether there is nothing to do.
func (p kubernetesPlan) empty() bool { return len(p.outdated) == 0 && len(p.changes) == 0 }

// request is what is asked of talosctl.
func (u *kubernetesUpgrader) request() ctl.KubernetesUpgrade {
	host := u.asked.Address
	if alone, _, err := net.SplitHostPort(host); err == nil {
		host = alone
	}

	return ctl.KubernetesUpgrade{Endpoint: u.asked.Address, Node: host, To: u.to}
}

// upgrade runs talosctl, and says what it does.
func (u *kubernetesUpgrader) upgrade(ctx context.Context) error {
	err := u.gate.UpgradeKubernetes(ctx, u.program, u.request(), func(line ctl.Line) {
		name := u.nameAt(line.Node)

		switch line.Kind {
		case ctl.Updated:
			u.Echo.Info().Str("node", name).Msgf("%s runs %s", line.Component, u.to)
			u.Report.Idle(u.step.Name(), name)
		case ctl.Planned, ctl.Manifest:
			u.Echo.Info().Str("node", name).Msg(described(line))
		default:
			u.Report.Progress(u.step.Name(), report.Progress{Node: name, Text: described(line), Since: u.Clock.Now()})
		}
	})
	if err == nil {
		return nil
	}

	return u.fails(ctx, u.stopped(err), report.Failed)
}

// fails records how the step failed, of each node that it failed at, or of the cluster.
func (u *kubernetesUpgrader) fails(ctx context.Context, err error, status report.Status) error {
	problems := problemsIn(err)
	if ctx.Err() != nil || len(problems) == 0 || slices.ContainsFunc(problems,
		func(problem *diagnosis.Problem) bool { return problem.Node == "" }) {
		return u.endedAs(ctx, err, status)
	}

	for _, problem := range problems {
		u.record(report.Result{Node: problem.Node, Address: problem.Address, Status: status, Err: problem})
	}

	return u.ofStep(ctx, err)
}

// stopped explains why talosctl gave up, and where.
func (u *kubernetesUpgrader) stopped(err error) *diagnosis.Problem {
	problem := u.clusterProblem(diagnosis.K8sUpgradeFailed, "talosctl did not get to the end: "+err.Error(),
		u.command(nil)).From(err)

	var stopped *ctl.Failure
	if !errors.As(err, &stopped) {
		return problem
	}

	at := "talosctl stopped"
	if stopped.Component != "" {
		at += " at " + stopped.Component
	}

	if node := u.nodeAt(stopped.Node); node != nil {
		problem.Node, problem.Address = node.Name, stopped.Node

		if stopped.Component != "" {
			problem.Next = talosctl(node, "logs kubelet") + "; then " + u.command(nil)
		}
	}

	problem.Cause = at + ": " + complaintOf(stopped)

	return problem
}

// complaintOf is what talosctl printed, on one line and without secrets.
func complaintOf(stopped *ctl.Failure) string {
	lines := slices.DeleteFunc(strings.Split(report.Scrub(stopped.Complaint), "\n"), func(line string) bool {
		return strings.TrimSpace(line) == "" || strings.HasPrefix(line, "WARNING:")
	})

	if said := strings.Join(strings.Fields(strings.Join(lines, " ")), " "); said != "" {
		return said
	}

	return stopped.Err.Error()
}

// believe waits until Kubernetes shows every component in the version, and ready.
func (u *kubernetesUpgrader) believe(ctx context.Context) *diagnosis.Problem {
	since := u.Clock.Now()

	return u.waiter().Until(ctx, func(ctx context.Context) wait.State {
		components, err := u.access.Components(ctx)
		lacking := kube.Explain(err)

		if err == nil {
			lacking = u.lacking(components)
		}

		return wait.State{
			Done:  lacking == "",
			Limit: wait.Limit{For: "waiting for " + u.to + ": " + lacking, Since: since, Limit: u.Settings.APITimeout},
			Pause: apiPause,
			TimeUp: func(waited time.Duration) *diagnosis.Problem {
				return u.clusterProblem(diagnosis.K8sUpgradeNotSeen, fmt.Sprintf("not as it is to be after %s: %s", waited,
					lacking), command("status", nil)+"; then "+u.command(nil)).From(err)
			},
		}
	})
}

// lacking says which components are not as they are to be; empty if all are.
func (u *kubernetesUpgrader) lacking(components []kube.Component) string {
	var lacks []string

	for _, component := range u.outdated(components) {
		if component.Version != u.to {
			lacks = append(lacks, fmt.Sprintf("%s of %s runs %s", component.Name, u.nodeName(component), component.Version))
		} else {
			lacks = append(lacks, fmt.Sprintf("%s of %s is not ready", component.Name, u.nodeName(component)))
		}
	}

	for _, node := range u.Cluster.ControlPlanes() {
		for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
			if !slices.ContainsFunc(components, func(component kube.Component) bool {
				return component.Name == name && u.nodeName(component) == node.Name
			}) {
				lacks = append(lacks, fmt.Sprintf("%s of %s is not there", name, node.Name))
			}
		}
	}

	if len(lacks) == 0 {
		return ""
	}

	return text.List(lacks)
}

// outdated are the components that do not run the version, or are not ready.
func (u *kubernetesUpgrader) outdated(components []kube.Component) []kube.Component {
	return filtered(components, func(component kube.Component) bool {
		return component.Version != u.to || !component.Ready
	})
}

// compareConfigs names the nodes whose configs differ from their files: the upgrade changed the images in them.
func (u *kubernetesUpgrader) compareConfigs(ctx context.Context) {
	for _, seen := range u.observer.All(ctx, u.Cluster.Nodes) {
		if seen.Relation != observe.ConfigDrifted || u.unjudged(seen) {
			continue
		}

		u.Report.Finding(u.step.Name(), diagnosis.Finding{
			ID: diagnosis.K8sConfigsDifferent, Severity: diagnosis.Warning, Node: seen.Node.Name, Address: seen.Address,
			Cause: "its config differs from " + u.shown(seen.Node.ConfigFile) + ":\n" +
				machineconfig.Diff(seen.Config, u.Configs[seen.Node.Name]),
			Next: renderAnew(u.Run) + ", then " + command("applySequential", seen.Node) + " -dryRun",
		})
	}
}

// wouldUpgrade records what a dry run found.
func (u *kubernetesUpgrader) wouldUpgrade(plan kubernetesPlan) error {
	told := map[string][]string{}

	for _, component := range plan.outdated {
		name := u.nodeName(component)
		told[name] = append(told[name], component.Name+" "+component.Version)
	}

	for _, node := range u.Cluster.Nodes {
		if len(told[node.Name]) > 0 {
			u.record(report.Result{Node: node.Name, Address: node.Address, Status: report.Planned,
				Detail: "to " + u.to + ": " + strings.Join(told[node.Name], ", ")})
		}
	}

	return u.wouldChange("Kubernetes would be upgraded to "+u.to, "the same command without -dryRun")
}

// described is a line of talosctl for people.
func described(line ctl.Line) string {
	if line.Kind == ctl.Planned || line.Kind == ctl.Doing && line.Component != "" && line.Node != "" &&
		!strings.Contains(line.Text, line.Component) {
		return line.Component + ": " + line.Text
	}

	return line.Text
}

func (u *kubernetesUpgrader) recordAll(status report.Status, detail string) {
	for _, node := range u.Cluster.Nodes {
		u.record(report.Result{Node: node.Name, Address: node.Address, Status: status, Detail: detail})
	}
}

// nodeAt is the inventory's node at an address; nil if there is none.
func (u *kubernetesUpgrader) nodeAt(address string) *inventory.Node {
	for _, node := range u.Cluster.Nodes {
		if address != "" && slices.ContainsFunc(u.observer.Addresses(node), func(own string) bool {
			host, _, err := net.SplitHostPort(own)
			return own == address || err == nil && host == address
		}) {
			return node
		}
	}

	return nil
}

// nameAt is its name, or the address where no node is known.
func (u *kubernetesUpgrader) nameAt(address string) string {
	if node := u.nodeAt(address); node != nil {
		return node.Name
	}

	return address
}

// nodeName is the name of a component's node in the inventory, or in Kubernetes where that has none.
func (u *kubernetesUpgrader) nodeName(component kube.Component) string {
	if node := u.observer.NodeOf(kube.Node{Name: component.Node}); node != nil {
		return node.Name
	}

	return component.Node
}
