// Package clusterhealth is Talos' checks of a cluster's health, made through the APIs of Talos and Kubernetes as
// talosctl and the nodes make them.
//
// Source: Talos pkg/cluster/check. The texts are Talos' own, since people read them.
package clusterhealth

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/client"
	"k8s.io/client-go/rest"
)

// Node is a machine that belongs to the cluster.
type Node struct {
	// InternalIP is where its API answers; it is one of IPs.
	InternalIP netip.Addr
	IPs        []netip.Addr
}

// Cluster is what is checked, and through what.
type Cluster struct {
	// Talos is a connection to a control plane, which forwards to the other nodes.
	Talos *client.Client
	// Kubernetes connects to the cluster's Kubernetes.
	Kubernetes func(ctx context.Context) (rest.Interface, error)

	ControlPlanes, Workers []Node
}

// nodes are all of them, control planes first.
func (c *Cluster) nodes() []Node {
	return append(append([]Node(nil), c.ControlPlanes...), c.Workers...)
}

// Addresses are those of all nodes, control planes first.
func (c *Cluster) Addresses() []string { return addresses(c.nodes()) }

func addresses(nodes []Node) []string {
	list := make([]string, 0, len(nodes))
	for _, node := range nodes {
		list = append(list, node.InternalIP.String())
	}

	return list
}

// Options are about releases that check in another way.
type Options struct {
	// Interval is between two attempts of a check that fails.
	Interval func(ctx context.Context) error
	// Limit gives a context for a single check; nil for no limit but that of all of them.
	Limit func(ctx context.Context, check string) (context.Context, context.CancelFunc)
	// NeedsCNI makes a cluster wait for Ready nodes even if its machine configs leave the CNI to somebody else.
	NeedsCNI bool
	// Optional makes the checks of etcd and kubelet first look whether these are declared, which administrators alone can,
	// and a cluster without bootstrap manifests one whose CNI is somebody else's.
	Optional bool
}

// Names of checks that some releases treat in their own way.
const (
	NoDiagnostics = "no diagnostics"
	NodesReady    = "all k8s nodes to report ready"
)

// check is something that has to be true of a cluster.
type check struct {
	name   string
	assert assertion
	// attempt is how long one attempt may take, in wall time.
	attempt time.Duration
}

// errSkip is the outcome of a check for which there is nothing to look at.
var errSkip = errors.New("SKIP")

// Limits of an attempt.
const (
	usualAttempt = 5 * time.Second
	firstKube    = 30 * time.Second // the first one that needs Kubernetes
)

// assertion is an error while something is not true of a cluster.
type assertion func(ctx context.Context, c *Cluster) error

func always(assert assertion) assertion { return assert }

// unless skips an assertion about what a cluster leaves out.
func unless(leftOut question) func(assertion) assertion {
	return func(assert assertion) assertion {
		return func(ctx context.Context, c *Cluster) error {
			if missing, err := leftOut(ctx, c); err != nil {
				return err
			} else if missing {
				return errSkip
			}

			return assert(ctx, c)
		}
	}
}

func checks(options Options) []check {
	withEtcd, withKubelet, withCNI := always, always, unless(cniLeftOut)

	if options.Optional {
		withEtcd, withKubelet, withCNI = unless(etcdLeftOut), unless(kubeletLeftOut), unless(noManifestsOr(cniLeftOut))
	}

	if options.NeedsCNI {
		withCNI = always
	}

	return []check{
		{"etcd to be healthy", withEtcd(serviceHealthy("etcd")), usualAttempt},
		{"etcd members to be consistent across nodes", withEtcd(etcdConsistent), usualAttempt},
		{"etcd members to be control plane nodes", withEtcd(etcdOnControlPlanes), usualAttempt},
		{"apid to be ready", apidReady, usualAttempt},
		{"all nodes memory sizes", memorySizes, usualAttempt},
		{"all nodes disk sizes", diskSizes, usualAttempt},
		{NoDiagnostics, diagnostics, usualAttempt},
		{"kubelet to be healthy", withKubelet(serviceHealthy("kubelet")), usualAttempt},
		{"all nodes to finish boot sequence", booted, usualAttempt},
		{"all k8s nodes to report", nodesReported, firstKube},
		{"all control plane static pods to be running", staticPods, usualAttempt},
		{"all control plane components to be ready", componentsReady, usualAttempt},
		{NodesReady, withCNI(nodesReady), usualAttempt},
		{"kube-proxy to report ready", podsReady(daemonSet, "k8s-app=kube-proxy"), usualAttempt},
		{"coredns to report ready", withCNI(podsReady(deployment, "k8s-app=kube-dns")), usualAttempt},
		{"all k8s nodes to report schedulable", nodesSchedulable, usualAttempt},
	}
}

// Wait runs all checks in order, each until it passes, and tells every change of their state in one line. It ends early
// with the context.
func Wait(ctx context.Context, cluster *Cluster, options Options, tell func(line string) error) error {
	for _, one := range checks(options) {
		if err := one.wait(ctx, cluster, options, tell); err != nil {
			return err
		}
	}

	return nil
}

func (k check) wait(ctx context.Context, cluster *Cluster, options Options, tell func(line string) error) error {
	if options.Limit != nil {
		limited, cancel := options.Limit(ctx, k.name)
		defer cancel()

		ctx = limited
	}

	if err := ctx.Err(); err != nil {
		return err
	}

	told := ""
	report := func(state string) error {
		if state == told {
			return nil
		}

		told = state

		return tell(fmt.Sprintf("waiting for %s: %s", k.name, state))
	}

	if err := report("..."); err != nil {
		return err
	}

	for {
		switch err := k.try(ctx, cluster); {
		case err == nil:
			return report("OK")
		case errors.Is(err, errSkip):
			return report(errSkip.Error())
		default:
			if err := report(err.Error()); err != nil {
				return err
			}
		}

		if options.Interval(ctx) != nil {
			return ctx.Err()
		}
	}
}

func (k check) try(ctx context.Context, cluster *Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, k.attempt)
	defer cancel()

	return k.assert(ctx, cluster)
}
