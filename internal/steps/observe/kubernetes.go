package observe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/talos-mage/talos-mage/internal/base/retry"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/kube"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/talos"
)

const (
	// KubernetesPort is the Kubernetes API's on a control plane.
	KubernetesPort = "6443"
	// trustdPort is where control planes sign the certificates of workers (machinery's constants.TrustdPort).
	trustdPort = "50001"
	// requestTimeout bounds one request to the Kubernetes API.
	requestTimeout = 5 * time.Second
	// flannel is Talos' own CNI.
	flannel = "flannel"
)

// ErrNoControlPlane is of a cluster in which nobody answers who could make a kubeconfig.
var ErrNoControlPlane = errors.New("no control plane answers with this cluster's certificate authority")

// Kubeconfig asks the control planes in turn for the admin kubeconfig. Talos makes it from its machine config, so it
// says nothing about the cluster's health.
func (o *Observer) Kubeconfig(ctx context.Context) ([]byte, error) {
	err := ErrNoControlPlane
	for _, node := range o.Cluster.ControlPlanes() {
		probed := o.Probe(ctx, node)
		if probed.State != talos.Ours {
			continue
		}

		conn, dialErr := o.Dialer().Secure(ctx, probed.Address)
		if dialErr != nil {
			err = dialErr
			continue
		}

		data, fetchErr := conn.Kubeconfig(ctx)
		conn.Close()

		if fetchErr == nil {
			return data, nil
		}

		err = fmt.Errorf("fetch kubeconfig from %s: %w", node.Name, fetchErr)
	}

	return nil, err
}

// TrustdAnswers reports whether a worker can have its certificate signed at the endpoint.
func (o *Observer) TrustdAnswers(ctx context.Context) bool {
	dialer := net.Dialer{Timeout: o.Settings.DialTimeout}

	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(o.Cluster.Endpoint.Hostname(), trustdPort))
	if err != nil {
		return false
	}

	_ = conn.Close()

	return true
}

// APIAnswers reports whether a Kubernetes API is there at the endpoint, ready or not. What hangs up is asked again: it
// may be one that goes down, or a balancer with nothing behind it.
func (o *Observer) APIAnswers(ctx context.Context) bool {
	host := o.Cluster.Endpoint.Host
	if _, _, err := net.SplitHostPort(host); err != nil {
		host = net.JoinHostPort(strings.Trim(host, "[]"), "443")
	}

	server, err := o.serves(ctx, host, nil, func(server kube.Server) bool { return server == kube.NotTLS })

	return err == nil && server > kube.NotTLS
}

// VIPAnswers reports whether anything answers on the Kubernetes API's port of an address, and whether this cluster's
// API does. It asks again while something else does: it may be this cluster's API while it goes down, which hangs up.
func (o *Observer) VIPAnswers(ctx context.Context, address netip.Addr) (answered, ours bool, err error) {
	server, err := o.serves(ctx, net.JoinHostPort(address.String(), KubernetesPort), o.kubernetesCA(),
		func(server kube.Server) bool { return server != kube.NoServer && server != kube.OwnServer })

	return server != kube.NoServer, server == kube.OwnServer, err
}

// errDoubtful is of what may turn out to be something else.
var errDoubtful = errors.New("what answers may not be what it seems")

// serves asks who is behind an address, and again while that is doubtful.
func (o *Observer) serves(ctx context.Context, address string, authority []byte,
	doubtful func(kube.Server) bool) (server kube.Server, err error) {
	//nolint:errcheck // what the last attempt saw is given
	retry.Do(ctx, o.Clock, Evenly(o.Settings, o.Settings.ReachabilityRetries), func(ctx context.Context, _ int) error {
		asking, stop := context.WithTimeout(ctx, o.Settings.DialTimeout)
		defer stop()

		server, err = kube.ServesCA(asking, address, authority)
		if err == nil && doubtful(server) {
			return errDoubtful
		}

		return nil
	}, func(error) bool { return true })

	return server, err
}

// Evenly tries so many times in all, with the same pause between.
func Evenly(limits *settings.Settings, tries int) retry.Policy {
	return retry.Policy{Retries: tries - 1, Initial: limits.ReachabilityDelay, Max: limits.ReachabilityDelay,
		Multiplier: 1}
}

// kubernetesCA is the CA that the machine configs declare for the Kubernetes API.
func (o *Observer) kubernetesCA() []byte {
	for _, node := range o.Cluster.ControlPlanes() {
		if config := o.declared(node); config != nil {
			return config.KubernetesCA()
		}
	}

	return nil
}

// Kubernetes asks the cluster's Kubernetes API as an administrator.
type Kubernetes struct {
	*Observer

	mu sync.Mutex
	// kubeconfig is fetched once: each time a control plane makes a new client certificate.
	kubeconfig []byte
}

