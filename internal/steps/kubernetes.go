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
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/retry"
	"github.com/talos-mage/talos-mage/internal/talos"
)

const (
	// apiPause is the wait between two requests to a Kubernetes API that is not ready.
	apiPause = time.Second
	// apiRequestTimeout bounds one request.
	apiRequestTimeout = 5 * time.Second
	kubernetesPort    = "6443"
	// flannel is Talos' own CNI.
	flannel = "flannel"
)

// kubeconfigRetries is how often a kubeconfig that could not be had is asked for again.
const kubeconfigRetries = 2

// errNoControlPlane reports whether nobody is there who could make a kubeconfig.
var errNoControlPlane = errors.New("no control plane answers with this cluster's certificate authority")

// awaitKubeconfig asks for the kubeconfig, and once more and once again if that failed for a reason that may pass.
func (r *Run) awaitKubeconfig(ctx context.Context) (kubeconfig []byte, err error) {
	policy := retry.Policy{Retries: kubeconfigRetries, Initial: r.Settings.InitialDelay, Max: r.Settings.MaxDelay,
		Multiplier: r.Settings.BackoffMultiplier}

	if r.Settings.DryRun || r.Settings.NoWait {
		policy.Retries = 0
	}

	//nolint:errcheck // the last attempt's own error says more
	retry.Do(ctx, r.Clock, policy, func(ctx context.Context, _ int) error {
		kubeconfig, err = r.fetchKubeconfig(ctx)

		return err
	}, func(err error) bool {
		return errors.Is(err, errNoControlPlane) || talos.Classify(talos.OpKubeconfig, err) == talos.Retry
	})

	return kubeconfig, err
}

// fetchKubeconfig asks the control planes in turn. Talos makes the file from its machine config, so it says nothing
// about the cluster's health.
func (r *Run) fetchKubeconfig(ctx context.Context) ([]byte, error) {
	err := errNoControlPlane

	for _, node := range r.Cluster.ControlPlanes() {
		probed := r.probe(ctx, node)
		if probed.State != talos.Ours {
			continue
		}

		conn, dialErr := r.dialer().Secure(ctx, probed.Address)
		if dialErr != nil {
			err = dialErr

			continue
		}

		data, fetchErr := conn.Kubeconfig(ctx)
		conn.Close()

		if fetchErr == nil {
			return data, nil
		}

		err = fmt.Errorf("fetch kubeconfig from %s: %w", node.Name, fetchErr)
	}

	return nil, err
}

// adminAccess is the cluster's admin kubeconfig, fetched once: each time a control plane makes a new client
// certificate.
type adminAccess struct {
	*Run
	kubeconfig []byte
}

func (a *adminAccess) get(ctx context.Context) ([]byte, error) {
	if a.kubeconfig == nil {
		kubeconfig, err := a.fetchKubeconfig(ctx)
		if err != nil {
			return nil, err
		}

		a.kubeconfig = kubeconfig
	}

	return a.kubeconfig, nil
}

// open is a client for the Kubernetes API at an address, or at the endpoint.
func (a *adminAccess) open(ctx context.Context, address string) (*kube.Client, error) {
	kubeconfig, err := a.get(ctx)
	if err != nil {
		return nil, err
	}

	return kube.Open(kubeconfig, kube.Options{Address: address, Timeout: apiRequestTimeout})
}

// ready asks the Kubernetes API at an address, or at the endpoint, whether it is ready.
func (a *adminAccess) ready(ctx context.Context, address string) error {
	client, err := a.open(ctx, address)
	if err != nil {
		return err
	}

	return client.Ready(ctx)
}

// trustdPort is where control planes sign the certificates of workers (machinery's constants.TrustdPort).
const trustdPort = "50001"

// trustdAnswers reports whether a worker can have its certificate signed at the endpoint.
func (r *Run) trustdAnswers(ctx context.Context) bool {
	dialer := net.Dialer{Timeout: r.Settings.DialTimeout}

	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(r.Cluster.Endpoint.Hostname(), trustdPort))
	if err != nil {
		return false
	}

	_ = conn.Close()

	return true
}

