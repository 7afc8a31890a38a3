package steps

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/inventory"
	"github.com/talos-mage/talos-mage/internal/kubeapi"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/talosapi"
)

const (
	// apiPause is the wait between two requests to a Kubernetes API that is not ready.
	apiPause = time.Second
	// apiRequestTimeout bounds one request.
	apiRequestTimeout = 5 * time.Second
	kubernetesPort    = "6443"
)

// fetchKubeconfig asks the control planes in turn. Talos makes the file from its machine config, so it says nothing about the cluster's health.
func (r *Run) fetchKubeconfig(ctx context.Context) ([]byte, *inventory.Node, error) {
	err := errors.New("no control plane answers with this cluster's certificate authority")

	for _, node := range r.Cluster.ControlPlanes() {
		probed := r.probe(ctx, node)
		if probed.State != talosapi.Ours {
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
			return data, node, nil
		}

		err = fmt.Errorf("fetch kubeconfig from %s: %w", node.Name, fetchErr)
	}

	return nil, nil, err
}

// apiAnswers tells whether a Kubernetes API is there at the endpoint, ready or not.
func (r *Run) apiAnswers(ctx context.Context) bool {
	host := r.Cluster.Endpoint.Host

	if _, _, err := net.SplitHostPort(host); err != nil {
		host = net.JoinHostPort(strings.Trim(host, "[]"), "443")
	}

	asking, stop := context.WithTimeout(ctx, r.Settings.DialTimeout)
	defer stop()

	answered, _, err := kubeapi.ServesCA(asking, host, nil)

	return err == nil && answered
}

// awaitAPI waits until the endpoint's Kubernetes API is ready.
func (b *bootstrapper) awaitAPI(ctx context.Context) *diagnosis.Problem {
	kubeconfig, node, err := b.fetchKubeconfig(ctx)
	if err != nil {
		return b.clusterProblem(diagnosis.EtcdNotHealthy, "the kubeconfig can't be fetched: "+talosapi.Explain(err), command("status", nil))
	}

	since := b.Clock.Now()

	for {
		err := b.ready(ctx, kubeconfig, "")
		if err == nil {
			return nil
		}

		if ctx.Err() != nil {
			return b.interruptedStep(ctx, bootstrapName)
		}

		left := b.Settings.APITimeout - b.Clock.Now().Sub(since)
		if left <= 0 || b.Settings.NoWait {
			return b.apiProblem(ctx, kubeconfig, node, err, since)
		}

		b.Report.Progress(bootstrapName, report.Progress{Text: "waiting for the Kubernetes API: " + kubeapi.Explain(err), Since: since, Left: left})

		if b.Clock.Sleep(ctx, apiPause) != nil {
			return b.interruptedStep(ctx, bootstrapName)
		}
	}
}

func (r *Run) ready(ctx context.Context, kubeconfig []byte, address string) error {
	client, err := kubeapi.Open(kubeconfig, kubeapi.Options{Address: address, Timeout: apiRequestTimeout})
	if err != nil {
		return err
	}

	return client.Ready(ctx)
}

// apiProblem tells an API that is down from an endpoint that does not lead to it.
func (b *bootstrapper) apiProblem(ctx context.Context, kubeconfig []byte, node *inventory.Node, cause error, since time.Time) *diagnosis.Problem {
	problem := b.clusterProblem(diagnosis.APINotReady,
		fmt.Sprintf("the Kubernetes API at %s is not ready after %s: %s", b.Cluster.Endpoint.Host, b.since(since), kubeapi.Explain(cause)),
		fmt.Sprintf("talosctl -n %s -e %s logs kubelet; then mage bootstrap", node.Address, node.Address))
	problem.Exit = diagnosis.ExitKubernetes
	problem.Err = cause

	own := net.JoinHostPort(node.Address, kubernetesPort)
	if b.ready(ctx, kubeconfig, own) == nil {
		problem.ID = diagnosis.EndpointSilent
		problem.Cause = fmt.Sprintf("the Kubernetes API is ready at %s, but the endpoint %s does not lead to it: %s", own, b.Cluster.Endpoint.Host, kubeapi.Explain(cause))
		problem.Next = "check the VIP's interface, the balancer's backends or the DNS record; then mage bootstrap"
	}

	return problem
}

