// Package observe finds out what the nodes of a cluster say of themselves: what answers at their addresses, whose
// machine config they run, how their etcd is, and what Kubernetes knows of them. It changes nothing. What one run saw
// and did is remembered for that run; it is never written down, since the nodes are the source of truth.
package observe

import (
	"context"
	"sync"

	"github.com/talos-mage/talos-mage/internal/base/clock"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/steps/workspace"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// Limit bounds how many nodes are observed or waited for at once; it is about sockets, not about load on the nodes.
const Limit = 32

// Observer observes the nodes of one run. Safe for concurrent use while the contents stay as they are.
type Observer struct {
	*workspace.Contents
	Clock clock.Clock
	// LookFor has the machine of a node looked for that is not where it was found, and says why. It reports whether it
	// answers elsewhere.
	LookFor func(ctx context.Context, node *inventory.Node, why string) bool

	mu    sync.Mutex
	facts map[string]Facts
}

// New observes the nodes of a cluster, whose files may still change between two steps.
func New(contents *workspace.Contents, clk clock.Clock,
	lookFor func(ctx context.Context, node *inventory.Node, why string) bool) *Observer {
	return &Observer{Contents: contents, Clock: clk, LookFor: lookFor, facts: make(map[string]Facts)}
}

// Dialer reaches nodes with the run's credentials. Made fresh, so that nothing outlives a step.
func (o *Observer) Dialer() *talos.Dialer {
	return &talos.Dialer{
		Credentials:  o.Credentials,
		Timeout:      o.Settings.DialTimeout,
		Fingerprints: o.Settings.CertFingerprints,
	}
}

// Facts are what this run saw of a node and did to it so far.
func (o *Observer) Facts(node *inventory.Node) Facts {
	o.mu.Lock()
	defer o.mu.Unlock()

	return o.facts[node.Name]
}

// Note takes in what this run has just seen of a node or done to it.
func (o *Observer) Note(node *inventory.Node, change func(*Facts)) {
	o.mu.Lock()
	defer o.mu.Unlock()

	facts := o.facts[node.Name]
	change(&facts)
	o.facts[node.Name] = facts
}

// SilentByItself reports whether a node is silent that this run has sent nothing. One that was sent its config, or
// another system, is silent while it installs and reboots.
func (o *Observer) SilentByItself(seen Observation) bool {
	facts := o.Facts(seen.Node)

	return seen.Silent() && facts.Sent == nil && !facts.Rebooting
}
