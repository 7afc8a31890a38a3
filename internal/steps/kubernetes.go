package steps

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/kube"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/retry"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/talos"
)

const (
	// apiPause is the wait between two requests to a Kubernetes API that is not ready.
	apiPause = time.Second
	// kubeconfigRetries is how often a kubeconfig that could not be had is asked for again.
	kubeconfigRetries = 2
)

// awaitKubeconfig asks for the kubeconfig, and once more and once again if that failed for a reason that may pass.
func (r *Run) awaitKubeconfig(ctx context.Context) (kubeconfig []byte, err error) {
	policy := retry.Policy{Retries: kubeconfigRetries, Initial: r.Settings.InitialDelay, Max: r.Settings.MaxDelay,
		Multiplier: r.Settings.BackoffMultiplier}

	if r.Settings.DryRun || r.Settings.NoWait {
		policy.Retries = 0
	}

	//nolint:errcheck // the last attempt's own error says more
	retry.Do(ctx, r.Clock, policy, func(ctx context.Context, _ int) error {
		kubeconfig, err = r.observer.Kubeconfig(ctx)

		return err
	}, func(err error) bool {
		return errors.Is(err, observe.ErrNoControlPlane) || talos.Classify(talos.OpKubeconfig, err) == talos.Retry
	})

	return kubeconfig, err
}

// awaitAPI waits until the endpoint's Kubernetes API is ready.
func (b *bootstrapper) awaitAPI(ctx context.Context) *diagnosis.Problem {
	access := &observe.Kubernetes{Observer: b.observer}

	for since := b.Clock.Now(); ; {
		asked := b.Clock.Now()

		err := access.Ready(ctx, "")
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
func (b *bootstrapper) apiProblem(ctx context.Context, access *observe.Kubernetes, cause error,
	since time.Time) *diagnosis.Problem {
	first := b.Cluster.ControlPlanes()[0]
	problem := b.clusterProblem(kube.Diagnose(cause),
		fmt.Sprintf("the Kubernetes API at %s is not ready after %s: %s", b.Cluster.Endpoint.Host, b.ago(since),
			kube.Explain(cause)),
		talosctl(first, "logs kubelet")+"; then mage bootstrap")
	problem.Exit = diagnosis.ExitKubernetes
	problem.Err = cause

	if own := access.ReadyControlPlane(ctx); own != "" {
		problem.ID = diagnosis.EndpointSilent
		problem.Cause = fmt.Sprintf("the Kubernetes API is ready at %s, but the endpoint %s does not lead to it: %s", own,
			b.Cluster.Endpoint.Host, kube.Explain(cause))
		problem.Next = "check the VIP's interface, the balancer's backends or the DNS record; then mage bootstrap"
	}

	return problem
}

// awaitRegistered waits until every node is known to Kubernetes.
func (r *Run) awaitRegistered(ctx context.Context, step string) error {
	access := &observe.Kubernetes{Observer: r.observer}
	wanted := r.present(r.Nodes())

	for since := r.Clock.Now(); ; {
		asked := r.Clock.Now()

		seen := access.Registered(ctx, wanted)
		if ctx.Err() != nil {
			return r.interruptedStep(ctx, step)
		}

		if seen.Complete(r.Cluster.CNI) {
			r.noteNotReady(step, seen.NotReady)

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

func registrationText(seen observe.Registration) string {
	switch {
	case seen.Err != nil:
		return "asking Kubernetes for its nodes: " + kube.Explain(seen.Err)
	case len(seen.Missing) > 0:
		return "waiting for nodes to register: " + text.List(seen.Missing)
	default:
		return "waiting for nodes to become Ready: " + text.List(kubeNames(seen.NotReady))
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
		Cause: fmt.Sprintf("%s NotReady: expected until a CNI is installed (CNI %s)", text.Counted(len(notReady), "node"),
			r.Cluster.CNI),
		Next: "install your CNI, for example: task bootstrap:apps",
	})
}

func (r *Run) registrationProblem(step string, seen observe.Registration, since time.Time) error {
	switch {
	case seen.Err != nil:
		return r.kubernetesProblem(step, diagnosis.APINotReady,
			fmt.Sprintf("Kubernetes did not list its nodes for %s: %s", r.ago(since), kube.Explain(seen.Err)),
			command("status", nil), seen.Err)
	case len(seen.Missing) > 0:
		return r.kubernetesProblem(step, diagnosis.NotRegistered,
			fmt.Sprintf("not registered in Kubernetes after %s: %s", r.ago(since), text.List(seen.Missing)),
			"talosctl -n <node> -e <control plane> logs kubelet; then mage verify", nil)
	default:
		first := seen.NotReady[0]

		return r.kubernetesProblem(step, diagnosis.NodesNotReady,
			fmt.Sprintf("not Ready after %s: %s (%s)", r.ago(since), text.List(kubeNames(seen.NotReady)), first.Reason),
			"kubectl describe node "+first.Name, nil)
	}
}

func (r *Run) kubernetesProblem(step string, id diagnosis.ID, cause, next string, err error) error {
	return &diagnosis.Problem{Step: step, Err: err, Finding: diagnosis.Finding{
		ID: id, Severity: diagnosis.Failure, Cause: cause, Next: next, Exit: diagnosis.ExitKubernetes,
	}}
}