// open is a client for the API at an address, or at the endpoint.
func (k *Kubernetes) open(ctx context.Context, address string) (*kube.Client, error) {
	k.mu.Lock()
	defer k.mu.Unlock()

	if k.kubeconfig == nil {
		kubeconfig, err := k.Kubeconfig(ctx)
		if err != nil {
			return nil, err
		}

		k.kubeconfig = kubeconfig
	}

	return kube.Open(k.kubeconfig, kube.Options{Address: address, Timeout: requestTimeout}) //nolint:wrapcheck // one layer
}

// Client asks the API at the endpoint, or, while that leads nowhere, at a control plane.
func (k *Kubernetes) Client(ctx context.Context) (*kube.Client, error) {
	if err := k.Ready(ctx, ""); err != nil {
		if own, ready := k.ControlPlaneAPI(ctx); ready {
			return k.open(ctx, own)
		}
	}

	return k.open(ctx, "")
}

// Find is a node as Kubernetes knows it, by its hostname or address; nil if it does not.
func (k *Kubernetes) Find(ctx context.Context, client *kube.Client, node *inventory.Node) (*kube.Node, error) {
	nodes, err := client.Nodes(ctx)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what was asked
	}

	if index := k.find(nodes, node); index >= 0 {
		return &nodes[index], nil
	}

	return nil, nil //nolint:nilnil // as documented
}

// find is where a node is in a list of Kubernetes'; less than 0 if it is not in it.
func (k *Kubernetes) find(nodes []kube.Node, node *inventory.Node) int {
	index := slices.IndexFunc(nodes, func(registered kube.Node) bool {
		return !node.IgnoreHostname && strings.EqualFold(node.Hostname, registered.Name)
	})
	if index >= 0 {
		return index
	}

	// By its address only where no name fits: the node of a machine that had it before may still be listed.
	return slices.IndexFunc(nodes, func(registered kube.Node) bool { return k.hasAddress(node, registered) })
}

// Ready asks the API at an address, or at the endpoint, whether it is ready.
func (k *Kubernetes) Ready(ctx context.Context, address string) error {
	client, err := k.open(ctx, address)
	if err != nil {
		return err
	}

	return client.Ready(ctx) //nolint:wrapcheck // it says what was asked
}

// ControlPlaneAPI is where a control plane's own API answers, one that is ready if there is any; empty if none answers.
func (k *Kubernetes) ControlPlaneAPI(ctx context.Context) (answers string, ready bool) {
	for _, address := range k.apiAddresses() {
		var notReady *kube.NotReadyError

		switch err := k.Ready(ctx, address); {
		case err == nil:
			return address, true
		case errors.As(err, &notReady):
			answers = address
		}
	}

	return answers, false
}

// apiAddresses are where the control planes' own APIs may answer, the endpoint aside.
func (o *Observer) apiAddresses() []string {
	var addresses []string
	for _, node := range o.Cluster.ControlPlanes() {
		for _, address := range o.Addresses(node) {
			if host, _, err := net.SplitHostPort(address); err == nil {
				address = host
			}

			if own := net.JoinHostPort(address, KubernetesPort); own != o.Cluster.Endpoint.Host {
				addresses = text.AppendNew(addresses, own)
			}
		}
	}

	return addresses
}

// Registration is what Kubernetes says about nodes.
type Registration struct {
	Missing  []string
	NotReady []kube.Node
	Err      error
}

// Complete reports whether all are known to Kubernetes. NotReady counts only with Talos' own CNI: without one it is
// expected.
func (r Registration) Complete(cni string) bool {
	return r.Err == nil && len(r.Missing) == 0 && (len(r.NotReady) == 0 || cni != flannel)
}

// Registered compares the inventory's nodes with Kubernetes', by hostname or address.
func (k *Kubernetes) Registered(ctx context.Context, wanted []*inventory.Node) Registration {
	client, err := k.open(ctx, "")
	if err != nil {
		return Registration{Err: err}
	}

	nodes, err := client.Nodes(ctx)
	if err != nil {
		return Registration{Err: err}
	}

	var seen Registration
	for _, node := range wanted {
		index := k.find(nodes, node)

		switch {
		case index < 0:
			seen.Missing = append(seen.Missing, node.Name)
		case !nodes[index].Ready:
			seen.NotReady = append(seen.NotReady, nodes[index])
		}
	}

	return seen
}

func (o *Observer) hasAddress(node *inventory.Node, registered kube.Node) bool {
	addresses := o.Addresses(node)
	return slices.ContainsFunc(registered.InternalIPs, func(theirs netip.Addr) bool {
		return slices.Contains(addresses, theirs.String())
	})
}
