package kube

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// DaemonSet is a workload that runs on every node that takes it.
type DaemonSet struct {
	Namespace, Name string
	// Wanted is on how many nodes, Ready on how many it is.
	Wanted, Ready int
}

// DaemonSets lists those with these labels, of all namespaces. client-go's types for them would make the program
// larger, for four fields.
func (c *Client) DaemonSets(ctx context.Context, labels string) ([]DaemonSet, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()

	body, err := c.api.Get().AbsPath("/apis/apps/v1/daemonsets").Param("labelSelector", labels).MaxRetries(0).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("list DaemonSets: %w", err)
	}

	var list struct {
		Items []struct {
			Metadata struct {
				Name, Namespace string
			}
			Status struct {
				DesiredNumberScheduled, NumberReady int
			}
		}
	}

	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("read DaemonSets: %w", err)
	}

	sets := make([]DaemonSet, 0, len(list.Items))
	for _, item := range list.Items {
		sets = append(sets, DaemonSet{item.Metadata.Namespace, item.Metadata.Name, item.Status.DesiredNumberScheduled,
			item.Status.NumberReady})
	}

	return sets, nil
}

// Pod is a pod, and whether it is ready.
type Pod struct {
	Namespace, Name, Node string
	Ready                 bool
}

// Pods lists those with these labels, of all namespaces.
func (c *Client) Pods(ctx context.Context, labels string) ([]Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()

	var list corev1.PodList
	if err := c.api.Get().Resource("pods").Param("labelSelector", labels).MaxRetries(0).Do(ctx).Into(&list); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}

	pods := make([]Pod, 0, len(list.Items))
	for i := range list.Items {
		pods = append(pods, newPod(&list.Items[i]))
	}

	return pods, nil
}

func newPod(from *corev1.Pod) Pod {
	pod := Pod{Namespace: from.Namespace, Name: from.Name, Node: from.Spec.NodeName}

	for _, condition := range from.Status.Conditions {
		if condition.Type == corev1.PodReady {
			pod.Ready = condition.Status == corev1.ConditionTrue
		}
	}

	return pod
}

// ConfigMap is what one holds.
func (c *Client) ConfigMap(ctx context.Context, namespace, name string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()

	var found corev1.ConfigMap
	if err := c.api.Get().Namespace(namespace).Resource("configmaps").Name(name).MaxRetries(0).Do(ctx).
		Into(&found); err != nil {
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", namespace, name, err)
	}

	return found.Data, nil
}
