package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// kubelet is the one component that runs in no pod.
const kubelet = "kubelet"

// Component is a part of Kubernetes that runs on a node.
type Component struct {
	// Name is like "kube-apiserver", or "kubelet".
	Name string
	// Node is the name that the node has in Kubernetes.
	Node string
	// Version is like "v1.36.3"; empty if nothing tells it.
	Version string
	// Ready is that of its pod; a kubelet's is the node's.
	Ready bool
}

// Components asks what runs of Kubernetes, and in which version: by the images of pods, and by what kubelets say.
func (c *Client) Components(ctx context.Context) ([]Component, error) {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()

	var pods corev1.PodList
	if err := c.api.Get().Namespace("kube-system").Resource("pods").
		Param("labelSelector", "k8s-app in (kube-apiserver,kube-controller-manager,kube-scheduler,kube-proxy)").
		MaxRetries(0).Do(ctx).Into(&pods); err != nil {
		return nil, fmt.Errorf("list the pods of Kubernetes' components: %w", err)
	}

	var found []Component

	for i := range pods.Items {
		pod := &pods.Items[i]
		app := pod.Labels["k8s-app"]

		for _, container := range pod.Spec.Containers {
			if container.Name == app {
				found = append(found, Component{app, pod.Spec.NodeName, versionOf(container.Image), isReady(pod)})
			}
		}
	}

	for _, node := range nodes {
		found = append(found, Component{kubelet, node.Name, node.KubeletVersion, node.Ready})
	}

	slices.SortStableFunc(found, func(a, b Component) int { return strings.Compare(a.Name+a.Node, b.Name+b.Node) })

	return found, nil
}

// versionOf is the tag of an image; empty without one.
func versionOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	_, tag, _ := strings.Cut(image[strings.LastIndexByte(image, '/')+1:], ":")

	return tag
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}
