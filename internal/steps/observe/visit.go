package observe

import (
	"context"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// Visit observes one node again and again, on one connection for as long as that stands. Not safe for concurrent use.
type Visit struct {
	observer *Observer
	node     *inventory.Node
	conn     *talos.Conn // nil if there is none
}

// Visit begins a visit. Close it.
func (o *Observer) Visit(node *inventory.Node) *Visit { return &Visit{observer: o, node: node} }

// Observe asks the node what state it is in, as Observer.Observe does.
func (v *Visit) Observe(ctx context.Context) Observation { return v.observe(ctx, nil) }

func (v *Visit) observe(ctx context.Context, more reading) Observation {
	seen, stands := v.again(ctx, more)
	if !stands {
		v.Close()
		seen, v.conn = v.observer.look(ctx, v.node, more)
	}

	if seen.ReadErr != nil || seen.Wrong != nil {
		v.Close()
	}

	return seen
}

// again observes on the connection of the last time. What it tells first, and at once, is whether somebody is there.
func (v *Visit) again(ctx context.Context, more reading) (Observation, bool) {
	if v.conn == nil || !v.conn.Stands() {
		return Observation{}, false
	}

	asked := v.observer.Clock.Now()
	seen := Observation{Node: v.node, Probed: v.conn.Probed(), Asked: asked}

	if seen.readStatus(ctx, v.conn); seen.ReadErr != nil {
		return Observation{}, false
	}

	seen.At = v.observer.Clock.Now()
	v.observer.noteContact(ctx, &seen, v.conn, more)

	if seen.State == talos.Maintenance {
		v.observer.readMachine(ctx, &seen, v.conn)
	}

	return seen, true
}

// Conn is the connection, nil if there is none; it is closed with the visit.
func (v *Visit) Conn() *talos.Conn { return v.conn }

// Close ends the visit.
func (v *Visit) Close() {
	if v.conn != nil {
		v.conn.Close()
	}

	v.conn = nil
}

// EtcdVisit surveys etcd again and again, in a visit to each control plane.
type EtcdVisit struct {
	visits map[*inventory.Node]*Visit
	nodes  []*inventory.Node
}

// VisitEtcd begins such visits. Close it.
func (o *Observer) VisitEtcd() *EtcdVisit {
	visits := &EtcdVisit{nodes: o.Cluster.ControlPlanes(), visits: make(map[*inventory.Node]*Visit)}
	for _, node := range visits.nodes {
		visits.visits[node] = o.Visit(node)
	}

	return visits
}

// Survey asks all control planes at once, as Observer.SurveyEtcd does.
func (v *EtcdVisit) Survey(ctx context.Context) EtcdSurvey {
	return survey(ctx, v.nodes, func(ctx context.Context, node *inventory.Node) EtcdObservation {
		return observeEtcd(ctx, v.visits[node].observe)
	})
}

// Close ends the visits.
func (v *EtcdVisit) Close() {
	for _, visit := range v.visits {
		visit.Close()
	}
}
