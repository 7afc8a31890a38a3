package steps

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/talos-mage/talos-mage/internal/base/program"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/release"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/kube"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/steps/wait"
	"github.com/talos-mage/talos-mage/internal/talos"
	ctl "github.com/talos-mage/talos-mage/internal/talos/talosctl"
)

// mostKubeletsBehind is by how many minors a kubelet may be older than the API servers.
// Source: https://kubernetes.io/releases/version-skew-policy/.
const (
	mostKubeletsBehind = 3
	kubelet            = "kubelet"
)

// plan finds out what there is to do, and everything that stands against it. In a dry run it goes by what Kubernetes
// shows alone: talosctl's own dry run sends the control planes their configs once more.
func (u *kubernetesUpgrader) plan(ctx context.Context) (kubernetesPlan, error) {
	if !release.IsTag(u.to) {
		return kubernetesPlan{}, u.refused(fmt.Sprintf("the files declare kubernetesVersion %q, which is no whole version",
			u.to), "set kubernetesVersion, as v1.37.0")
	}

	versions, err := u.survey(ctx)
	if err != nil {
		return kubernetesPlan{}, err
	}

	if err := u.admitReleases(versions); err != nil {
		return kubernetesPlan{}, err
	}

	if err := u.admitProgram(ctx, versions); err != nil {
		return kubernetesPlan{}, err
	}

	components, err := u.components(ctx)
	if err != nil {
		return kubernetesPlan{}, err
	}

	if err := u.admitPath(components); err != nil {
		return kubernetesPlan{}, err
	}

	if err := u.admitDeprecated(ctx); err != nil {
		return kubernetesPlan{}, err
	}

	plan := kubernetesPlan{outdated: u.outdated(components)}
	if u.Settings.DryRun {
		return plan, nil
	}

	return u.rehearse(ctx, plan)
}

// refused is for a version that can't be had from here.
func (u *kubernetesUpgrader) refused(cause, next string) *diagnosis.Problem {
	problem := u.clusterProblem(diagnosis.K8sUpgradeRefused, cause, next)
	problem.Exit = diagnosis.ExitBadInput

	return problem
}

// talosVersion is what a node runs.
type talosVersion struct {
	seen    observe.Observation
	version string
}

// survey asks every node: all have to run with their config.
func (u *kubernetesUpgrader) survey(ctx context.Context) ([]talosVersion, error) {
	var (
		versions []talosVersion
		problems []*diagnosis.Problem
	)

	for _, seen := range u.observer.All(ctx, u.Cluster.Nodes) {
		switch {
		case seen.NotOurs():
			problems = append(problems, u.notOurs(seen))
			continue
		case seen.ReadErr != nil && seen.FailedForGood():
			problems = append(problems, u.readFailure(seen))
			continue
		case !seen.Up():
			problems = append(problems, u.problem(seen, diagnosis.K8sUpgradeHeldBack, notUp(seen),
				command("status", seen.Node)))

			continue
		}

		version := u.observer.Version(ctx, seen)
		if version == "" {
			problems = append(problems, u.problem(seen, diagnosis.K8sUpgradeHeldBack,
				"it does not say which Talos it runs", command("status", seen.Node)))

			continue
		}

		if u.asked.Node == nil && seen.Node.Role == inventory.ControlPlane {
			u.asked = seen
		}

		versions = append(versions, talosVersion{seen, version})
	}

	return versions, joined(problems)
}

// notUp says how a node is that does not run with its config.
func notUp(seen observe.Observation) string {
	switch {
	case seen.Silent():
		return "it does not answer"
	case seen.State == talos.Maintenance:
		return "it is in maintenance"
	default:
		return "it does not run: " + stageText(seen)
	}
}

// admitReleases refuses a Kubernetes that the Talos of a node does not run.
func (u *kubernetesUpgrader) admitReleases(versions []talosVersion) error {
	for _, node := range versions {
		err := release.Fit(u.to, node.version)
		if err == nil || errors.Is(err, release.ErrNotTabled) {
			continue
		}

		problem := u.about(node.seen, u.refused(err.Error(), "upgrade Talos first, or set another kubernetesVersion"))
		problem.Exit = diagnosis.ExitBadInput

		return problem
	}

	return nil
}

