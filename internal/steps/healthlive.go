package steps

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/kube"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// liveNode is what a node tells of the parts that have to fit each other, and what its files say.
type liveNode struct {
	node      *inventory.Node
	declared  *check.Rendered
	dns       talos.HostDNS
	upstreams []talos.Upstream
	resolvers []string
	servers   []string
	synced    bool
	err       error
}

// live asks the nodes and Kubernetes for the second half of the interoperability profile: whether what runs is what the
// files say.
func (h *healthChecker) live(ctx context.Context, looks []nodeLook) {
	var told []liveNode

	for _, look := range looks {
		if config := h.Configs[look.node.Name]; look.Answers && config != nil {
			told = append(told, h.askLive(ctx, look, check.NewRendered(config)))
		}
	}

	access := &observe.Kubernetes{Observer: h.observer}
	client, err := access.Client(ctx)

	for _, area := range []struct {
		name  check.Area
		judge func() liveArea
	}{
		{check.HostDNSArea, func() liveArea { return liveHostDNS(told) }},
		{check.ResolverArea, func() liveArea { return liveResolvers(told) }},
		{check.CiliumArea, func() liveArea { return liveCilium(ctx, client, err, told) }},
		{check.TimeArea, func() liveArea { return liveTime(told) }},
		{check.MetricsArea, func() liveArea { return h.liveMetrics(ctx, looks) }},
		{check.LabelsArea, func() liveArea { return liveLabels(ctx, client, err, told) }},
		{check.ProxmoxArea, func() liveArea { return liveCloud(ctx, client, err, told) }},
	} {
		came := area.judge()
		h.found.Areas = append(h.found.Areas, came.result(area.name))

		for _, cause := range came.trouble {
			h.say(diagnosis.Finding{ID: diagnosis.LiveDiffers, Severity: diagnosis.Warning,
				Cause: string(area.name) + ": " + cause, Next: came.next})
		}
	}
}

// askLive reads on one connection what a node tells.
func (h *healthChecker) askLive(ctx context.Context, look nodeLook, declared *check.Rendered) liveNode {
	told := liveNode{node: look.node, declared: declared}

	conn, err := h.observer.Dialer().Secure(ctx, look.seen.Address)
	if err != nil {
		told.err = err
		return told
	}
	defer conn.Close()

	for _, read := range []func() error{
		func() (err error) { told.dns, err = conn.HostDNS(ctx); return err },
		func() (err error) { told.upstreams, err = conn.Upstreams(ctx); return err },
		func() (err error) { told.resolvers, err = conn.Resolvers(ctx); return err },
		func() (err error) { told.servers, err = conn.TimeServers(ctx); return err },
		func() (err error) { told.synced, err = conn.TimeSynced(ctx); return err },
	} {
		if err := read(); err != nil && told.err == nil {
			told.err = err
		}
	}

	return told
}

// liveArea is what came of an area: what is wrong, what is there, what could be added, or why nobody was asked.
type liveArea struct {
	trouble, seen, suggested []string
	next, whyNot             string
}

// result is the area as a row of the profile's table.
func (a liveArea) result(name check.Area) check.AreaResult {
	switch {
	case len(a.trouble) > 0:
		return check.AreaResult{Area: name, Status: check.NotCompliant, Finding: strings.Join(a.trouble, "; ")}
	case a.whyNot != "":
		return check.AreaResult{Area: name, Status: check.AreaNotRun, Finding: a.whyNot}
	case len(a.seen) > 0:
		return check.AreaResult{Area: name, Status: check.Compliant, Finding: strings.Join(a.seen, "; ")}
	case len(a.suggested) > 0:
		return check.AreaResult{Area: name, Status: check.Enhancement, Finding: strings.Join(a.suggested, "; ")}
	default:
		return check.AreaResult{Area: name, Status: check.AreaNotRun, Finding: "no node answers"}
	}
}

// takeConfig is what to do where a node does not run what is declared.
const takeConfig = "mage applySequential -update, if the node has drifted"

