package kubernetes

import (
	"fmt"
	"slices"
	"strconv"
	"time"

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
			pod := s.hostPod(set.name+"-"+suffix(node.Name), set.app, node)
			pod.OwnerReferences = owner(appsv1.SchemeGroupVersion.String(), "DaemonSet", set.name)
			items = append(items, s.podItem(pod, true))
		}

		if !node.ControlPlane {
			continue
		}

		for _, component := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
			pod := s.hostPod(component+"-"+node.Name, component, node)
			pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: string(pod.UID)}
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
func (s snapshot) hostPod(name, app string, node nodeState) *corev1.Pod {
	pod := s.pod(name, app, node.created, node.revision)
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
	pod := s.pod(placed.name(n), "kube-dns", s.created, max(1, placed.revision))
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

func (s snapshot) pod(name, app string, created time.Time, revision uint64) *corev1.Pod {
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: meta(name, kubeSystem, created, revision, stableUID("pod", name)),
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: app,
			Image: "registry.example/" + app + ":" + s.version}}},
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

// workload is something that owns pods.
type workload struct{ name, app string }

// daemonSets are those of a fresh cluster.
func (s snapshot) daemonSets() []workload {
	var sets []workload

	if s.cni == "flannel" {
		sets = append(sets, workload{"kube-flannel", "flannel"})
	}

	if s.proxy {
		sets = append(sets, workload{"kube-proxy", "kube-proxy"})
	}

	return sets
}

func (s snapshot) listDaemonSets() []item {
	var items []item

	wanted, ready, revision := len(s.nodes), 0, uint64(1)

	for _, node := range s.nodes {
		revision = max(revision, node.revision)

		if node.alive {
			ready++
		}
	}

	for _, one := range s.daemonSets() {
		set := &appsv1.DaemonSet{
			TypeMeta:   metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "DaemonSet"},
			ObjectMeta: meta(one.name, kubeSystem, s.created, revision, stableUID("DaemonSet", one.name)),
			Status: appsv1.DaemonSetStatus{
				DesiredNumberScheduled: int32(wanted), CurrentNumberScheduled: int32(wanted), UpdatedNumberScheduled: int32(wanted), //nolint:gosec // a few
				NumberReady: int32(ready), NumberAvailable: int32(ready), NumberUnavailable: int32(wanted - ready), //nolint:gosec // a few
			},
		}

		set.Labels = map[string]string{"k8s-app": one.app}
		items = append(items, item{object: set,
			cells: []any{one.name, wanted, wanted, ready, wanted, ready, none, s.age(s.created)}})
	}

	return items
}

func (s snapshot) listDeployments() []item {
	if len(s.dns) == 0 {
		return nil
	}

	wanted, ready, revision := int32(dnsReplicas), int32(0), uint64(1)

	for _, pod := range s.dns {
		revision = max(revision, pod.revision)

		if pod.node != "" {
			ready++
		}
	}

	deployment := &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment"},
		ObjectMeta: meta("coredns", kubeSystem, s.created, revision, stableUID("Deployment", "coredns")),
		Spec:       appsv1.DeploymentSpec{Replicas: &wanted},
		Status: appsv1.DeploymentStatus{
			Replicas: wanted, UpdatedReplicas: wanted, ReadyReplicas: ready, AvailableReplicas: ready,
			UnavailableReplicas: wanted - ready,
		},
	}

	deployment.Labels = map[string]string{"k8s-app": "kube-dns"}

	return []item{{
		object: deployment,
		cells: []any{"coredns", strconv.Itoa(int(ready)) + "/" + strconv.Itoa(dnsReplicas), dnsReplicas, int(ready),
			s.age(s.created)},
	}}
}