// admitProgram refuses a talosctl that is missing, or of another minor than a node.
func (u *kubernetesUpgrader) admitProgram(ctx context.Context, versions []talosVersion) error {
	wanted := newest(versions)
	own, err := u.program.Version(ctx)

	switch {
	case errors.Is(err, program.ErrMissing):
		return u.unfit("talosctl is not on the PATH, and the upgrade of Kubernetes runs in it", wanted).From(err)
	case err != nil:
		return u.unfit(err.Error(), wanted).From(err)
	}

	for _, node := range versions {
		if !sameMinor(own, node.version) {
			return u.about(node.seen, u.unfit(fmt.Sprintf("talosctl is %s, and the node runs Talos %s: the upgrade is "+
				"tested with the same minor alone", own, node.version), wanted))
		}
	}

	return nil
}

func (u *kubernetesUpgrader) unfit(cause, wanted string) *diagnosis.Problem {
	problem := u.clusterProblem(diagnosis.TalosctlUnfit, cause, fmt.Sprintf("put talosctl %s on the PATH: "+
		"https://github.com/siderolabs/talos/releases/download/%s/talosctl-%s-%s", wanted, wanted, runtime.GOOS,
		runtime.GOARCH))
	problem.Exit = diagnosis.ExitBadInput

	return problem
}

// newest is the newest Talos of some nodes.
func newest(versions []talosVersion) string {
	newest := ""
	for _, node := range versions {
		if newest == "" || older(newest, node.version) {
			newest = node.version
		}
	}

	return newest
}

// older reports whether a whole version comes before another.
func older(version, than string) bool {
	some, _ := release.Numbers(version)
	other, _ := release.Numbers(than)

	return slices.Compare(some[:], other[:]) < 0
}

func sameMinor(version, as string) bool {
	some, known := release.Numbers(version)
	other, alsoKnown := release.Numbers(as)

	return known && alsoKnown && some[0] == other[0] && some[1] == other[1]
}

// components asks Kubernetes what runs. An API that does not answer, and nodes that are not Ready, are waited for: an
// upgrade that was stopped leaves them restarting.
func (u *kubernetesUpgrader) components(ctx context.Context) (components []kube.Component, failed error) {
	since := u.Clock.Now()

	problem := u.waiter().Until(ctx, func(ctx context.Context) wait.State {
		nodes, err := u.access.Kubelets(ctx)
		if err == nil {
			components, err = u.access.Components(ctx)
		}

		if err != nil {
			return u.awaitAPI(err, since)
		}

		return u.awaitReady(nodes, since)
	})
	if problem != nil {
		return nil, problem
	}

	return components, nil
}

// awaitAPI waits for an API that does not answer, unless it is another cluster's or wants nothing of us.
func (u *kubernetesUpgrader) awaitAPI(err error, since time.Time) wait.State {
	state := wait.State{
		Limit: wait.Limit{For: "waiting for the Kubernetes API: " + kube.Explain(err), Since: since,
			Limit: u.Settings.APITimeout},
		Pause: apiPause, Silent: true,
		TimeUp: func(time.Duration) *diagnosis.Problem { return u.unanswered(err) },
	}

	if kube.Diagnose(err) != diagnosis.APINotReady {
		state.Problem = u.unanswered(err)
	}

	return state
}

// awaitReady waits until every node that Kubernetes lists is Ready. Each has to be one of ours.
func (u *kubernetesUpgrader) awaitReady(nodes []kube.Node, since time.Time) wait.State {
	for _, registered := range nodes {
		node := u.observer.NodeOf(registered)

		switch {
		case node == nil:
			return wait.State{Problem: u.clusterProblem(diagnosis.K8sUpgradeHeldBack, fmt.Sprintf("Kubernetes lists the node "+
				"%s, which is not in the files: talosctl would upgrade it too, and stop where it can't", registered.Name),
				"kubectl delete node "+registered.Name+" if the machine is gone; else add it to the files")}
		case !registered.Ready:
			return wait.State{
				Limit: wait.Limit{For: "not Ready in Kubernetes: " + registered.Message, Since: since,
					Limit: u.Settings.VerificationTimeout},
				Node: node.Name, Pause: apiPause,
				TimeUp: func(waited time.Duration) *diagnosis.Problem {
					return u.problem(observe.Observation{Node: node}, diagnosis.K8sUpgradeHeldBack, fmt.Sprintf("it is not Ready "+
						"in Kubernetes, for %s: %s", waited, registered.Message), "kubectl describe node "+registered.Name)
				},
			}
		}
	}

	return wait.State{Done: true}
}