// ofNodes has each node that could be read judged: what is wrong with it, or nothing.
func ofNodes(told []liveNode, judge func(liveNode) string) (area liveArea) {
	area.next = takeConfig

	for _, node := range told {
		switch wrong := judge(node); {
		case node.err != nil:
			area.whyNot = node.node.Name + " could not be asked: " + talos.Explain(node.err)
		case wrong != "":
			area.trouble = append(area.trouble, node.node.Name+": "+wrong)
		}
	}

	return area
}

func liveHostDNS(told []liveNode) liveArea {
	area := ofNodes(told, func(node liveNode) string {
		declared := node.declared.HostDNS()

		for _, switched := range []struct {
			what              string
			live, wanted, now bool
		}{
			{"the DNS cache", node.dns.Enabled, declared.HostDNSEnabled(), true},
			{"forwarding from CoreDNS", node.dns.ForKubernetes, declared.ForwardKubeDNSToHost(), node.dns.Enabled},
			{"resolving member names", node.dns.ResolvesMembers, declared.ResolveMemberNames(), node.dns.Enabled},
		} {
			if switched.now && switched.live != switched.wanted {
				return fmt.Sprintf("%s is %s, and %s is declared", switched.what, onOff(switched.live),
					onOff(switched.wanted))
			}
		}

		ill := filtered(node.upstreams, func(upstream talos.Upstream) bool { return !upstream.Healthy })
		if len(ill) > 0 {
			return fmt.Sprintf("%d of %s do not answer: %s", len(ill), text.Counted(len(node.upstreams), "name server"),
				text.List(addressesIn(ill)))
		}

		return ""
	})

	if len(told) > 0 {
		area.seen = []string{"as declared on " + text.Counted(len(told), "node") + ", and its name servers answer"}
	}

	return area
}

func onOff(on bool) string {
	if on {
		return "on"
	}

	return "off"
}

func addressesIn(upstreams []talos.Upstream) []string {
	texts := make([]string, 0, len(upstreams))
	for _, upstream := range upstreams {
		texts = append(texts, upstream.Address)
	}

	return texts
}

func liveResolvers(told []liveNode) liveArea {
	area := ofNodes(told, func(node liveNode) string {
		return difference("name servers", node.resolvers, node.declared.ResolverTexts())
	})

	for _, node := range told {
		area.seen = text.AppendNew(area.seen, strings.Join(node.resolvers, ", "))
	}

	return area
}

func liveTime(told []liveNode) liveArea {
	area := ofNodes(told, func(node liveNode) string {
		if !node.synced {
			return "its clock is not in sync"
		}

		return difference("time servers", node.servers, node.declared.TimeServerTexts())
	})

	for _, node := range told {
		area.seen = text.AppendNew(area.seen, "in sync with "+strings.Join(node.servers, ", "))
	}

	return area
}

// difference says that a node asks others than those that are declared; nothing where the files leave it to the node.
func difference(what string, live, declared []string) string {
	if len(declared) == 0 || slices.Equal(slices.Sorted(slices.Values(live)), slices.Sorted(slices.Values(declared))) {
		return ""
	}

	return fmt.Sprintf("its %s are %s, and declared are %s", what, text.List(live), text.List(declared))
}

