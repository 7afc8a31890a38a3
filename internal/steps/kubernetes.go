package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/talos-mage/talos-mage/internal/base/retry"
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
	// apiPause is the wait between two requests to a Kubernetes API that is not ready.
	apiPause = time.Second
	// kubeconfigRetries is how often a kubeconfig that could not be had is asked for again.
	kubeconfigRetries = 2
)

// awaitKubeconfig asks for the kubeconfig, and once more and once again if that failed for a reason that may pass.
func awaitKubeconfig(ctx context.Context, run *Run) (kubeconfig []byte, err error) {
	policy := retry.Policy{Retries: kubeconfigRetries, Initial: run.Settings.InitialDelay, Max: run.Settings.MaxDelay,
		Multiplier: run.Settings.BackoffMultiplier}

	if run.Settings.DryRun {
		policy.Retries = 0
	}

	//nolint:errcheck // the last attempt's own error says more
	retry.Do(ctx, run.Clock, policy, func(ctx context.Context, _ int) error {
		kubeconfig, err = run.observer.Kubeconfig(ctx)
		return err
	}, func(err error) bool {
		return errors.Is(err, observe.ErrNoControlPlane) && !run.Settings.NoWait ||
			talos.Classify(talos.OpKubeconfig, err) == talos.Retry
	})

	return kubeconfig, err
}

// awaitAPI waits until the endpoint's Kubernetes API is ready.
func (b *bootstrapper) awaitAPI(ctx context.Context) *diagnosis.Problem {
	access, since := &observe.Kubernetes{Observer: b.observer}, b.Clock.Now()
	return b.waiter().Until(ctx, func(ctx context.Context) wait.State {
		err := access.Ready(ctx, "")
		return wait.State{
			Done: err == nil,
			Limit: wait.Limit{For: "waiting for the Kubernetes API: " + kube.Explain(err), Since: since,
				Limit: b.Settings.APITimeout},
			Pause:  apiPause,
			TimeUp: func(waited time.Duration) *diagnosis.Problem { return b.apiProblem(ctx, access, err, waited) },
		}
	})
}

// apiProblem tells an API that is down from an endpoint that does not lead to it.
func (b *bootstrapper) apiProblem(ctx context.Context, access *observe.Kubernetes, cause error,
	waited time.Duration) *diagnosis.Problem {
	first := b.Cluster.ControlPlanes()[0]
	failed := b.clusterProblem(kube.Diagnose(cause),
		fmt.Sprintf("the Kubernetes API at %s is not ready after %s: %s", b.Cluster.Endpoint.Host, waited,
			kube.Explain(cause)),
		talosctl(first, "logs kubelet")+"; then mage bootstrap")
	failed.Exit, failed.Err = diagnosis.ExitKubernetes, cause
	b.blameEndpoint(ctx, access, failed)

	return failed
}

// blameEndpoint turns the problem of an API that does not answer at the endpoint into the endpoint's, if it answers on
// a control plane.
func (w *work) blameEndpoint(ctx context.Context, access *observe.Kubernetes, failed *diagnosis.Problem) {
	own, ready := access.ControlPlaneAPI(ctx)

	var notReady *kube.NotReadyError
	if failed.ID != diagnosis.APINotReady || own == "" || !ready && errors.As(failed.Err, &notReady) {
		return
	}

	state := "is ready"
	if !ready {
		state = "answers, though it is not ready,"
	}

	failed.ID = diagnosis.EndpointSilent
	failed.Cause = fmt.Sprintf("the Kubernetes API %s at %s, but the endpoint %s does not lead to it: %s", state, own,
		w.Cluster.Endpoint.Host, kube.Explain(failed.Err))
	failed.Next = "check the VIP's interface, the balancer's backends or the DNS record; then " + w.command(nil)
}

// awaitRegistered waits until every node is known to Kubernetes.
func (w *work) awaitRegistered(ctx context.Context) error {
	var seen observe.Registration

	access, since, wanted := &observe.Kubernetes{Observer: w.observer}, w.Clock.Now(), w.present()

	failed := w.waiter().Until(ctx, func(ctx context.Context) wait.State {
		seen = access.Registered(ctx, wanted)
		return wait.State{
			Done:  seen.Complete(w.Cluster.CNI),
			Limit: wait.Limit{For: registrationText(seen), Since: since, Limit: w.Settings.APITimeout},
			Pause: apiPause,
			TimeUp: func(waited time.Duration) *diagnosis.Problem {
				return w.registrationProblem(ctx, access, seen, waited)
			},
		}
	})
	if failed != nil {
		w.failUnregistered(wanted, seen)
		return failed
	}

	w.noteNotReady(seen.NotReady)

	return nil
}

// failUnregistered records of nodes that run what Kubernetes lacks of them.
func (w *work) failUnregistered(wanted []*inventory.Node, seen observe.Registration) {
	notReady := kubeNames(seen.NotReady)
	for _, node := range wanted {
		var lack string

		switch {
		case slices.Contains(seen.Missing, node.Name):
			lack = "runs, and is not registered in Kubernetes"
		case slices.Contains(notReady, node.Hostname):
			lack = "runs, and is not Ready in Kubernetes"
		default:
			continue
		}

		w.record(report.Result{Node: node.Name, Address: node.Address, Status: report.Failed, Detail: lack})
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

func (w *work) noteNotReady(notReady []kube.Node) {
	if len(notReady) == 0 {
		return
	}

	w.Report.Finding(w.step.Name(), diagnosis.Finding{
		ID:       diagnosis.NotReadyExpected,
		Severity: diagnosis.OK,
		Cause: fmt.Sprintf("%s NotReady: expected until a CNI is installed (CNI %s)", text.Counted(len(notReady), "node"),
			w.Cluster.CNI),
		Next: "install your CNI",
	})
}

func (w *work) registrationProblem(ctx context.Context, access *observe.Kubernetes, seen observe.Registration,
	waited time.Duration) *diagnosis.Problem {
	var problem *diagnosis.Problem

	switch {
	case seen.Err != nil:
		problem = diagnosis.NewProblem(diagnosis.APINotReady, fmt.Sprintf("Kubernetes did not list its nodes%s: %s",
			lasting(" for ", waited), kube.Explain(seen.Err)), command("status", nil)).From(seen.Err)
		w.blameEndpoint(ctx, access, problem)
	case len(seen.Missing) > 0:
		problem = diagnosis.NewProblem(diagnosis.NotRegistered,
			fmt.Sprintf("not registered in Kubernetes%s: %s", lasting(" after ", waited), text.List(seen.Missing)),
			"talosctl -n <node> -e <control plane> logs kubelet; then mage verify")
	default:
		first := seen.NotReady[0]
		problem = diagnosis.NewProblem(diagnosis.NodesNotReady,
			fmt.Sprintf("not Ready%s: %s (%s)", lasting(" after ", waited), text.List(kubeNames(seen.NotReady)),
				first.Reason),
			"kubectl describe node "+first.Name)
	}

	return problem.In(w.step.Name())
}

// lasting is how long something was waited for; nothing where nobody waited.
func lasting(word string, waited time.Duration) string {
	if waited == 0 {
		return ""
	}

	return word + waited.String()
}
