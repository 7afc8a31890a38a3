package kubernetes_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	emulated "github.com/talos-mage/talos-mage/internal/dev/emulator/kubernetes"
	"github.com/talos-mage/talos-mage/internal/test/fakeclock"
)

// podsOn are the pods of a node as a drain asks for them.
func podsOn(t *testing.T, api kubernetes.Interface, node string) []corev1.Pod {
	t.Helper()

	pods, err := api.CoreV1().Pods(metav1.NamespaceAll).List(t.Context(),
		metav1.ListOptions{FieldSelector: "spec.nodeName=" + node, Limit: 500})
	require.NoError(t, err)

	return pods.Items
}

// movable are the pods that a drain evicts: no mirrors of static ones, and none that a DaemonSet puts back.
func movable(pods []corev1.Pod) []corev1.Pod {
	var found []corev1.Pod

	for _, pod := range pods {
		_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
		if owner := metav1.GetControllerOf(&pod); !mirror && owner != nil && owner.Kind != "DaemonSet" {
			found = append(found, pod)
		}
	}

	return found
}

func schedulable(t *testing.T, api kubernetes.Interface, name string) bool {
	t.Helper()

	node, err := api.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)

	return !node.Spec.Unschedulable
}

func TestNodesAreCordonedAndDrained(t *testing.T) {
	t.Parallel()

	lab := newLab(t, emulated.Options{CNI: "flannel"})
	lab.cluster.Register(cp1)
	lab.cluster.Register(worker1)

	api := lab.client(t)
	before := movable(podsOn(t, api, cp1.Name))
	require.Len(t, before, 2, "CoreDNS, both on the node that was there first")

	_, err := api.CoreV1().Nodes().Patch(t.Context(), cp1.Name, types.StrategicMergePatchType,
		[]byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.False(t, schedulable(t, api, cp1.Name))
	require.True(t, schedulable(t, api, worker1.Name))
	require.True(t, lab.cluster.Cordoned(cp1.Name))

	for _, set := range []string{"kube-proxy", "kube-flannel"} {
		_, err := api.AppsV1().DaemonSets("kube-system").Get(t.Context(), set, metav1.GetOptions{})
		require.NoError(t, err)
	}

	for _, pod := range before {
		require.NoError(t, api.PolicyV1().Evictions("kube-system").Evict(t.Context(), &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
		}))

		_, err = api.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err))
	}

	require.Empty(t, movable(podsOn(t, api, cp1.Name)))
	require.Len(t, movable(podsOn(t, api, worker1.Name)), 2)

	lab.cluster.Restore(cp1.Name)
	require.False(t, schedulable(t, api, cp1.Name), "a node does not take back what an administrator did")

	_, err = api.CoreV1().Nodes().Patch(t.Context(), cp1.Name, types.StrategicMergePatchType,
		[]byte(`{"spec":{"unschedulable":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.True(t, schedulable(t, api, cp1.Name))

	lab.cluster.Drain(worker1.Name)
	require.False(t, schedulable(t, api, worker1.Name))
	require.Empty(t, movable(podsOn(t, api, worker1.Name)))

	lab.cluster.Restore(worker1.Name)
	require.True(t, schedulable(t, api, worker1.Name))
}

func TestOnlyADrainWritesAnything(t *testing.T) {
	t.Parallel()

	lab := newLab(t, emulated.Options{})
	lab.cluster.Register(cp1)

	api := lab.client(t)

	require.NoError(t, api.CoreV1().Pods("kube-system").Delete(t.Context(), "kube-apiserver-cp1", metav1.DeleteOptions{}))
	_, err := api.CoreV1().Pods("kube-system").Get(t.Context(), "kube-apiserver-cp1", metav1.GetOptions{})
	require.NoError(t, err, "a static pod comes back")

	require.True(t, apierrors.IsNotFound(api.CoreV1().Pods("kube-system").Delete(t.Context(), "none",
		metav1.DeleteOptions{})))
	require.True(t, apierrors.IsMethodNotSupported(
		api.CoreV1().Namespaces().Delete(t.Context(), "default", metav1.DeleteOptions{})))

	_, err = api.CoreV1().Nodes().Patch(t.Context(), cp1.Name, types.MergePatchType, []byte(`{`), metav1.PatchOptions{})
	require.True(t, apierrors.IsBadRequest(err))

	lab.cluster.Available(false)

	_, err = api.CoreV1().Nodes().Patch(t.Context(), cp1.Name, types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
	require.True(t, apierrors.IsInternalError(err))
}

func TestPodsStartAndEndInTheNodesTime(t *testing.T) {
	t.Parallel()

	clock := fakeclock.New(time.Now())
	work := emulated.Workload{Name: "web", Kind: emulated.StatefulSet, Starting: time.Hour, Ending: time.Hour}
	lab := newLab(t, emulated.Options{CNI: "flannel", Workloads: []emulated.Workload{work},
		Passed: clock.Now})
	lab.cluster.Register(worker1)

	pods := lab.client(t).CoreV1().Pods("default")
	ready := func() corev1.ConditionStatus {
		pod, err := pods.Get(t.Context(), "web-0", metav1.GetOptions{})
		require.NoError(t, err)

		return pod.Status.Conditions[0].Status
	}

	require.Equal(t, corev1.ConditionFalse, ready())

	clock.Advance(time.Hour)
	require.Equal(t, corev1.ConditionTrue, ready())

	require.NoError(t, pods.Delete(t.Context(), "web-0", metav1.DeleteOptions{}))
	require.Equal(t, corev1.ConditionTrue, ready(), "it still runs")

	clock.Advance(time.Hour)
	require.Equal(t, corev1.ConditionFalse, ready(), "its successor starts")
}

func TestWorkloadsOfAFreshCluster(t *testing.T) {
	t.Parallel()

	lab := newLab(t, emulated.Options{})
	lab.cluster.Register(cp1)

	api := lab.client(t)

	sets, err := api.AppsV1().DaemonSets("kube-system").List(t.Context(),
		metav1.ListOptions{LabelSelector: "k8s-app=kube-proxy"})
	require.NoError(t, err)
	require.Len(t, sets.Items, 1)
	require.EqualValues(t, 1, sets.Items[0].Status.NumberReady)

	deployments, err := api.AppsV1().Deployments("kube-system").List(t.Context(),
		metav1.ListOptions{LabelSelector: "k8s-app=kube-dns"})
	require.NoError(t, err)
	require.Len(t, deployments.Items, 1)
	require.EqualValues(t, 2, *deployments.Items[0].Spec.Replicas)

	bare := newLab(t, emulated.Options{NoProxy: true, NoDNS: true})
	bare.cluster.Register(cp1)

	api = bare.client(t)

	sets, err = api.AppsV1().DaemonSets("kube-system").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, sets.Items)

	deployments, err = api.AppsV1().Deployments("kube-system").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, deployments.Items)
	require.Len(t, podsOn(t, api, cp1.Name), 3, "the control plane's own")
}
