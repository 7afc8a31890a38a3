package clusterhealth

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// kubeSystem is the namespace of the cluster's own pods.
const kubeSystem = "kube-system"

// Where the API has what is looked at.
const (
	nodesPath       = "/api/v1/nodes"
	podsPath        = "/api/v1/namespaces/" + kubeSystem + "/pods"
	daemonSetsPath  = "/apis/apps/v1/namespaces/" + kubeSystem + "/daemonsets"
	deploymentsPath = "/apis/apps/v1/namespaces/" + kubeSystem + "/deployments"
)

// list reads what has these labels; all there is without a selector.
func list(ctx context.Context, api rest.Interface, path, selector string, into runtime.Object) error {
	return api.Get().AbsPath(path).Param("labelSelector", selector).Do(ctx).Into(into)
}

func listPods(ctx context.Context, api rest.Interface, selector string) ([]corev1.Pod, error) {
	var found corev1.PodList
	err := list(ctx, api, podsPath, selector, &found)

	return found.Items, err
}

func listDaemonSets(ctx context.Context, api rest.Interface, selector string) ([]appsv1.DaemonSet, error) {
	var found appsv1.DaemonSetList
	err := list(ctx, api, daemonSetsPath, selector, &found)

	return found.Items, err
}

// kubernetesNodes are the cluster's nodes as Kubernetes knows them.
func kubernetesNodes(ctx context.Context, c *Cluster) (rest.Interface, []corev1.Node, error) {
	api, err := c.Kubernetes(ctx)
	if err != nil {
		return nil, nil, err
	}

	var found corev1.NodeList
	if err := list(ctx, api, nodesPath, "", &found); err != nil {
		return nil, nil, err
	}

	return api, found.Items, nil
}

func isControlPlane(node corev1.Node) bool {
	_, labelled := node.Labels[constants.LabelNodeRoleControlPlane]

	return labelled
}

// sortedNodes asks Kubernetes, and gives its nodes as the checks know nodes: control planes and workers.
func sortedNodes(ctx context.Context, c *Cluster) (api rest.Interface, controlPlanes, workers []Node, err error) {
	api, found, err := kubernetesNodes(ctx, c)
	if err != nil {
		return nil, nil, nil, err
	}

	controlPlanes, workers, err = sortNodes(found)

	return api, controlPlanes, workers, err
}

func sortNodes(found []corev1.Node) (controlPlanes, workers []Node, err error) {
	for _, one := range found {
		var node Node

		for _, address := range one.Status.Addresses {
			if address.Type != corev1.NodeInternalIP && address.Type != corev1.NodeExternalIP {
				continue
			}

			parsed, err := netip.ParseAddr(address.Address)
			if err != nil {
				return nil, nil, err
			}

			if address.Type == corev1.NodeInternalIP {
				node.InternalIP = parsed
			}

			node.IPs = append(node.IPs, parsed)
		}

		if isControlPlane(one) {
			controlPlanes = append(controlPlanes, node)
		} else {
			workers = append(workers, node)
		}
	}

	return controlPlanes, workers, nil
}

// FromKubernetes makes the cluster's nodes those that Kubernetes knows: what is left where nobody names them and
// discovery is off.
func (c *Cluster) FromKubernetes(ctx context.Context) error {
	_, controlPlanes, workers, err := sortedNodes(ctx, c)
	if err != nil {
		return err
	}

	c.ControlPlanes, c.Workers = controlPlanes, workers

	return nil
}

// match tells which nodes are missing or too many.
func match(expected, actual []Node) error {
	actual = slices.Clone(actual)

	for _, node := range expected {
		i := slices.IndexFunc(actual, func(other Node) bool {
			return slices.ContainsFunc(other.IPs, func(address netip.Addr) bool { return slices.Contains(node.IPs, address) })
		})
		if i < 0 {
			return fmt.Errorf("can't find expected node with IPs %q", node.IPs)
		}

		actual = slices.Delete(actual, i, i+1)
	}

	if len(actual) == 0 {
		return nil
	}

	var unexpected []netip.Addr
	for _, node := range actual {
		unexpected = append(unexpected, node.IPs...)
	}

	slices.SortFunc(unexpected, netip.Addr.Compare)

	return fmt.Errorf("unexpected nodes with IPs %q", unexpected)
}

func nodesReported(ctx context.Context, c *Cluster) error {
	_, controlPlanes, workers, err := sortedNodes(ctx, c)
	if err != nil {
		return err
	}

	return match(c.nodes(), append(controlPlanes, workers...))
}

