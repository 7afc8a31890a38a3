package emulator

import (
	"context"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
)

// staticPods are the control plane's own pods. Nothing is known of them before etcd is healthy.
var staticPods = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// podPhase is how far the static pods are.
type podPhase int

const (
	podsAbsent podPhase = iota
	podsPending
	podsRunning
)

// startStaticPods runs the static pods, as far as kubelet tells of them, for the time that they take to get ready.
func (b *boot) startStaticPods(ctx context.Context) error {
	for _, phase := range []podPhase{podsPending, podsRunning} {
		b.mu.Lock()
		b.pods = phase
		b.mu.Unlock()

		b.showStaticPods()
		b.refresh()

		if err := b.sleep(ctx, b.node.options.Timing.ControlPlane/2); err != nil {
			return err
		}
	}

	return nil
}

// podsState is how far the static pods are, and whether they are ready.
func (b *boot) podsState() (phase podPhase, ready bool) {
	ready = b.servesKubernetes()

	b.mu.Lock()
	defer b.mu.Unlock()

	return b.pods, ready
}

// showStaticPods shows what kubelet tells of the static pods.
func (b *boot) showStaticPods() {
	phase, ready := b.podsState()
	if phase == podsAbsent {
		return
	}

	podStatus := map[string]any{"phase": "Pending"}

	if phase == podsRunning {
		condition := "False"
		if ready {
			condition = "True"
		}

		podStatus = map[string]any{"phase": "Running",
			"conditions": []any{map[string]any{"type": "Ready", "status": condition}}}
	}

	for _, pod := range staticPods {
		shown := k8s.NewStaticPodStatus(k8s.NamespaceName, b.staticPodID(pod))
		shown.TypedSpec().PodStatus = podStatus
		b.put(shown)
	}
}

func (b *boot) staticPodID(pod string) string { return "kube-system/" + pod + "-" + b.hostname() }

// staticPodProblems is the reason of the unmet condition "staticPods"; empty when there is none.
func (b *boot) staticPodProblems() string {
	phase, ready := b.podsState()
	if phase == podsAbsent || ready {
		return ""
	}

	problem := " not ready"
	if phase == podsPending {
		problem = " pending"
	}

	problems := make([]string, 0, len(staticPods))
	for _, pod := range staticPods {
		problems = append(problems, b.staticPodID(pod)+problem)
	}

	return strings.Join(problems, ", ")
}
