package steps

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/kube"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// nodesReadyCheck is the check that no node passes before a CNI is installed. Since Talos 1.13 it is left out where the
// machine configs leave the CNI to somebody else.
const nodesReadyCheck = "all k8s nodes to report ready"

// Why a check is ended that would only go on waiting.
var (
	// errNoCNI: for a CNI that nobody has installed.
	errNoCNI = errors.New("no CNI is installed yet")
	// errNotAwaited: for what may pass later, where nobody is to wait for it.
	errNotAwaited = errors.New("which was not waited for")
	// errSilentNode: for a node that is known not to answer.
	errSilentNode = errors.New("it waits for a node that does not answer")
)

// cluster has the control planes that answer check the cluster, one after the other until one has done so, and compares
// Kubernetes' nodes with the declared ones.
func (h *healthChecker) cluster(ctx context.Context, looks []nodeLook) {
	since, why := h.Clock.Now(), []string{}

	for _, look := range h.controlPlanes(ctx, looks) {
		if !look.Answers {
			why = append(why, look.Node+": "+look.State)
			continue
		}

		switch err := h.checkBy(ctx, look, since); {
		case ctx.Err() != nil:
			return
		case err == nil:
			h.compareNodes(ctx)
			return
		default:
			why = append(why, look.Node+": "+talos.Explain(err))
			h.Log.Warn().Str("node", look.Node).Msg("can't check the cluster: " + talos.Explain(err))
		}
	}

	if failing, known := h.failing(); known {
		h.say(h.failure(failing, "and then nobody went on with the check ("+strings.Join(why, "; ")+")"))
		return
	}

	if len(why) > 0 {
		h.say(h.clusterProblem(diagnosis.HealthUnasked, strings.Join(why, "; "), command("status", nil)).Finding)
	}
}

// controlPlanes are those among the nodes that were looked at; all of the cluster's if there are none.
func (h *healthChecker) controlPlanes(ctx context.Context, looks []nodeLook) []nodeLook {
	among := filtered(looks, func(look nodeLook) bool { return look.node.Role == inventory.ControlPlane })
	if len(among) == 0 {
		for _, node := range h.Cluster.ControlPlanes() {
			among = append(among, h.lookAt(ctx, node))
		}
	}

	return among
}

// checkBy has one control plane check the cluster. The error is that it did not come to an end; one that does not pass
// in time is said.
func (h *healthChecker) checkBy(ctx context.Context, look nodeLook, since time.Time) error {
	conn, err := h.observer.Dialer().Secure(ctx, look.seen.Address)
	if err != nil {
		return err //nolint:wrapcheck // its class is the caller's to judge
	}
	defer conn.Close()

	left := h.Settings.HealthTimeout - h.Clock.Now().Sub(since)
	timed, cancel := h.Clock.WithTimeout(ctx, left)
	defer cancel()

	checking, stop := context.WithCancelCause(timed)
	defer stop(nil)

	h.found.Checks, h.found.AskedOf = nil, look.Node

	err = conn.CheckHealth(checking, left, h.nodesToName(ctx, conn), func(check talos.HealthCheck) {
		h.tell(check, since, left)

		switch {
		case check.Reason == "":
		case check.Name == nodesReadyCheck && h.withoutCNI(ctx):
			stop(errNoCNI)
		case slices.ContainsFunc(h.blamed(check), h.silentNow):
			stop(errSilentNode)
		case h.Settings.NoWait:
			stop(errNotAwaited)
		}
	})
	h.Report.Idle(h.step.Name(), "")

	failing, known := h.failing()

	switch cause := context.Cause(checking); {
	case errors.Is(cause, errNoCNI):
		return nil
	case known && (errors.Is(cause, errSilentNode) || errors.Is(cause, errNotAwaited)):
		h.say(h.failure(failing, cause.Error()))
		return nil
	case err == nil || !known || timed.Err() == nil && !talos.IsTimeUp(err):
		return err //nolint:wrapcheck // its class is the caller's to judge
	default:
		h.say(h.failure(failing, fmt.Sprintf("for %s", h.Clock.Now().Sub(since).Round(time.Second))))
		return nil
	}
}

// nodesToName are the declared nodes, for a control plane whose discovery does not know all of them: it would check the
// others only. Discovery knows more addresses of a node than one, so it goes first. Nobody is named where an address is
// not known, or there is no discovery: then Kubernetes tells.
func (h *healthChecker) nodesToName(ctx context.Context, conn *talos.Conn) (named talos.HealthNodes) {
	members, err := conn.Members(ctx)
	if err != nil || len(members) == 0 {
		return named
	}

	complete := true

	for _, node := range h.Cluster.Nodes {
		address, err := netip.ParseAddr(node.Address)
		if err != nil {
			return talos.HealthNodes{}
		}

		complete = complete && slices.ContainsFunc(members, func(member talos.Member) bool {
			return slices.Contains(member.Addresses, address)
		})

		if node.Role == inventory.ControlPlane {
			named.ControlPlanes = append(named.ControlPlanes, address.String())
		} else {
			named.Workers = append(named.Workers, address.String())
		}
	}

	if complete {
		return talos.HealthNodes{}
	}

	return named
}

