package machine

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
func (c *controlPlane) startStaticPods(ctx context.Context) error {
	for _, phase := range []podPhase{podsPending, podsRunning} {
		c.boot.mu.Lock()
		c.pods = phase
		c.boot.mu.Unlock()

		c.showStaticPods()
		c.boot.status.refresh()

		if err := c.boot.Sleep(ctx, c.boot.Node.options.Timing.ControlPlane/2); err != nil {
			return err
		}
	}

	return nil
}

// podsState is how far the static pods are, and whether they are ready.
func (c *controlPlane) podsState() (phase podPhase, ready bool) {
	ready = c.serves()

	c.boot.mu.Lock()
	defer c.boot.mu.Unlock()

	return c.pods, ready
}

// showStaticPods shows what kubelet tells of the static pods.
func (c *controlPlane) showStaticPods() {
	phase, ready := c.podsState()
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
		shown := k8s.NewStaticPodStatus(k8s.NamespaceName, c.staticPodID(pod))
		shown.TypedSpec().PodStatus = podStatus
		c.boot.Resources.put(shown)
	}
}

func (c *controlPlane) staticPodID(pod string) string {
	return "kube-system/" + pod + "-" + c.boot.Config.Hostname()
}

// staticPodProblems is the reason of the unmet condition "staticPods"; empty when there is none.
func (c *controlPlane) staticPodProblems() string {
	phase, ready := c.podsState()
	if phase == podsAbsent || ready {
		return ""
	}

	problem := " not ready"
	if phase == podsPending {
		problem = " pending"
	}

	problems := make([]string, 0, len(staticPods))
	for _, pod := range staticPods {
		problems = append(problems, c.staticPodID(pod)+problem)
	}

	return strings.Join(problems, ", ")
}
