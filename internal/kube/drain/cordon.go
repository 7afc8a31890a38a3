package drain

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/talos-mage/talos-mage/internal/base/retry"
	"github.com/talos-mage/talos-mage/internal/kube"
)

const (
	// Annotation marks a cordon as ours.
	Annotation = "talos-mage/cordoned"
	// giveUpLimit bounds what is tried after a drain failed or was interrupted.
	giveUpLimit = 20 * time.Second
)

// Owner is whose a node's cordon is.
type Owner int

// Owners of a cordon.
const (
	// Nobody: the node takes pods.
	Nobody Owner = iota
	// Ours is the cordon of this run or of one that was interrupted.
	Ours
	// Others is an administrator's, another program's, or Talos' own.
	Others
)

// Cordoned tells whose the cordon of a node is.
func (d Drainer) Cordoned(ctx context.Context, node string) (Owner, error) {
	var owner Owner

	err := d.persist(ctx, func(ctx context.Context) error {
		found, err := d.node(ctx, node)
		owner = ownerOf(found)

		return err
	})

	return owner, err
}

// Uncordon takes back our own cordon; somebody else's stays. It reports whether the node takes pods.
func (d Drainer) Uncordon(ctx context.Context, node string) (schedulable bool, err error) {
	err = d.persist(ctx, func(ctx context.Context) error {
		found, err := d.node(ctx, node)
		if err != nil {
			return err
		}

		schedulable = ownerOf(found) != Others

		// Who uncordons a node with kubectl leaves our mark, which would make the next cordon look like ours.
		if _, marked := found.Annotations[Annotation]; !marked {
			return nil
		}

		return d.mark(ctx, found, nil, nil)
	})
	if err != nil {
		return false, fmt.Errorf("uncordon node %s: %w", node, err)
	}

	return schedulable, nil
}

// cordon keeps new pods off the node, and marks that as ours unless it is so already. The owner is whose cordon the
// node has afterwards, as far as that is known.
func (d Drainer) cordon(ctx context.Context, node string) (owner Owner, err error) {
	err = d.persist(ctx, func(ctx context.Context) error {
		found, err := d.node(ctx, node)
		if err != nil {
			return err
		}

		if owner = ownerOf(found); owner != Nobody {
			return nil
		}

		owner = Ours // even if the reply is lost

		return d.mark(ctx, found, true, "true")
	})
	if err != nil {
		return owner, fmt.Errorf("cordon node %s: %w", node, err)
	}

	return owner, nil
}

// giveUp takes our cordon back after a failure, even if the run was interrupted.
func (d Drainer) giveUp(ctx context.Context, node string, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpLimit)
	defer cancel()

	if _, err := d.Uncordon(ctx, node); err != nil {
		return &CordonLeftError{Node: node, Cause: cause, Err: err}
	}

	return cause
}

// OwnerOf tells whose the cordon of a node is that was listed.
func OwnerOf(node kube.Node) Owner { return owner(node.Unschedulable, node.Annotations) }

func ownerOf(node corev1.Node) Owner { return owner(node.Spec.Unschedulable, node.Annotations) }

// owner reads the mark, which says nothing of a node that takes pods.
func owner(cordoned bool, annotations map[string]string) Owner {
	_, marked := annotations[Annotation]

	switch {
	case !cordoned:
		return Nobody
	case marked:
		return Ours
	default:
		return Others
	}
}

func (d Drainer) node(ctx context.Context, name string) (node corev1.Node, err error) {
	err = d.Client.Read(ctx, nodePath(name), &node)

	return node, err
}

// mark changes the cordon and its mark together, unless somebody has changed the node since it was looked at.
func (d Drainer) mark(ctx context.Context, node corev1.Node, unschedulable, mark any) error {
	return d.Client.Merge(ctx, nodePath(node.Name), map[string]any{
		"metadata": map[string]any{
			"resourceVersion": node.ResourceVersion,
			"annotations":     map[string]any{Annotation: mark},
		},
		"spec": map[string]any{"unschedulable": unschedulable},
	})
}

func nodePath(name string) string { return "/api/v1/nodes/" + name }

// persist tries again what only failed for a moment. Whatever became of the attempt before, each looks first.
func (d Drainer) persist(ctx context.Context, attempt func(context.Context) error) error {
	policy := retry.Policy{Retries: 5, Initial: time.Second, Max: 5 * time.Second, Multiplier: 2}

	_, err := retry.Do(ctx, d.Clock, policy, func(ctx context.Context, _ int) error { return attempt(ctx) }, transient)

	return err
}
