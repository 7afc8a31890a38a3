package kubernetes

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Reasons and messages of a node's Ready condition, as the kubelet and the node controller write them.
// Source: kubernetes pkg/kubelet/nodestatus/setters.go, pkg/controller/nodelifecycle.
const (
	reasonReady      = "KubeletReady"
	messageReady     = "kubelet is posting ready status"
	reasonNotReady   = "KubeletNotReady"
	messageNoNetwork = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady " +
		"message:Network plugin returns error: cni plugin not initialized"
	reasonUnknown     = "NodeStatusUnknown"
	messageUnknown    = "Kubelet stopped posting node status."
	labelControlPlane = "node-role.kubernetes.io/control-plane"
	taintNotReady     = "node.kubernetes.io/not-ready"
	kubeSystem        = "kube-system"
	none              = "<none>"
)

// object is what every Kubernetes object can do.
type object interface {
	metav1.Object
	runtime.Object
}

// item is an object with what the API server knows of it beside its JSON: its row in a table, and the fields to select
// it by.
type item struct {
	object

	cells  []any
	fields fields.Set
}

func meta(name, namespace string, created time.Time, revision uint64, uid types.UID) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:              name,
		Namespace:         namespace,
		UID:               uid,
		ResourceVersion:   strconv.FormatUint(revision, 10),
		CreationTimestamp: metav1.NewTime(created.UTC().Truncate(time.Second)),
	}
}

func (s snapshot) age(created time.Time) string { return duration.HumanDuration(s.now.Sub(created)) }

// ready is the node's Ready condition.
func (s snapshot) ready(node nodeState) (status corev1.ConditionStatus, reason, message string) {
	switch {
	case !node.alive:
		return corev1.ConditionUnknown, reasonUnknown, messageUnknown
	case !s.networkReady:
		return corev1.ConditionFalse, reasonNotReady, messageNoNetwork
	default:
		return corev1.ConditionTrue, reasonReady, messageReady
	}
}

func (s snapshot) listNodes() []item {
	items := make([]item, 0, len(s.nodes))
	for _, node := range s.nodes {
		items = append(items, s.node(node))
	}

	return items
}

func (s snapshot) node(state nodeState) item {
	status, reason, message := s.ready(state)

	node := &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: meta(state.Name, "", state.created, state.revision, state.uid),
		Spec: corev1.NodeSpec{PodCIDR: fmt.Sprintf("10.244.%d.0/24", state.index), Unschedulable: state.cordoned,
			ProviderID: state.providerID, Taints: slices.Clone(state.taints)},
		Status: corev1.NodeStatus{
			Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"),
				corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110")},
			Conditions: []corev1.NodeCondition{
				s.condition(state, corev1.NodeMemoryPressure, "KubeletHasSufficientMemory",
					"kubelet has sufficient memory available"),
				s.condition(state, corev1.NodeDiskPressure, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
				s.condition(state, corev1.NodePIDPressure, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
				{
					Type: corev1.NodeReady, Status: status, Reason: reason, Message: message,
					LastHeartbeatTime: metav1.NewTime(state.since), LastTransitionTime: metav1.NewTime(state.since),
				},
			},
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: state.Address.String()},
				{Type: corev1.NodeHostName, Address: state.Name},
			},
			NodeInfo: corev1.NodeSystemInfo{
				KubeletVersion: state.KubeletVersion, OperatingSystem: "linux", Architecture: "amd64",
				OSImage: fmt.Sprintf("Talos (%s)", state.TalosVersion), KernelVersion: "6.18.0-talos",
				ContainerRuntimeVersion: "containerd://2.2.0",
			},
		},
	}

	node.Status.Allocatable = node.Status.Capacity
	node.Labels = maps.Clone(state.labels)
	node.Annotations = state.ownership()
	role := none

	if state.ControlPlane {
		role = "control-plane"
		node.Labels[labelControlPlane] = ""
		node.Spec.Taints = append(node.Spec.Taints,
			corev1.Taint{Key: labelControlPlane, Effect: corev1.TaintEffectNoSchedule})
	}

	if state.uninitialized {
		node.Spec.Taints = append(node.Spec.Taints,
			corev1.Taint{Key: taintUninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule})
	}

	shown := "Ready"

	if status != corev1.ConditionTrue {
		shown = "NotReady"
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: taintNotReady, Effect: corev1.TaintEffectNoSchedule})
	}

	if state.cordoned {
		shown += ",SchedulingDisabled"
		node.Spec.Taints = append(node.Spec.Taints,
			corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}

	info := node.Status.NodeInfo

	return item{
		object: node,
		cells: []any{
			state.Name, shown, role, s.age(state.created), state.KubeletVersion,
			state.Address.String(), none, info.OSImage, info.KernelVersion, info.ContainerRuntimeVersion,
		},
		fields: fields.Set{"spec.unschedulable": strconv.FormatBool(state.cordoned)},
	}
}