// apiAnswers reports whether a Kubernetes API is there at the endpoint, ready or not.
func (r *Run) apiAnswers(ctx context.Context) bool {
	host := r.Cluster.Endpoint.Host

	if _, _, err := net.SplitHostPort(host); err != nil {
		host = net.JoinHostPort(strings.Trim(host, "[]"), "443")
	}

	asking, stop := context.WithTimeout(ctx, r.Settings.DialTimeout)
	defer stop()

	answered, _, err := kube.ServesCA(asking, host, nil)

	return err == nil && answered
}

// awaitAPI waits until the endpoint's Kubernetes API is ready.
func (b *bootstrapper) awaitAPI(ctx context.Context) *diagnosis.Problem {
	access := &adminAccess{Run: b.Run}

	for since := b.Clock.Now(); ; {
		asked := b.Clock.Now()

		err := access.ready(ctx, "")
		if err == nil {
			return nil
		}

		if ctx.Err() != nil {
			return b.interruptedStep(ctx, bootstrapName)
		}

		left := b.Settings.APITimeout - asked.Sub(since)
		if left <= 0 || b.Settings.NoWait {
			return b.apiProblem(ctx, access, err, since)
		}

		b.Report.Progress(bootstrapName,
			report.Progress{Text: "waiting for the Kubernetes API: " + kube.Explain(err), Since: since, Left: left})

		if problem := b.pause(ctx, apiPause); problem != nil {
			return problem
		}
	}
}

// apiProblem tells an API that is down from an endpoint that does not lead to it.
func (b *bootstrapper) apiProblem(ctx context.Context, access *adminAccess, cause error,
	since time.Time) *diagnosis.Problem {
	first := b.Cluster.ControlPlanes()[0]
	problem := b.clusterProblem(kube.Diagnose(cause),
		fmt.Sprintf("the Kubernetes API at %s is not ready after %s: %s", b.Cluster.Endpoint.Host, b.ago(since),
			kube.Explain(cause)),
		talosctl(first, "logs kubelet")+"; then mage bootstrap")
	problem.Exit = diagnosis.ExitKubernetes
	problem.Err = cause

	if own := access.readyControlPlane(ctx); own != "" {
		problem.ID = diagnosis.EndpointSilent
		problem.Cause = fmt.Sprintf("the Kubernetes API is ready at %s, but the endpoint %s does not lead to it: %s", own,
			b.Cluster.Endpoint.Host, kube.Explain(cause))
		problem.Next = "check the VIP's interface, the balancer's backends or the DNS record; then mage bootstrap"
	}

	return problem
}

// readyControlPlane is where a control plane's own Kubernetes API is ready; empty if none is.
func (a *adminAccess) readyControlPlane(ctx context.Context) string {
	for _, node := range a.Cluster.ControlPlanes() {
		own := net.JoinHostPort(node.Address, kubernetesPort)
		if own != a.Cluster.Endpoint.Host && a.ready(ctx, own) == nil {
			return own
		}
	}

	return ""
}

// registration is what Kubernetes says about the nodes of this run.
type registration struct {
	missing  []string
	notReady []kube.Node
	err      error
}

// complete reports whether all are known to Kubernetes. NotReady counts only with Talos' own CNI: without one it is
// expected.
func (g registration) complete(cni string) bool {
	return g.err == nil && len(g.missing) == 0 && (len(g.notReady) == 0 || cni != flannel)
}

// awaitRegistered waits until every node is known to Kubernetes.
func (r *Run) awaitRegistered(ctx context.Context, step string) error {
	access := &adminAccess{Run: r}
	wanted := r.present(r.Nodes())

	for since := r.Clock.Now(); ; {
		asked := r.Clock.Now()

		seen := access.registered(ctx, wanted)
		if ctx.Err() != nil {
			return r.interruptedStep(ctx, step)
		}

		if seen.complete(r.Cluster.CNI) {
			r.noteNotReady(step, seen.notReady)

			return nil
		}

		left := r.Settings.APITimeout - asked.Sub(since)
		if left <= 0 || r.Settings.NoWait {
			return r.registrationProblem(step, seen, since)
		}

		r.Report.Progress(step, report.Progress{Text: registrationText(seen), Since: since, Left: left})

		if r.Clock.Sleep(ctx, apiPause) != nil {
			return r.interruptedStep(ctx, step)
		}
	}
}

