package observe

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// How long a probe waits for a node's other addresses after one has answered, or has refused: a closed port may be
// another machine's.
const (
	answeredGrace = 300 * time.Millisecond
	refusedGrace  = time.Second
)

// Addresses are where a node may answer: where it is said to answer now, and where its machine config puts it.
// An address with a port is a way in of its own (a forwarded port), so nothing else is tried.
func (o *Observer) Addresses(node *inventory.Node) []string {
	now, given := o.addressNow(node)
	if !given {
		now = node.Address
	} else if _, _, err := net.SplitHostPort(now); err == nil {
		return []string{now}
	}

	addresses := []string{now}

	if config := o.Configs[node.Name]; config != nil {
		for _, prefix := range config.Addresses() {
			addresses = text.AppendNew(addresses, prefix.Addr().String())
		}
	}

	if given && node.Address != "" && !o.isAnothers(node, node.Address) {
		addresses = text.AppendNew(addresses, node.Address)
	}

	return addresses
}

// isAnothers reports whether it is said of another node that it answers at this address now.
func (o *Observer) isAnothers(node *inventory.Node, address string) bool {
	return slices.ContainsFunc(o.Cluster.Nodes, func(other *inventory.Node) bool {
		now, given := o.addressNow(other)
		return other != node && given && now == address
	})
}

// addressNow is where a node is said to answer now.
func (o *Observer) addressNow(node *inventory.Node) (string, bool) {
	lease, _ := o.Lease(node)
	return AddressNow(o.Settings.NodeAddresses, lease, node.Name, node.Address)
}

// Probe asks all the node's addresses at once and prefers the most telling answer. The first time it finds out whether
// the node's machine still is where an earlier search found it; if not, it is looked for.
func (o *Observer) Probe(ctx context.Context, node *inventory.Node) talos.Probed {
	probed := o.probe(ctx, node)
	if !o.findsStale(ctx, node, probed) {
		return probed
	}

	return o.probe(ctx, node)
}

func (o *Observer) probe(ctx context.Context, node *inventory.Node) talos.Probed {
	addresses := o.Addresses(node)
	dialer := o.Dialer()

	probing, stop := context.WithCancel(ctx)
	defer stop()

	answers := make(chan talos.Probed, len(addresses))
	for _, address := range addresses {
		go func() { answers <- dialer.Probe(probing, address) }()
	}

	best := o.ofNode(node, <-answers)
	for range len(addresses) - 1 {
		grace := graceAfter(best)

		select {
		case answer := <-answers:
			best = moreTelling(best, o.ofNode(node, answer), addresses)
		case <-grace:
			return best
		}
	}

	return best
}

// errAnothers is what a machine without a config comes to, where another node's is said to be.
var errAnothers = errors.New("the machine in maintenance there is said to be another node's")

// ofNode takes an answer in maintenance for none where another node's machine is said to be: a config has an address
// that somebody else may hold until then.
func (o *Observer) ofNode(node *inventory.Node, answer talos.Probed) talos.Probed {
	if answer.State != talos.Maintenance || !o.isAnothers(node, answer.Address) {
		return answer
	}

	return talos.Probed{Silence: talos.NoAnswer, Address: answer.Address, Err: errAnothers}
}

// graceAfter is when it is time to be content with an answer; never (nil) without one.
func graceAfter(best talos.Probed) <-chan time.Time {
	switch {
	case best.State == talos.Ours:
		return time.After(0)
	case best.State != talos.Unreachable:
		return time.After(answeredGrace)
	case best.Silence == talos.Refused:
		return time.After(refusedGrace)
	default:
		return nil
	}
}

// moreTelling is the answer that says more about the node; of equal ones that of the address that comes first.
func moreTelling(a, b talos.Probed, addresses []string) talos.Probed {
	if rank(a) > rank(b) || rank(a) == rank(b) && slices.Index(addresses, a.Address) < slices.Index(addresses, b.Address) {
		return a
	}

	return b
}

func rank(answer talos.Probed) int {
	switch {
	case answer.State == talos.Ours:
		return 4
	case answer.State == talos.Maintenance:
		return 3
	case answer.State != talos.Unreachable:
		return 2
	case answer.Silence == talos.Refused:
		return 1
	default:
		return 0
	}
}