func componentsReady(ctx context.Context, c *Cluster) error {
	api, controlPlanes, _, err := sortedNodes(ctx, c)
	if err != nil {
		return err
	}

	if err := match(c.ControlPlanes, controlPlanes); err != nil {
		return err
	}

	// Control planes of very old clusters ran as DaemonSets.
	sets, err := listDaemonSets(ctx, api, "k8s-app in (kube-apiserver,kube-scheduler,kube-controller-manager)")
	if err != nil {
		return err
	}

	for _, set := range sets {
		if status := set.Status; status.NumberReady != status.DesiredNumberScheduled {
			return fmt.Errorf("expected number ready for %s to be %d, got %d", set.Name, status.DesiredNumberScheduled,
				status.NumberReady)
		}
	}

	for _, app := range []string{"kube-apiserver", "kube-scheduler", "kube-controller-manager"} {
		pods, err := listPods(ctx, api, "k8s-app = "+app)
		if err != nil {
			return fmt.Errorf("error listing pods for app %s: %w", app, err)
		}

		if len(pods) != len(controlPlanes) {
			return fmt.Errorf("expected number of pods for %s to be %d, got %d", app, len(controlPlanes), len(pods))
		}

		notReady := podNames(pods,
			func(pod corev1.Pod) bool { return podReadiness(pod) != "" && podReadiness(pod) != corev1.ConditionTrue })
		if len(notReady) > 0 {
			return fmt.Errorf("some pods are not ready for %s: %v", app, notReady)
		}
	}

	return nil
}

func podNames(pods []corev1.Pod, keep func(corev1.Pod) bool) []string {
	var names []string

	for _, pod := range pods {
		if keep(pod) {
			names = append(names, pod.Name)
		}
	}

	return names
}

// podReadiness is a pod's Ready condition; empty if it has none.
func podReadiness(pod corev1.Pod) corev1.ConditionStatus {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status
		}
	}

	return ""
}

func nodesReady(ctx context.Context, c *Cluster) error {
	_, found, err := kubernetesNodes(ctx, c)
	if err != nil {
		return err
	}

	var notReady []string

	for _, node := range found {
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
				notReady = append(notReady, node.Name)
			}
		}
	}

	if len(notReady) > 0 {
		return fmt.Errorf("some nodes are not ready: %v", notReady)
	}

	return nil
}

func nodesSchedulable(ctx context.Context, c *Cluster) error {
	_, found, err := kubernetesNodes(ctx, c)
	if err != nil {
		return err
	}

	for _, node := range found {
		if node.Spec.Unschedulable { // the first one is enough
			return fmt.Errorf("some nodes are not schedulable: %v", []string{node.Name})
		}
	}

	return nil
}

// daemonSet and deployment tell how many pods one wants; less than 0 if there is none.
func daemonSet(ctx context.Context, api rest.Interface, selector string) (int, error) {
	found, err := listDaemonSets(ctx, api, selector)
	if err != nil || len(found) == 0 {
		return -1, err
	}

	return int(found[0].Status.DesiredNumberScheduled), nil
}

func deployment(ctx context.Context, api rest.Interface, selector string) (int, error) {
	var found appsv1.DeploymentList
	if err := list(ctx, api, deploymentsPath, selector, &found); err != nil || len(found.Items) == 0 {
		return -1, err
	}

	if replicas := found.Items[0].Spec.Replicas; replicas != nil {
		return int(*replicas), nil
	}

	return 0, nil
}

// podsReady checks the pods of something that wants a number of them.
func podsReady(wanted func(context.Context, rest.Interface, string) (int, error),
	selector string) func(context.Context, *Cluster) error {
	return func(ctx context.Context, c *Cluster) error {
		api, err := c.Kubernetes(ctx)
		if err != nil {
			return err
		}

		replicas, err := wanted(ctx, api, selector)
		if err != nil {
			return err
		}

		if replicas < 0 {
			return errSkip
		}

		pods, err := listPods(ctx, api, selector)
		if err != nil {
			return err
		}

		return podProblem(pods, replicas, selector)
	}
}

func podProblem(pods []corev1.Pod, replicas int, selector string) error {
	if len(pods) == 0 {
		return fmt.Errorf("no pods found for namespace %q and label selector %q", kubeSystem, selector)
	}

	alive := slices.DeleteFunc(slices.Clone(pods), func(pod corev1.Pod) bool {
		return pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed || completed(pod)
	})
	ready := podNames(alive, func(pod corev1.Pod) bool { return podReadiness(pod) == corev1.ConditionTrue })
	notReady := podNames(alive, func(pod corev1.Pod) bool { return podReadiness(pod) != corev1.ConditionTrue })

	switch {
	case len(ready) == 0:
		return fmt.Errorf("no ready pods found for namespace %q and label selector %q", kubeSystem, selector)
	case len(notReady) > 0:
		return fmt.Errorf("some pods are not ready: %v", notReady)
	case len(ready) != replicas:
		return fmt.Errorf("expected %d ready pods, got %d", replicas, len(ready))
	default:
		return nil
	}
}

// completed pods are left by a kubelet that was shut down in order: they run by name alone.
func completed(pod corev1.Pod) bool {
	return !slices.ContainsFunc(pod.Status.ContainerStatuses,
		func(status corev1.ContainerStatus) bool { return status.State.Terminated == nil })
}