// liveCilium asks Kubernetes whether Cilium runs on every node, and whether it does what the machine configs leave to
// it.
func liveCilium(ctx context.Context, client *kube.Client, failed error, told []liveNode) liveArea {
	if failed != nil {
		return liveArea{whyNot: "Kubernetes can't be asked: " + kube.Explain(failed)}
	}

	sets, err := client.DaemonSets(ctx, "k8s-app=cilium")

	switch {
	case err != nil:
		return liveArea{whyNot: "Kubernetes can't be asked: " + kube.Explain(err)}
	case len(sets) == 0:
		return liveArea{whyNot: "there is no Cilium"}
	}

	cilium := sets[0]
	area := liveArea{next: "kubectl -n " + cilium.Namespace + " describe daemonset " + cilium.Name,
		seen: []string{fmt.Sprintf("ready on %d of %s", cilium.Ready, text.Counted(cilium.Wanted, "node"))}}

	if cilium.Ready < cilium.Wanted || cilium.Wanted == 0 {
		area.trouble = append(area.trouble, fmt.Sprintf("its agent is ready on %d of %d nodes", cilium.Ready, cilium.Wanted))
	}

	config, err := client.ConfigMap(ctx, cilium.Namespace, "cilium-config")
	if err != nil {
		area.trouble = append(area.trouble, "its configuration can't be read: "+kube.Explain(err))
		return area
	}

	for _, wanted := range []struct{ key, value, because string }{
		{"ipam", "kubernetes", "Talos gives the nodes their pod networks"},
		{"kube-proxy-replacement", "true", "the machine configs switch kube-proxy off"},
	} {
		if wanted.key == "kube-proxy-replacement" && !withoutKubeProxy(told) {
			continue
		}

		if config[wanted.key] != wanted.value {
			area.trouble = append(area.trouble, fmt.Sprintf("%s is %q and should be %q: %s", wanted.key,
				config[wanted.key], wanted.value, wanted.because))
		} else {
			area.seen = append(area.seen, wanted.key+" "+wanted.value)
		}
	}

	return area
}

// withoutKubeProxy reports whether the machine configs leave services to somebody else than kube-proxy.
func withoutKubeProxy(told []liveNode) bool {
	return slices.ContainsFunc(told, func(node liveNode) bool {
		return node.node.Role == inventory.ControlPlane && !node.declared.Proxy().Enabled()
	})
}

// liveMetrics asks each control plane's etcd for its metrics, where its config has it serve them.
func (h *healthChecker) liveMetrics(ctx context.Context, looks []nodeLook) (area liveArea) {
	var without []string

	for _, look := range looks {
		config := h.Configs[look.node.Name]
		if look.node.Role != inventory.ControlPlane || config == nil || !look.Answers {
			continue
		}

		target := metricsAt(config.Etcd().ExtraArgs()["listen-metrics-urls"], look.Address)
		if target == "" {
			without = append(without, look.Node)
			continue
		}

		if err := h.readMetrics(ctx, target); err != nil {
			area.trouble = append(area.trouble, fmt.Sprintf("%s: %s can't be read: %v", look.Node, target, err))
			area.next = "mage etcd:status; and look for a firewall in front of the port"
		} else {
			area.seen = append(area.seen, look.Node+" serves them at "+target)
		}
	}

	if len(without) > 0 {
		area.suggested = []string{"no metrics can be read from here of " + text.List(without)}
	}

	return area
}

// metricsAt is where a control plane serves etcd's metrics to others, by what its config has it listen to; empty where
// it does not.
func metricsAt(listens []string, address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}

	for _, list := range listens {
		for listen := range strings.SplitSeq(list, ",") {
			parsed, err := url.Parse(strings.TrimSpace(listen))
			if err != nil || parsed.Port() == "" || parsed.Hostname() == "127.0.0.1" || parsed.Hostname() == "localhost" {
				continue
			}

			return parsed.Scheme + "://" + net.JoinHostPort(address, parsed.Port()) + "/metrics"
		}
	}

	return ""
}

// maxMetrics bounds what is read of the metrics, which have some hundred kilobytes.
const maxMetrics = 4 << 20

func (h *healthChecker) readMetrics(ctx context.Context, target string) error {
	asking, stop := context.WithTimeout(ctx, h.Settings.DialTimeout)
	defer stop()

	request, err := http.NewRequestWithContext(asking, http.MethodGet, target, nil)
	if err != nil {
		return err //nolint:wrapcheck // the caller says what was asked
	}

	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("no answer (%s)", kube.Explain(err)) //nolint:err113 // for people
	}
	defer reply.Body.Close() //nolint:errcheck // it was only read

	body, err := io.ReadAll(io.LimitReader(reply.Body, maxMetrics))

	switch {
	case err != nil:
		return err //nolint:wrapcheck // as above
	case !strings.Contains(string(body), "etcd_server_has_leader"):
		return fmt.Errorf("what answers is not etcd (%s)", reply.Status) //nolint:err113 // for people
	default:
		return nil
	}
}

