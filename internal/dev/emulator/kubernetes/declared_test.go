package kubernetes_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	emulated "github.com/talos-mage/talos-mage/internal/dev/emulator/kubernetes"
)

// node is a node as clients see it.
func (l *lab) node(t *testing.T, name string) *corev1.Node {
	t.Helper()

	node, err := l.client(t).CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)

	return node
}

func TestNodesHaveWhatTheirMachineConfigsDeclare(t *testing.T) {
	t.Parallel()

	lab := newLab(t, emulated.Options{})

	declaring := func(node emulated.Node, labels, annotations map[string]string) emulated.Node {
		node.Declared = emulated.Declared{Labels: labels, Annotations: annotations}
		return node
	}

	lab.cluster.Register(declaring(worker1, map[string]string{"rack": "a"}, map[string]string{"note": "ours"}))

	node := lab.node(t, "worker1")
	require.Equal(t, "a", node.Labels["rack"])
	require.Equal(t, "worker1", node.Labels[corev1.LabelHostname])
	require.Equal(t, "ours", node.Annotations["note"])
	require.JSONEq(t, `["rack"]`, node.Annotations["talos.dev/owned-labels"])
	require.JSONEq(t, `["note"]`, node.Annotations["talos.dev/owned-annotations"])

	// What somebody else has set stays, and what is no longer declared goes.
	_, err := lab.client(t).CoreV1().Nodes().Patch(t.Context(), "worker1", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"theirs":"1"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)

	lab.cluster.Register(declaring(worker1, map[string]string{"rack": "b", "disk": "fast"},
		map[string]string{"theirs": "2"}))

	node = lab.node(t, "worker1")
	require.Equal(t, "b", node.Labels["rack"])
	require.Equal(t, "fast", node.Labels["disk"])
	require.Equal(t, "1", node.Annotations["theirs"])
	require.NotContains(t, node.Annotations, "note")

	// A label that kubelets may not set costs a worker the whole update; a control plane's Talos may set it.
	restricted := map[string]string{"node-role.kubernetes.io/worker": "", "rack": "c"}

	lab.cluster.Register(declaring(worker1, restricted, nil))
	require.Equal(t, "b", lab.node(t, "worker1").Labels["rack"])
	require.NotContains(t, lab.node(t, "worker1").Labels, "node-role.kubernetes.io/worker")

	lab.cluster.Register(declaring(cp1, restricted, nil))
	require.Contains(t, lab.node(t, "cp1").Labels, "node-role.kubernetes.io/worker")
}

func TestDeclaredTaintsKeepPodsAway(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		name   string
		change func(*emulated.Node)
		taints int
	}{
		{"a control plane's Talos sets them", func(node *emulated.Node) { node.ControlPlane = true }, 2}, // with its own
		{"a worker's Talos may not", func(*emulated.Node) {}, 0},
		{"its kubelet brings them along since 1.14", func(node *emulated.Node) { node.RegistersTaints = true }, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			lab := newLab(t, emulated.Options{CNI: "flannel", Workloads: []emulated.Workload{{Name: "web"}}})

			node := worker1
			node.Declared.Taints = map[string]string{"dedicated": "db:NoSchedule"}
			test.change(&node)
			lab.cluster.Register(node)

			require.Len(t, lab.node(t, "worker1").Spec.Taints, test.taints)

			pods, err := lab.client(t).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			require.Equal(t, test.taints == 0, pods.Items[0].Spec.NodeName != "")
		})
	}
}

func TestACloudControllerManagerInitializesNodes(t *testing.T) {
	t.Parallel()

	lab := newLab(t, emulated.Options{CNI: "flannel", Workloads: []emulated.Workload{{Name: "web"}}})

	left := worker1
	left.CloudProvider = true
	lab.cluster.Register(left)

	node := lab.node(t, "worker1")
	require.Empty(t, node.Spec.ProviderID)
	require.Equal(t, "node.cloudprovider.kubernetes.io/uninitialized", node.Spec.Taints[0].Key)

	lab.cluster.Run(emulated.Workload{Namespace: "kube-system", Name: "proxmox-cloud-controller-manager"})

	node = lab.node(t, "worker1")
	require.Equal(t, "proxmox://lab/100", node.Spec.ProviderID)
	require.Equal(t, "pve", node.Labels[corev1.LabelTopologyZone])
	require.Empty(t, node.Spec.Taints)

	pods, err := lab.client(t).CoreV1().Pods("").List(t.Context(),
		metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=proxmox-cloud-controller-manager"})
	require.NoError(t, err)
	require.Len(t, pods.Items, 1)
}

func TestAClusterHoldsTheConfigMapsThatItIsGiven(t *testing.T) {
	t.Parallel()

	lab := newLab(t, emulated.Options{ConfigMaps: []emulated.ConfigMap{
		{Name: "cilium-config", Data: map[string]string{"ipam": "kubernetes"}}}})

	held, err := lab.client(t).CoreV1().ConfigMaps("kube-system").Get(t.Context(), "cilium-config", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"ipam": "kubernetes"}, held.Data)
}