// registered compares the inventory's nodes with Kubernetes', by hostname or address.
func (a *adminAccess) registered(ctx context.Context, wanted []*inventory.Node) registration {
	nodes, err := a.nodes(ctx)
	if err != nil {
		return registration{err: err}
	}

	var seen registration

	for _, node := range wanted {
		index := slices.IndexFunc(nodes, func(registered kube.Node) bool { return a.hasName(node, registered) })

		// By its address only where no name fits: the node of a machine that had it before may still be listed.
		if index < 0 {
			index = slices.IndexFunc(nodes, func(registered kube.Node) bool { return a.hasAddress(node, registered) })
		}

		switch {
		case index < 0:
			seen.missing = append(seen.missing, node.Name)
		case !nodes[index].Ready:
			seen.notReady = append(seen.notReady, nodes[index])
		}
	}

	return seen
}

func (a *adminAccess) nodes(ctx context.Context) ([]kube.Node, error) {
	client, err := a.open(ctx, "")
	if err != nil {
		return nil, err
	}

	return client.Nodes(ctx)
}

func (r *Run) hasName(node *inventory.Node, registered kube.Node) bool {
	return !node.IgnoreHostname && strings.EqualFold(node.Hostname, registered.Name)
}

func (r *Run) hasAddress(node *inventory.Node, registered kube.Node) bool {
	for _, address := range r.addresses(node) {
		for _, theirs := range registered.InternalIPs {
			if address == theirs.String() {
				return true
			}
		}
	}

	return false
}

func registrationText(seen registration) string {
	switch {
	case seen.err != nil:
		return "asking Kubernetes for its nodes: " + kube.Explain(seen.err)
	case len(seen.missing) > 0:
		return "waiting for nodes to register: " + list(seen.missing)
	default:
		return "waiting for nodes to become Ready: " + list(kubeNames(seen.notReady))
	}
}

func kubeNames(nodes []kube.Node) []string {
	names := make([]string, 0, len(nodes))
	for _, node := range nodes {
		names = append(names, node.Name)
	}

	return names
}

func (r *Run) noteNotReady(step string, notReady []kube.Node) {
	if len(notReady) == 0 {
		return
	}

	r.Report.Finding(step, diagnosis.Finding{
		ID:       diagnosis.NotReadyExpected,
		Severity: diagnosis.OK,
		Cause: fmt.Sprintf("%s NotReady: expected until a CNI is installed (CNI %s)", counted(len(notReady), "node"),
			r.Cluster.CNI),
		Next: "install your CNI, for example: task bootstrap:apps",
	})
}

func (r *Run) registrationProblem(step string, seen registration, since time.Time) error {
	switch {
	case seen.err != nil:
		return r.kubernetesProblem(step, diagnosis.APINotReady,
			fmt.Sprintf("Kubernetes did not list its nodes for %s: %s", r.ago(since), kube.Explain(seen.err)),
			command("status", nil), seen.err)
	case len(seen.missing) > 0:
		return r.kubernetesProblem(step, diagnosis.NotRegistered,
			fmt.Sprintf("not registered in Kubernetes after %s: %s", r.ago(since), list(seen.missing)),
			"talosctl -n <node> -e <control plane> logs kubelet; then mage verify", nil)
	default:
		first := seen.notReady[0]

		return r.kubernetesProblem(step, diagnosis.NodesNotReady,
			fmt.Sprintf("not Ready after %s: %s (%s)", r.ago(since), list(kubeNames(seen.notReady)), first.Reason),
			"kubectl describe node "+first.Name, nil)
	}
}

func (r *Run) kubernetesProblem(step string, id diagnosis.ID, cause, next string, err error) error {
	return &diagnosis.Problem{Step: step, Err: err, Finding: diagnosis.Finding{
		ID: id, Severity: diagnosis.Failure, Cause: cause, Next: next, Exit: diagnosis.ExitKubernetes,
	}}
}