// liveLabels compares the labels that machine configs set with those that Kubernetes' nodes have. One without a value
// is as good as none: Talos sets such by itself.
func liveLabels(ctx context.Context, client *kube.Client, failed error, told []liveNode) liveArea {
	nodes, area := kubernetesNodes(ctx, client, failed)
	if area.whyNot != "" {
		return area
	}

	area.next = "kubectl get nodes --show-labels; a worker may not set every label itself (TM372)"
	labelled := 0

	for _, node := range told {
		live, known := nodes[strings.ToLower(node.node.Hostname)]
		if !known {
			continue
		}

		declared := node.declared.NodeLabels()

		for _, label := range slices.Sorted(maps.Keys(declared)) {
			if live.Labels[label] != declared[label] {
				area.trouble = append(area.trouble, fmt.Sprintf("%s: the label %s is %q, and %q is declared", node.node.Name,
					label, live.Labels[label], declared[label]))
			}
		}

		if live.Labels["topology.kubernetes.io/zone"] != "" {
			labelled++
		}
	}

	switch {
	case labelled > 0:
		area.seen = []string{fmt.Sprintf("as declared; %d of %s have a zone", labelled, text.Counted(len(told), "node"))}
	case len(told) > 0:
		area.suggested = []string{"no node has a zone (topology.kubernetes.io/zone)"}
	}

	return area
}

// liveCloud looks at what a cloud controller manager, as Proxmox', does with the nodes, where the machine configs leave
// them to one.
func liveCloud(ctx context.Context, client *kube.Client, failed error, told []liveNode) liveArea {
	if !slices.ContainsFunc(told, func(node liveNode) bool { return node.declared.HasExternalCloudProvider() }) {
		return liveArea{whyNot: "the machine configs leave the nodes to no cloud controller manager"}
	}

	nodes, area := kubernetesNodes(ctx, client, failed)
	if area.whyNot != "" {
		return area
	}

	pods, err := client.Pods(ctx, "app.kubernetes.io/name=proxmox-cloud-controller-manager")
	if err != nil {
		return liveArea{whyNot: "Kubernetes can't be asked: " + kube.Explain(err)}
	}

	area.next = "kubectl -n kube-system logs -l app.kubernetes.io/name=proxmox-cloud-controller-manager"

	if ready := filtered(pods, func(pod kube.Pod) bool { return pod.Ready }); len(ready) == 0 {
		area.trouble = append(area.trouble, "no cloud controller manager of Proxmox is ready")
	} else {
		area.seen = append(area.seen, ready[0].Name+" is ready")
	}

	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		switch node := nodes[name]; {
		case node.Uninitialized:
			area.trouble = append(area.trouble, node.Name+" waits for it, and takes no pods")
		case node.ProviderID == "":
			area.trouble = append(area.trouble, node.Name+" has no provider id")
		}
	}

	return area
}

// kubernetesNodes are those that Kubernetes has, by name in lower case, or why they are not known.
func kubernetesNodes(ctx context.Context, client *kube.Client, failed error) (map[string]kube.Node, liveArea) {
	var listed []kube.Node

	if failed == nil {
		listed, failed = client.Nodes(ctx)
	}

	if failed != nil {
		return nil, liveArea{whyNot: "Kubernetes can't be asked: " + kube.Explain(failed)}
	}

	nodes := make(map[string]kube.Node, len(listed))
	for _, node := range listed {
		nodes[strings.ToLower(node.Name)] = node
	}

	return nodes, liveArea{}
}
