package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// DeleteNode takes a node out of the cluster; one that is not there is no error. A kubelet that runs registers again.
func (c *Client) DeleteNode(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()

	err := c.api.Delete().Resource("nodes").Name(name).MaxRetries(0).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Kubernetes node %s: %w", name, err)
	}

	return nil
}