// condition is one of a node's pressures: absent, or unknown once the kubelet is silent.
func (s snapshot) condition(state nodeState, kind corev1.NodeConditionType, reason,
	message string) corev1.NodeCondition {
	status := corev1.ConditionFalse
	if !state.alive {
		status, reason, message = corev1.ConditionUnknown, reasonUnknown, messageUnknown
	}

	return corev1.NodeCondition{
		Type: kind, Status: status, Reason: reason, Message: message,
		LastHeartbeatTime: metav1.NewTime(state.since), LastTransitionTime: metav1.NewTime(state.created),
	}
}

func (s snapshot) listNamespaces() []item {
	var items []item

	names := []string{"default", "kube-node-lease", "kube-public", kubeSystem}

	for _, work := range s.work {
		if !slices.Contains(names, work.Namespace) {
			names = append(names, work.Namespace)
		}
	}

	for _, name := range names {
		namespace := &corev1.Namespace{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: meta(name, "", s.created, 1, stableUID("namespace", name)),
			Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
		}

		namespace.Labels = map[string]string{corev1.LabelMetadataName: name}
		items = append(items, item{
			object: namespace,
			cells:  []any{name, string(corev1.NamespaceActive), s.age(s.created)},
			fields: fields.Set{"status.phase": string(corev1.NamespaceActive)},
		})
	}

	return items
}

// listEndpointSlices holds the one slice that API servers maintain themselves: where they are reached.
func (s snapshot) listEndpointSlices() []item {
	slice := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: "EndpointSlice"},
		ObjectMeta: meta("kubernetes", metav1.NamespaceDefault, s.created, s.endpointsRev,
			stableUID("endpointslice", "kubernetes")),
		AddressType: discoveryv1.AddressTypeIPv4,
	}

	slice.Labels = map[string]string{discoveryv1.LabelServiceName: "kubernetes"}

	name, protocol, isReady := "https", corev1.ProtocolTCP, true
	ports := []string{}
	addresses := []string{}

	for _, endpoint := range s.endpoints {
		if endpoint.Addr().Is6() {
			slice.AddressType = discoveryv1.AddressTypeIPv6
		}

		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{endpoint.Addr().String()}, Conditions: discoveryv1.EndpointConditions{Ready: &isReady},
		})

		addresses = append(addresses, endpoint.Addr().String())

		// All API servers of a cluster listen on one port.
		if len(slice.Ports) == 0 {
			port := int32(endpoint.Port())
			slice.Ports = []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}}
			ports = append(ports, strconv.Itoa(int(port)))
		}
	}

	return []item{{
		object: slice,
		cells:  []any{"kubernetes", string(slice.AddressType), joinOrUnset(ports), joinOrUnset(addresses), s.age(s.created)},
	}}
}

// suffix imitates the random end of a generated pod name, the same each time.
func suffix(of string) string {
	const alphabet, length = "bcdfghjklmnpqrstvwxz2456789", 5

	hash := fnv.New64a()
	_, _ = hash.Write([]byte(of)) // never fails

	sum, text := hash.Sum64(), make([]byte, length)
	for i := range text {
		text[i] = alphabet[sum%uint64(len(alphabet))]
		sum /= uint64(len(alphabet))
	}

	return string(text)
}

// stableUID is an object's uid that stays the same between two lists.
func stableUID(kind, name string) types.UID {
	hash := fnv.New128a()
	_, _ = hash.Write([]byte(kind + "/" + name)) // never fails
	sum := hash.Sum(nil)

	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16]))
}

func orNone(text string) string {
	if text == "" {
		return none
	}

	return text
}