func (u *kubernetesUpgrader) unanswered(err error) *diagnosis.Problem {
	return u.clusterProblem(kube.Diagnose(err), fmt.Sprintf("the Kubernetes API at %s can't be asked what runs: %s",
		u.Cluster.Endpoint.Host, kube.Explain(err)), command("status", nil)).From(err)
}

// admitPath refuses a way to the version that Kubernetes does not support.
func (u *kubernetesUpgrader) admitPath(components []kube.Component) error {
	to, _ := release.Numbers(u.to)

	for _, component := range components {
		from, known := release.Numbers(component.Version)
		isKubelet := component.Name == kubelet
		where := fmt.Sprintf("%s of %s runs %s", component.Name, u.nodeName(component), component.Version)

		switch {
		case !known:
			return u.refused(where+", which is no whole version", command("status", nil))
		case older(u.to, component.Version):
			return u.refused(fmt.Sprintf("%s, and the files declare the older %s: Kubernetes can't be downgraded", where, u.to),
				"set kubernetesVersion to "+component.Version+" or newer")
		case isKubelet && (from[0] != to[0] || to[1]-from[1] > mostKubeletsBehind):
			return u.refused(fmt.Sprintf("%s, and a kubelet may be %s behind the API servers: %s would leave it further behind",
				where, text.Counted(mostKubeletsBehind, "minor"), u.to),
				"set kubernetesVersion to "+u.servers(components)+", which the API servers run, for an upgrade of the kubelets")
		case !isKubelet && (from[0] != to[0] || to[1]-from[1] > 1):
			return u.refused(where+", and "+u.to+" skips a minor",
				fmt.Sprintf("set kubernetesVersion to a release of v%d.%d first", from[0], from[1]+1))
		}
	}

	return nil
}

// servers is the version of the API servers, which are seen first.
func (*kubernetesUpgrader) servers(components []kube.Component) string {
	for _, component := range components {
		if component.Name == "kube-apiserver" {
			return component.Version
		}
	}

	return "a release of the same minor"
}

// admitDeprecated tells of deprecated APIs in use, and refuses a version that no longer has one of them.
func (u *kubernetesUpgrader) admitDeprecated(ctx context.Context) error {
	used, err := u.access.DeprecatedAPIs(ctx)
	if err != nil {
		return u.unanswered(err)
	}

	skipped := slices.Contains(u.workspace.SkipChecks(), diagnosis.DeprecatedAPIsUsed)

	var removed []string

	for _, api := range used {
		gone := api.Removed != "" && !older(u.to, "v"+api.Removed+".0")
		if gone && !skipped {
			removed = append(removed, fmt.Sprintf("%s, which %s removed", api.Name, api.Removed))
			continue
		}

		u.Report.Finding(u.step.Name(), diagnosis.Finding{
			ID: diagnosis.DeprecatedAPIsUsed, Severity: diagnosis.Warning,
			Cause: api.Name + " is in use" + text.Because(removal(api)),
			Next:  "find who asks for it, and move it to the newer API",
		})
	}

	if len(removed) == 0 {
		return nil
	}

	problem := u.clusterProblem(diagnosis.DeprecatedAPIsUsed, fmt.Sprintf("%s would take away an API that is in use: %s",
		u.to, text.List(removed)), "move what uses it to the newer API; "+u.command(nil)+" -skipChecks="+
		string(diagnosis.DeprecatedAPIsUsed)+" upgrades all the same")
	problem.Severity = diagnosis.Failure

	return problem
}

func removal(api kube.DeprecatedAPI) string {
	if api.Removed == "" {
		return "deprecated, to be removed some day"
	}

	return "removed in " + api.Removed
}

// rehearse has talosctl tell what it would do, and shows it.
func (u *kubernetesUpgrader) rehearse(ctx context.Context, plan kubernetesPlan) (kubernetesPlan, error) {
	u.Report.Progress(u.step.Name(), report.Progress{Text: "asking talosctl what it would do", Since: u.Clock.Now()})
	defer u.Report.Idle(u.step.Name(), "")

	err := u.gate.RehearseKubernetes(ctx, u.program, u.request(), func(line ctl.Line) {
		if line.Kind == ctl.Planned || line.Kind == ctl.Manifest {
			plan.changes = append(plan.changes, line)
			u.Log.Info().Str("node", u.nameAt(line.Node)).Msg("would change: " + described(line))
		}
	})
	if err != nil {
		return kubernetesPlan{}, u.stopped(err)
	}

	return plan, nil
}