// awaitRegistered waits until every node is known to Kubernetes. NotReady fails only with Talos' own CNI: without one it is expected.
func (r *Run) awaitRegistered(ctx context.Context, step string) error {
	kubeconfig, _, err := r.fetchKubeconfig(ctx)
	if err != nil {
		return r.kubernetesProblem(step, diagnosis.APINotReady, "the kubeconfig can't be fetched: "+talosapi.Explain(err), command("status", nil), err)
	}

	client, err := kubeapi.Open(kubeconfig, kubeapi.Options{Timeout: apiRequestTimeout})
	if err != nil {
		return r.kubernetesProblem(step, diagnosis.APINotReady, kubeapi.Explain(err), command("kubeconfig", nil), err)
	}

	wanted := r.present(r.Nodes())
	since := r.Clock.Now()

	for {
		nodes, err := client.Nodes(ctx)
		if ctx.Err() != nil {
			return r.interruptedStep(ctx, step)
		}

		var (
			missing  []string
			notReady []kubeapi.Node
		)

		if err == nil {
			missing, notReady = r.registered(ctx, wanted, nodes)
			if len(missing) == 0 && (len(notReady) == 0 || r.Cluster.CNI != "flannel") {
				r.noteNotReady(step, notReady)

				return nil
			}
		}

		left := r.Settings.APITimeout - r.Clock.Now().Sub(since)
		if left <= 0 || r.Settings.NoWait {
			return r.registrationProblem(step, missing, notReady, err, since)
		}

		r.Report.Progress(step, report.Progress{Text: registrationText(missing, notReady, err), Since: since, Left: left})

		if r.Clock.Sleep(ctx, apiPause) != nil {
			return r.interruptedStep(ctx, step)
		}
	}
}

// registered compares the inventory's nodes with Kubernetes', by hostname or address.
func (r *Run) registered(ctx context.Context, wanted []*inventory.Node, nodes []kubeapi.Node) (missing []string, notReady []kubeapi.Node) {
	for _, node := range wanted {
		found := false

		for _, registered := range nodes {
			if r.isNode(node, registered) {
				found = true

				if !registered.Ready {
					notReady = append(notReady, registered)
				}

				break
			}
		}

		if !found {
			missing = append(missing, node.Name)
		}
	}

	return missing, notReady
}

func (r *Run) isNode(node *inventory.Node, registered kubeapi.Node) bool {
	if !node.IgnoreHostname && strings.EqualFold(node.Hostname, registered.Name) {
		return true
	}

	for _, address := range r.addresses(node) {
		for _, theirs := range registered.InternalIPs {
			if address == theirs.String() {
				return true
			}
		}
	}

	return false
}

func registrationText(missing []string, notReady []kubeapi.Node, err error) string {
	switch {
	case err != nil:
		return "asking Kubernetes for its nodes: " + kubeapi.Explain(err)
	case len(missing) > 0:
		return "waiting for nodes to register: " + list(missing)
	default:
		return "waiting for nodes to become Ready: " + list(kubeNames(notReady))
	}
}

func kubeNames(nodes []kubeapi.Node) []string {
	names := make([]string, 0, len(nodes))
	for _, node := range nodes {
		names = append(names, node.Name)
	}

	return names
}

func (r *Run) noteNotReady(step string, notReady []kubeapi.Node) {
	if len(notReady) == 0 {
		return
	}

	r.Report.Finding(step, diagnosis.Finding{
		ID:       diagnosis.NotReadyExpected,
		Severity: diagnosis.OK,
		Cause:    fmt.Sprintf("%d nodes are NotReady: expected until a CNI is installed (CNI %s)", len(notReady), r.Cluster.CNI),
		Next:     "install your CNI, for example: task bootstrap:apps",
	})
}

func (r *Run) registrationProblem(step string, missing []string, notReady []kubeapi.Node, err error, since time.Time) error {
	switch {
	case err != nil:
		return r.kubernetesProblem(step, diagnosis.APINotReady, fmt.Sprintf("Kubernetes did not list its nodes for %s: %s", r.since(since), kubeapi.Explain(err)), command("status", nil), err)
	case len(missing) > 0:
		return r.kubernetesProblem(step, diagnosis.NotRegistered, fmt.Sprintf("not registered in Kubernetes after %s: %s", r.since(since), list(missing)),
			"talosctl -n <node> -e <control plane> logs kubelet; then mage verify", nil)
	default:
		return r.kubernetesProblem(step, diagnosis.NodesNotReady,
			fmt.Sprintf("not Ready after %s: %s (%s)", r.since(since), list(kubeNames(notReady)), notReady[0].Reason), "kubectl describe node "+notReady[0].Name, nil)
	}
}

func (r *Run) kubernetesProblem(step string, id diagnosis.ID, cause, next string, err error) error {
	return &diagnosis.Problem{Step: step, Err: err, Finding: diagnosis.Finding{
		ID: id, Severity: diagnosis.Failure, Cause: cause, Next: next, Exit: diagnosis.ExitKubernetes,
	}}
}
