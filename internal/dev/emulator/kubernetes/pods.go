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

// listPods are the pods of a fresh cluster: the control plane's static ones, kube-proxy, CoreDNS and, if it is Talos'
// own, the CNI.
func (s snapshot) listPods() []item {
	var items []item

	for _, pod := range s.pods {
		items = append(items, s.placedPod(pod))
	}

	for _, node := range s.nodes {
		for _, set := range s.daemonSets() {
			pod := s.hostPod(set.Name+"-"+suffix(node.Name), set.app(), set.image, set.Namespace, node)
			pod.ResourceVersion = strconv.FormatUint(max(node.revision, set.revision), 10)
			pod.OwnerReferences = owner(appsv1.SchemeGroupVersion.String(), DaemonSet.String(), set.Name)
			items = append(items, s.podItem(pod))
		}

		for _, running := range node.StaticPods {
			pod := s.hostPod(running.Name+"-"+node.Name, running.Name, running.Image, kubeSystem, node)
			pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: string(pod.UID),
				constants.AnnotationStaticPodConfigVersion: running.ConfigVersion}
			pod.OwnerReferences = owner("v1", "Node", node.Name)
			items = append(items, s.podItem(pod))
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
func (s snapshot) hostPod(name, app, image, namespace string, node nodeState) *corev1.Pod {
	pod := s.pod(name, app, image, namespace, node.created, node.revision)
	pod.Spec.NodeName = node.Name
	pod.Spec.HostNetwork = true
	pod.Status.PodIP = node.Address.String()
	pod.Status.HostIP = node.Address.String()
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{readyCondition(pod, node.alive)}

	return pod
}

func readyCondition(pod *corev1.Pod, ready bool) corev1.PodCondition {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}

	return corev1.PodCondition{Type: corev1.PodReady, Status: status, LastTransitionTime: pod.CreationTimestamp}
}

// placedPod is a pod of a workload that the scheduler places.
func (s snapshot) placedPod(placed podState) item {
	work := placed.work
	pod := s.pod(placed.name(), work.app(), s.imageOf(work), work.Namespace, placed.created, placed.revision)
	pod.UID = stableUID("pod", fmt.Sprintf("%s/%s/%d", work.Namespace, pod.Name, placed.generation))
	pod.Status.Phase = placed.phase()

	if work.Name != coreDNS.Name {
		pod.Labels[nameLabel] = work.app()
	}

	if work.EmptyDir {
		pod.Spec.Volumes = []corev1.Volume{{Name: "scratch",
			VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	}

	if kind, name := work.controller(); kind != "" {
		pod.OwnerReferences = owner(controllerGroups[kind], kind, name)
	}

	if !placed.ends.IsZero() {
		ends, grace := metav1.NewTime(s.now.Add(placed.ends.Sub(s.passed)).UTC()), int64(work.Ending/time.Second)
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &ends, &grace
	}

	i := slices.IndexFunc(s.nodes, func(node nodeState) bool { return node.Name == placed.node })
	if i < 0 {
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "no node is ready",
			LastTransitionTime: pod.CreationTimestamp,
		}}

		return s.podItem(pod)
	}

	node := s.nodes[i]
	pod.Spec.NodeName = node.Name
	pod.Status.HostIP = node.Address.String()
	pod.Status.PodIP = fmt.Sprintf("10.244.%d.%d", node.index, placed.n+2)
	pod.Status.Conditions = []corev1.PodCondition{readyCondition(pod, s.isReady(placed))}

	return s.podItem(pod)
}

func (s snapshot) pod(name, app, image, namespace string, created time.Time, revision uint64) *corev1.Pod {
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: meta(name, namespace, created, max(1, revision), stableUID("pod", name)),
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: app, Image: image}}},
	}

	pod.Labels = map[string]string{appLabel: app}

	return pod
}

// podItem is a pod that runs, waits for a node, or has ended.
func (s snapshot) podItem(pod *corev1.Pod) item {
	ready := "0/1"
	running := pod.Status.Phase == corev1.PodRunning

	if running && pod.Status.Conditions[0].Status == corev1.ConditionTrue {
		ready = "1/1"
	}

	if running {
		started := true
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image, Ready: true, Started: &started,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: pod.CreationTimestamp}},
		}}
	}

	shown := string(pod.Status.Phase)

	switch {
	case pod.DeletionTimestamp != nil:
		shown = "Terminating"
	case pod.Status.Phase == corev1.PodSucceeded:
		shown = "Completed"
	}

	return item{
		object: pod,
		cells: []any{
			pod.Name, ready, shown, 0, s.age(pod.CreationTimestamp.Time),
			orNone(pod.Status.PodIP), orNone(pod.Spec.NodeName), none, none,
		},
		fields: fields.Set{"spec.nodeName": pod.Spec.NodeName, "status.phase": string(pod.Status.Phase),
			"status.podIP": pod.Status.PodIP},
	}
}

// daemonSet is one as it is stored, with the image of its one container.
type daemonSet struct {
	Workload

	image    string
	revision uint64
}

// daemonSets are Talos' own, and others that run on the cluster.
func (s snapshot) daemonSets() []daemonSet {
	var sets []daemonSet

	for _, stored := range s.ofKind(appsGroup, DaemonSet.String()) {
		var set appsv1.DaemonSet

		stored.into(&set)

		for _, container := range set.Spec.Template.Spec.Containers {
			sets = append(sets, daemonSet{
				Workload{Namespace: set.Namespace, Name: set.Name, Kind: DaemonSet, App: container.Name},
				container.Image, stored.revision})
		}
	}

	for _, work := range s.work {
		if work.Kind == DaemonSet && work.Orphaned {
			sets = append(sets, daemonSet{Workload: *work, image: work.image(s.version)})
		}
	}

	return sets
}

// imageOf is what the pods of a workload run.
func (s snapshot) imageOf(work *Workload) string {
	var deployment appsv1.Deployment

	s.objects[work.key()].into(&deployment)

	for _, container := range deployment.Spec.Template.Spec.Containers {
		return container.Image
	}

	return work.image(s.version)
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

	for _, stored := range s.ofKind(appsGroup, DaemonSet.String()) {
		set := &appsv1.DaemonSet{}
		stored.into(set)

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

	for _, work := range s.work {
		if stored, known := s.objects[work.key()]; known && work.Kind == Deployment {
			items = append(items, s.deployment(work, stored))
		}
	}

	return items
}

func (s snapshot) deployment(work *Workload, stored storedObject) item {
	wanted, ready, revision := int32(work.Replicas), int32(0), stored.revision //nolint:gosec // a few

	for _, pod := range s.pods {
		if pod.work != work {
			continue
		}

		revision = max(revision, pod.revision)

		if s.isReady(pod) {
			ready++
		}
	}

	deployment := &appsv1.Deployment{}
	stored.into(deployment)

	deployment.ResourceVersion = later(deployment.ResourceVersion, revision)
	deployment.Spec.Replicas = &wanted
	deployment.Status = appsv1.DeploymentStatus{
		ObservedGeneration: stored.generation,
		Replicas:           wanted, UpdatedReplicas: wanted, ReadyReplicas: ready, AvailableReplicas: ready,
		UnavailableReplicas: wanted - ready,
		Conditions:          []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: available(ready)}},
	}

	return item{
		object: deployment,
		cells:  []any{work.Name, fmt.Sprintf("%d/%d", ready, wanted), int(wanted), int(ready), s.age(s.created)},
	}
}

func available(ready int32) corev1.ConditionStatus {
	if ready > 0 {
		return corev1.ConditionTrue
	}

	return corev1.ConditionFalse
}