// silentNow reports whether a node was found not to answer.
func (h *healthChecker) silentNow(node *inventory.Node) bool {
	return slices.ContainsFunc(h.found.Nodes, func(looked NodeHealth) bool {
		return looked.Node == node.Name && !looked.Answers
	})
}

// tell shows how the check goes on: a line as each is over, and meanwhile what is waited for.
func (h *healthChecker) tell(check talos.HealthCheck, since time.Time, left time.Duration) {
	if i := len(h.found.Checks) - 1; i >= 0 && h.found.Checks[i].Name == check.Name {
		if check.Reason == "" && !check.Over() {
			return
		}

		h.found.Checks[i] = check
	} else {
		h.found.Checks = append(h.found.Checks, check)
	}

	switch {
	case check.Passed:
		h.Echo.Info().Str("check", check.Name).Msg("passed")
	case check.LeftOut:
		h.Echo.Info().Str("check", check.Name).Msg("does not apply here")
	case check.Reason != "":
		h.Log.Warn().Str("check", check.Name).Msg(h.named(check.Reason))
	}

	if !check.Over() {
		h.Report.Progress(h.step.Name(), report.Progress{
			Text: "waiting for " + check.Name + text.Because(h.named(check.Reason)), Since: since, Left: left})
	}
}

// failing is the check that is not over; false if there is none, or nobody said why.
func (h *healthChecker) failing() (talos.HealthCheck, bool) {
	i := len(h.found.Checks) - 1
	if i < 0 || h.found.Checks[i].Over() || h.found.Checks[i].Reason == "" {
		return talos.HealthCheck{}, false
	}

	return h.found.Checks[i], true
}

// failure is the finding of a check that does not pass.
func (h *healthChecker) failure(check talos.HealthCheck, since string) diagnosis.Finding {
	meaning := meaningOf(check.Name)
	finding := diagnosis.Finding{
		ID: diagnosis.HealthFails, Severity: diagnosis.Failure, Next: meaning.next,
		Cause: fmt.Sprintf("%s, %s: %s (check %q, made by %s)", meaning.text, since, h.named(check.Reason), check.Name,
			h.found.AskedOf),
	}

	if about := h.blamed(check); len(about) == 1 {
		finding.Node, finding.Address = about[0].Name, about[0].Address
		finding.Next = strings.ReplaceAll(finding.Next, "<node>", about[0].Name)
	}

	return finding
}

// meaning is what a check of Talos means in plain words, and what to do while it fails.
type meaning struct{ text, next string }

// askNodes are the checks that ask Talos on the nodes: of one that does not answer they say no more than that somebody
// did not.
var askNodes = []string{"etcd to be healthy", "etcd members to be consistent across nodes", "apid to be ready",
	"all nodes memory sizes", "all nodes disk sizes", "no diagnostics", "kubelet to be healthy",
	"all nodes to finish boot sequence"}

// blamed are the declared nodes that a failing check is about: those that it names, else those that do not answer, if
// it asks them.
func (h *healthChecker) blamed(check talos.HealthCheck) []*inventory.Node {
	if named := h.nodesIn(check.Reason); len(named) > 0 || !slices.Contains(askNodes, check.Name) {
		return named
	}

	return filtered(h.Cluster.Nodes, h.silentNow)
}

// meanings are those of the checks of Talos 1.12 to 1.14 (pkg/cluster/check/default.go).
var meanings = map[string]meaning{
	"etcd to be healthy": {"etcd is not healthy on every control plane", "mage etcd:status"},
	"etcd members to be consistent across nodes": {"the control planes do not agree on etcd's members",
		"mage etcd:members"},
	"etcd members to be control plane nodes": {"etcd has a member that is no control plane", "mage etcd:members"},
	"apid to be ready":                       {"a node's API does not answer the control plane", "mage status"},
	"all nodes memory sizes": {"a node has less memory than Talos asks for",
		"give the machine more memory"},
	"all nodes disk sizes": {"a node's disk is smaller than Talos asks for",
		"give the machine a larger disk"},
	"no diagnostics": {"a node warns of itself", "talosctl -n <node> get diagnostics"},
	"kubelet to be healthy": {"kubelet is not healthy on a control plane",
		"talosctl -n <node> service kubelet"},
	"all nodes to finish boot sequence": {"a node has not finished its boot", "mage status"},
	"all k8s nodes to report":           {"Kubernetes' nodes are not the cluster's", "kubectl get nodes -o wide"},
	"all control plane static pods to be running": {"a control plane lacks static pods",
		"talosctl -n <node> get staticpodstatus"},
	"all control plane components to be ready": {"a part of Kubernetes' control plane is not ready",
		"kubectl -n kube-system get pods -o wide"},
	nodesReadyCheck: {"a node is not Ready", "kubectl describe node <node>"},
	"kube-proxy to report ready": {"kube-proxy does not run on every node",
		"kubectl -n kube-system get pods -l k8s-app=kube-proxy"},
	"coredns to report ready": {"CoreDNS does not run", "kubectl -n kube-system get pods -l k8s-app=kube-dns"},
	"all k8s nodes to report schedulable": {"a node takes no pods: it is cordoned",
		"kubectl uncordon <node>, once nobody needs that"},
}

