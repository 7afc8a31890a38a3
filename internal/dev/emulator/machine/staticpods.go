package machine

import (
	"context"
	"slices"
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/kubernetes"
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

		c.runStaticPods(c.wantedPods())
		c.showStaticPods()
		c.boot.status.refresh()

		if err := c.boot.Sleep(ctx, c.boot.Node.options.Timing.ControlPlane/2); err != nil {
			return err
		}
	}

	return nil
}

// wantedPods are the static pods as the resources tell that they are made from.
func (c *controlPlane) wantedPods() []kubernetes.StaticPod {
	prefix := ""
	if c.boot.Release.finalConfigs {
		prefix = k8s.FinalPrefix
	}

	var pods []kubernetes.StaticPod

	for _, name := range staticPods {
		kind := map[string]resource.Type{k8s.APIServerID: k8s.APIServerConfigType,
			k8s.ControllerManagerID: k8s.ControllerManagerConfigType, k8s.SchedulerID: k8s.SchedulerConfigType}[name]

		made, err := c.boot.Resources.Own.Get(c.boot.Context,
			resource.NewMetadata(k8s.ControlPlaneNamespaceName, kind, prefix+name, resource.VersionUndefined))
		if err != nil {
			continue // the boot is over
		}

		pods = append(pods, kubernetes.StaticPod{Name: name, Image: componentImage(c.boot.Config.Settings(), name),
			ConfigVersion: made.Metadata().Version().String()})
	}

	return pods
}

func (c *controlPlane) runningPods() []kubernetes.StaticPod {
	c.boot.mu.Lock()
	defer c.boot.mu.Unlock()

	return slices.Clone(c.running)
}

// apiServerImage is what the kube-apiserver runs.
func (c *controlPlane) apiServerImage() string {
	for _, pod := range c.runningPods() {
		if pod.Name == k8s.APIServerID {
			return pod.Image
		}
	}

	return ""
}

// runStaticPods has kubelet run these pods.
func (c *controlPlane) runStaticPods(pods []kubernetes.StaticPod) {
	c.boot.mu.Lock()
	c.running = pods
	c.boot.mu.Unlock()

	c.boot.Kubelet.report()
	c.boot.status.notify()
}

// followStaticPods replaces the pods whose machine config has changed.
func (c *controlPlane) followStaticPods(ctx context.Context) {
	outdated := func() bool { return !slices.Equal(c.runningPods(), c.wantedPods()) }

	for c.boot.changed.Until(ctx, outdated) == nil {
		if c.boot.Sleep(ctx, c.boot.Node.options.Timing.Containers) != nil {
			return
		}

		c.runStaticPods(c.wantedPods())
	}
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
