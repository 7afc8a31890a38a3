package kubernetes

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// dnsReplicas is how many pods CoreDNS has.
const dnsReplicas = 2

// dnsPod is where a CoreDNS pod runs. They alone are placed by the scheduler, and go elsewhere when they are evicted.
type dnsPod struct {
	node       string // empty while no node takes it
	generation int
	revision   uint64
}

// placeDNS gives every CoreDNS pod whose node does not work a node that does and takes pods. Needs c.mu.
func (c *Cluster) placeDNS() {
	works := func(name string) bool {
		node, known := c.nodes[name]

		return known && node.alive && c.networkReady
	}

	var free []string

	for name, node := range c.nodes {
		if works(name) && !node.cordoned {
			free = append(free, name)
		}
	}

	slices.Sort(free)

	for n := range c.dns {
		pod := &c.dns[n]
		if works(pod.node) {
			continue
		}

		node := ""
		if len(free) > 0 {
			node = free[n%len(free)]
		}

		if node != pod.node {
			pod.node, pod.revision = node, c.revision
		}
	}
}

// evict replaces CoreDNS pods by others elsewhere.
func (c *Cluster) evict(which func(n int, pod dnsPod) bool) {
	c.change(func(revision uint64) {
		for n, pod := range c.dns {
			if which(n, pod) {
				c.dns[n] = dnsPod{generation: pod.generation + 1, revision: revision}
			}
		}
	})
}

// name is the pod's name, another one in each generation.
func (p dnsPod) name(n int) string { return "coredns-" + suffix(fmt.Sprintf("%d/%d", n, p.generation)) }

// listPods are the pods of a fresh cluster: the control plane's static ones, kube-proxy, CoreDNS and, if it is Talos'
// own, the CNI.
func (s snapshot) listPods() []item {
	var items []item

	for n, pod := range s.dns {
		items = append(items, s.dnsPod(n, pod))
	}

	for _, node := range s.nodes {
		for _, set := range s.daemonSets() {
			pod := s.hostPod(set.name+"-"+suffix(node.Name), set.app, set.image, node)
			pod.ResourceVersion = strconv.FormatUint(max(node.revision, set.revision), 10)
			pod.OwnerReferences = owner(appsv1.SchemeGroupVersion.String(), "DaemonSet", set.name)
			items = append(items, s.podItem(pod, true))
		}

		for _, running := range node.StaticPods {
			pod := s.hostPod(running.Name+"-"+node.Name, running.Name, running.Image, node)
			pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: string(pod.UID),
				constants.AnnotationStaticPodConfigVersion: running.ConfigVersion}
			pod.OwnerReferences = owner("v1", "Node", node.Name)
			items = append(items, s.podItem(pod, true))
		}
	}

	return items
}

func owner(apiVersion, kind, name string) []metav1.OwnerReference {
	controls := true

	return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: stableUID(kind, name),
		Controller: &controls}}
}

// hostPod is a pod on its node's own network: it runs without a CNI. It stops being ready with its node.
func (s snapshot) hostPod(name, app, image string, node nodeState) *corev1.Pod {
	pod := s.pod(name, app, image, node.created, node.revision)
	pod.Spec.NodeName = node.Name
	pod.Spec.HostNetwork = true
	pod.Status.PodIP = node.Address.String()
	pod.Status.HostIP = node.Address.String()
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue,
		LastTransitionTime: pod.CreationTimestamp}}

	if !node.alive {
		pod.Status.Conditions[0].Status = corev1.ConditionFalse
	}

	return pod
}

func (s snapshot) dnsPod(n int, placed dnsPod) item {
	pod := s.pod(placed.name(n), "kube-dns", s.dnsImage(), s.created, max(1, placed.revision))
	pod.OwnerReferences = owner(appsv1.SchemeGroupVersion.String(), "ReplicaSet", "coredns")

	i := slices.IndexFunc(s.nodes, func(node nodeState) bool { return node.Name == placed.node })
	if i < 0 {
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "no node is ready",
			LastTransitionTime: pod.CreationTimestamp,
		}}

		return s.podItem(pod, false)
	}

	node := s.nodes[i]
	pod.Spec.NodeName = node.Name
	pod.Status.HostIP = node.Address.String()
	pod.Status.PodIP = fmt.Sprintf("10.244.%d.%d", node.index, n+2)
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue,
		LastTransitionTime: pod.CreationTimestamp}}

	return s.podItem(pod, true)
}

func (s snapshot) pod(name, app, image string, created time.Time, revision uint64) *corev1.Pod {
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: meta(name, kubeSystem, created, revision, stableUID("pod", name)),
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: app, Image: image}}},
	}

	pod.Labels = map[string]string{"k8s-app": app}

	return pod
}