func meaningOf(name string) meaning {
	if known, found := meanings[name]; found {
		return known
	}

	return meaning{"a check does not pass", "mage status"}
}

// word is a name or an address within a text.
var word = pattern.New(`[0-9A-Za-z_][0-9A-Za-z_.:-]*[0-9A-Za-z_]`)

// nodesIn are the declared nodes that a text names, by hostname or by address.
func (h *healthChecker) nodesIn(reason string) []*inventory.Node {
	words := word.FindAllString(reason, -1)
	for i := range words {
		words[i] = strings.TrimSuffix(words[i], ":")
	}

	return filtered(h.Cluster.Nodes, func(node *inventory.Node) bool {
		return slices.Contains(words, node.Hostname) || slices.ContainsFunc(h.observer.Addresses(node),
			func(address string) bool { return slices.Contains(words, address) })
	})
}

// named is a reason with the names of the nodes whose addresses it has.
func (h *healthChecker) named(reason string) string {
	return word.ReplaceAllStringFunc(reason, func(found string) string {
		for _, node := range h.Cluster.Nodes {
			if slices.Contains(h.observer.Addresses(node), found) {
				return fmt.Sprintf("%s (%s)", node.Name, found)
			}
		}

		return found
	})
}

// compareNodes says which declared nodes Kubernetes does not know, and which are not Ready.
func (h *healthChecker) compareNodes(ctx context.Context) {
	if slices.ContainsFunc(h.problems,
		func(problem *diagnosis.Problem) bool { return problem.ID == diagnosis.HealthFails }) {
		return // Kubernetes comes last in Talos' check
	}

	access := &observe.Kubernetes{Observer: h.observer}
	seen := access.Registered(ctx, h.Nodes())

	switch {
	case seen.Err != nil:
		h.say(diagnosis.Finding{ID: kube.Diagnose(seen.Err), Severity: diagnosis.Warning,
			Cause: "from here Kubernetes can't be asked for its nodes: " + kube.Explain(seen.Err),
			Next:  "check that this computer reaches " + h.Cluster.Endpoint.Host})
		return
	case len(seen.Missing) > 0:
		h.say(h.clusterProblem(diagnosis.NotRegistered, "not registered in Kubernetes: "+text.List(seen.Missing),
			"mage verify").Finding)
	}

	switch notReady := seen.NotReady; {
	case len(notReady) == 0:
	case h.waitForCNI(seen, len(h.Nodes())):
		cause := fmt.Sprintf("no CNI is installed yet (declared is %q), so no node is Ready and no pod gets an address: %s",
			h.Cluster.CNI, text.List(kubeNames(notReady)))
		if failing, known := h.failing(); known {
			cause += fmt.Sprintf("; the checks after %q were not made", failing.Name)
		}

		h.say(diagnosis.Finding{ID: diagnosis.NotReadyExpected, Severity: diagnosis.Warning, Cause: cause,
			Next: "install your CNI, then mage health"})
	default:
		h.say(h.clusterProblem(diagnosis.NodesNotReady, "not Ready: "+notReadyText(notReady),
			"kubectl describe node "+notReady[0].Name).Finding)
	}
}

func notReadyText(nodes []kube.Node) string {
	texts := make([]string, 0, len(nodes))
	for _, node := range nodes {
		texts = append(texts, node.Name+text.Because(strings.TrimSpace(node.Reason+" "+node.Message)))
	}

	return text.List(texts)
}

// withoutCNI reports whether Kubernetes has all nodes wait for a CNI.
func (h *healthChecker) withoutCNI(ctx context.Context) bool {
	access := &observe.Kubernetes{Observer: h.observer}

	return h.waitForCNI(access.Registered(ctx, h.Nodes()), len(h.Nodes()))
}

// waitForCNI reports whether the nodes are not Ready since none of them has a CNI, and Talos does not bring one. Where
// only some have none it has failed there.
func (h *healthChecker) waitForCNI(seen observe.Registration, nodes int) bool {
	const noNetwork = "NetworkPluginNotReady"

	return h.Cluster.CNI == "none" && seen.Err == nil && len(seen.NotReady)+len(seen.Missing) == nodes &&
		len(seen.NotReady) > 0 && !slices.ContainsFunc(seen.NotReady, func(node kube.Node) bool {
		return !strings.Contains(node.Message, noNetwork)
	})
}
