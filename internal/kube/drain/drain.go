// Package drain takes the pods off a Kubernetes node before it reboots, as `kubectl drain --ignore-daemonsets
// --delete-emptydir-data --force` does: it cordons the node and evicts its pods, within their disruption budgets.
//
// A cordon of ours is marked, so that a later run knows it from somebody else's and takes back only its own.
package drain

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/talos-mage/talos-mage/internal/base/clock"
	"github.com/talos-mage/talos-mage/internal/kube"
)

const (
	// DefaultLimit is how long a drain takes at most, as Talos' own.
	DefaultLimit = 5 * time.Minute
	// pause is between two looks at what is left on the node.
	pause = 2 * time.Second
)

// Drainer drains nodes of one cluster.
type Drainer struct {
	Client *kube.Client
	Clock  clock.Clock
	// Limit bounds a drain; DefaultLimit if zero.
	Limit time.Duration
}

// Progress is how far a drain is.
type Progress struct {
	// Pods are how many the drain chose, Gone how many of them have left the node.
	Pods, Gone int
	// Held are those that could not be evicted yet.
	Held []HeldPod
}

// Drain cordons the node and evicts its pods, and returns when they are gone. Somebody else's cordon is left as it is.
// A drain that fails takes its own cordon back; a *CordonLeftError says that this did not work either.
func (d Drainer) Drain(ctx context.Context, node string, progress func(Progress)) error {
	owner, err := d.cordon(ctx, node)
	if err == nil {
		err = d.empty(ctx, node, progress)
	}

	if err == nil || owner != Ours {
		return err
	}

	return d.giveUp(ctx, node, err)
}

// empty evicts the node's pods and waits until they are gone.
func (d Drainer) empty(ctx context.Context, node string, progress func(Progress)) error {
	e := eviction{Drainer: d, node: node}
	deadline := d.Clock.Now().Add(d.limit())

	for {
		err := e.look(ctx)
		if err == nil && len(e.left) > 0 {
			err = e.evict(ctx)
		}

		if e.chosen {
			progress(e.progress())
		}

		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !transient(err):
			return fmt.Errorf("drain node %s: %w", node, err)
		case err == nil && e.chosen && len(e.left) == 0:
			return nil
		case e.hopeless(), !d.Clock.Now().Before(deadline):
			return e.failure(err)
		}

		if err := d.Clock.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

func (d Drainer) limit() time.Duration {
	if d.Limit > 0 {
		return d.Limit
	}

	return DefaultLimit
}

// eviction is the state of one drain.
type eviction struct {
	Drainer

	node   string
	chosen bool // which pods are to go
	pods   int
	// left are the chosen pods that are still on the node, in the order that the API lists them.
	left []corev1.Pod
	// asked are those whose eviction the API has accepted, held those where it refused.
	asked map[types.UID]bool
	held  map[types.UID]HeldPod
}

// look sees what is on the node: the first time it chooses what has to go, later it sees what of that is left.
func (e *eviction) look(ctx context.Context) error {
	pods, err := e.podsOn(ctx, e.node)
	if err != nil {
		return err
	}

	if !e.chosen {
		chosen, err := e.choose(ctx, pods)
		if err != nil {
			return err
		}

		e.left, e.pods, e.chosen = chosen, len(chosen), true
		e.asked, e.held = map[types.UID]bool{}, map[types.UID]HeldPod{}

		return nil
	}

	// A pod of the same name is another one, with another id.
	present := map[types.UID]corev1.Pod{}
	for _, pod := range pods {
		present[pod.UID] = pod
	}

	var left []corev1.Pod

	for _, pod := range e.left {
		if now, there := present[pod.UID]; there {
			left = append(left, now)
		} else {
			delete(e.held, pod.UID)
		}
	}

	e.left = left

	return nil
}

// evict asks the API to evict every pod that it has not been asked for yet, or refused.
func (e *eviction) evict(ctx context.Context) error {
	for _, pod := range e.left {
		if e.asked[pod.UID] || pod.DeletionTimestamp != nil {
			continue
		}

		err := e.Client.Create(ctx, podPath(pod)+"/eviction", policyv1.Eviction{
			TypeMeta:   metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "Eviction"},
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
		})

		switch {
		case err == nil, apierrors.IsNotFound(err):
			e.asked[pod.UID] = true
			delete(e.held, pod.UID)
		case codeOf(err) != 0:
			e.held[pod.UID] = e.holder(ctx, pod, err)
		default:
			return err // the API is silent: it would be so for each of the others too
		}
	}

	return nil
}

func (e *eviction) progress() Progress {
	return Progress{Pods: e.pods, Gone: e.pods - len(e.left), Held: e.heldPods()}
}

// heldPods are in the order of the pods.
func (e *eviction) heldPods() []HeldPod {
	var held []HeldPod

	for _, pod := range e.left {
		if one, ok := e.held[pod.UID]; ok {
			held = append(held, one)
		}
	}

	return held
}

// hopeless reports whether waiting does not help.
func (e *eviction) hopeless() bool {
	for _, held := range e.held {
		if held.ForGood {
			return true
		}
	}

	return false
}

// failure says why the drain did not end: pods that are held, else pods that do not end, else what the API answered.
func (e *eviction) failure(err error) error {
	if held := e.heldPods(); len(held) > 0 {
		return &BlockedError{Node: e.node, Pods: held}
	}

	if e.chosen && err == nil {
		stuck := &StuckError{Node: e.node, Limit: e.limit()}
		for _, pod := range e.left {
			stuck.Pods = append(stuck.Pods, pod.Namespace+"/"+pod.Name)
		}

		return stuck
	}

	return fmt.Errorf("drain node %s: %w", e.node, err)
}