// podItem is a pod that runs, or one that waits for a node.
func (s snapshot) podItem(pod *corev1.Pod, running bool) item {
	ready := "0/1"
	pod.Status.Phase = corev1.PodPending

	if running {
		ready = "1/1"
		pod.Status.Phase = corev1.PodRunning
		started := true
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image, Ready: true, Started: &started,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: pod.CreationTimestamp}},
		}}
	}

	return item{
		object: pod,
		cells: []any{
			pod.Name, ready, string(pod.Status.Phase), 0, s.age(pod.CreationTimestamp.Time),
			orNone(pod.Status.PodIP), orNone(pod.Spec.NodeName), none, none,
		},
		fields: fields.Set{"spec.nodeName": pod.Spec.NodeName, "status.phase": string(pod.Status.Phase),
			"status.podIP": pod.Status.PodIP},
	}
}

// workload is something that owns pods with one container.
type workload struct {
	name, app, image string
	revision         uint64
}

// daemonSets are those that run a pod on every node.
func (s snapshot) daemonSets() []workload {
	var sets []workload

	for _, stored := range s.ofKind(appsGroup, "DaemonSet") {
		var set appsv1.DaemonSet

		stored.into(&set)

		for _, container := range set.Spec.Template.Spec.Containers {
			sets = append(sets, workload{stored.key.name, container.Name, container.Image, stored.revision})
		}
	}

	return sets
}

// dnsImage is what the CoreDNS pods run.
func (s snapshot) dnsImage() string {
	for _, stored := range s.ofKind(appsGroup, "Deployment") {
		var deployment appsv1.Deployment

		stored.into(&deployment)

		for _, container := range deployment.Spec.Template.Spec.Containers {
			return container.Image
		}
	}

	return ""
}

// listDaemonSets shows each as rolled out at once.
func (s snapshot) listDaemonSets() []item {
	var items []item

	wanted, ready, revision := len(s.nodes), 0, uint64(1)

	for _, node := range s.nodes {
		revision = max(revision, node.revision)

		if node.alive {
			ready++
		}
	}

	for _, stored := range s.ofKind(appsGroup, "DaemonSet") {
		set := &appsv1.DaemonSet{}
		stored.into(set)

		set.TypeMeta = metav1.TypeMeta{APIVersion: appsGroup, Kind: "DaemonSet"}
		set.ResourceVersion = later(set.ResourceVersion, max(revision, stored.revision))
		set.Status = appsv1.DaemonSetStatus{
			ObservedGeneration:     stored.generation,
			DesiredNumberScheduled: int32(wanted), CurrentNumberScheduled: int32(wanted), UpdatedNumberScheduled: int32(wanted), //nolint:gosec // a few
			NumberReady: int32(ready), NumberAvailable: int32(ready), NumberUnavailable: int32(wanted - ready), //nolint:gosec // a few
		}

		items = append(items, item{object: set,
			cells: []any{set.Name, wanted, wanted, ready, wanted, ready, none, s.age(stored.created)}})
	}

	return items
}

// later is the version of an object that exists, after what is derived from others has changed.
func later(version string, revision uint64) string {
	if version == "" {
		return ""
	}

	return strconv.FormatUint(revision, 10)
}

func (s snapshot) listDeployments() []item {
	var items []item

	wanted, ready, revision := int32(dnsReplicas), int32(0), uint64(1)

	for _, pod := range s.dns {
		revision = max(revision, pod.revision)

		if pod.node != "" {
			ready++
		}
	}

	for _, stored := range s.ofKind(appsGroup, "Deployment") {
		deployment := &appsv1.Deployment{}
		stored.into(deployment)

		deployment.TypeMeta = metav1.TypeMeta{APIVersion: appsGroup, Kind: "Deployment"}
		deployment.ResourceVersion = later(deployment.ResourceVersion, max(revision, stored.revision))
		deployment.Status = appsv1.DeploymentStatus{
			ObservedGeneration: stored.generation,
			Replicas:           wanted, UpdatedReplicas: wanted, ReadyReplicas: ready, AvailableReplicas: ready,
			UnavailableReplicas: wanted - ready,
			Conditions:          []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: available(ready)}},
		}

		items = append(items, item{
			object: deployment,
			cells: []any{deployment.Name, strconv.Itoa(int(ready)) + "/" + strconv.Itoa(dnsReplicas), dnsReplicas, int(ready),
				s.age(stored.created)},
		})
	}

	return items
}

func available(ready int32) corev1.ConditionStatus {
	if ready > 0 {
		return corev1.ConditionTrue
	}

	return corev1.ConditionFalse
}
