package drain

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pageSize is how many pods one answer lists.
const pageSize = "500"

// podsOn lists the node's pods.
func (d Drainer) podsOn(ctx context.Context, node string) ([]corev1.Pod, error) {
	var pods []corev1.Pod

	for more := ""; ; {
		var page corev1.PodList

		queries := []string{"fieldSelector", "spec.nodeName=" + node, "limit", pageSize}
		if more != "" {
			queries = append(queries, "continue", more)
		}

		if err := d.Client.Read(ctx, "/api/v1/pods", &page, queries...); err != nil {
			return nil, fmt.Errorf("list pods: %w", err)
		}

		pods = append(pods, page.Items...)

		if more = page.Continue; more == "" {
			return pods, nil
		}
	}
}

// choose gives the pods that have to go: all but those that would be put back, or that only mirror what Talos runs.
func (d Drainer) choose(ctx context.Context, pods []corev1.Pod) ([]corev1.Pod, error) {
	var chosen []corev1.Pod

	for _, pod := range pods {
		if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
			continue
		}

		kept, err := d.daemonSetKeeps(ctx, pod)
		if err != nil {
			return nil, err
		}

		if !kept {
			chosen = append(chosen, pod)
		}
	}

	return chosen, nil
}

// daemonSetKeeps reports whether a DaemonSet would put the pod back at once. It does not if it has been deleted, and
// nobody minds about a pod that has ended.
func (d Drainer) daemonSetKeeps(ctx context.Context, pod corev1.Pod) (bool, error) {
	controller := metav1.GetControllerOf(&pod)
	if controller == nil || controller.Kind != "DaemonSet" || controller.APIVersion != "apps/v1" || finished(pod) {
		return false, nil
	}

	var set metav1.PartialObjectMetadata

	path := fmt.Sprintf("/apis/apps/v1/namespaces/%s/daemonsets/%s", pod.Namespace, controller.Name)

	switch err := d.Client.Read(ctx, path, &set); {
	case err == nil:
		return true, nil
	case apierrors.IsNotFound(err):
		return false, nil
	default:
		return false, fmt.Errorf("look for DaemonSet %s/%s: %w", pod.Namespace, controller.Name, err)
	}
}

func finished(pod corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func podPath(pod corev1.Pod) string {
	return fmt.Sprintf("/api/v1/namespaces/%s/pods/%s", pod.Namespace, pod.Name)
}
