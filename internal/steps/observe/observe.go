package observe

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/talos-mage/talos-mage/internal/check/nodes"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/fanout"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// reading reads more of a node that is configured by us.
type reading func(*Observation, *talos.Conn)

// Observe asks a node what state it is in, at all its addresses at once, and reads what that state allows.
func (o *Observer) Observe(ctx context.Context, node *inventory.Node) Observation {
	return o.observe(ctx, node, nil)
}

// All observes many nodes at once, in order.
func (o *Observer) All(ctx context.Context, nodes []*inventory.Node) []Observation {
	return fanout.Collect(ctx, Limit, nodes, o.Observe, Unobserved)
}

// AllInMaintenance reports whether every node of the cluster answers in maintenance.
func (o *Observer) AllInMaintenance(ctx context.Context) bool {
	return !slices.ContainsFunc(o.All(ctx, o.Cluster.Nodes),
		func(seen Observation) bool { return seen.State != talos.Maintenance })
}

// Inspect observes, and has more read of a node in maintenance, on the connection by which it was observed.
func (o *Observer) Inspect(ctx context.Context, node *inventory.Node, read func(*talos.Conn)) Observation {
	seen, conn := o.look(ctx, node, nil)
	if conn == nil {
		return seen
	}
	defer conn.Close()

	if seen.State == talos.Maintenance {
		read(conn)
	}

	return seen
}

// Contact observes, but reads nothing of a node in maintenance.
func (o *Observer) Contact(ctx context.Context, node *inventory.Node) Observation {
	seen, conn := o.Connect(ctx, node)
	if conn != nil {
		conn.Close()
	}

	return seen
}

// Connect is Contact for whoever goes on with the node: what sends a machine its config first reads, on the same
// connection, what that takes. The caller closes it; nil if it is yet to be made.
func (o *Observer) Connect(ctx context.Context, node *inventory.Node) (Observation, *talos.Conn) {
	return o.contact(ctx, node, nil)
}

func (o *Observer) observe(ctx context.Context, node *inventory.Node, more reading) Observation {
	seen, conn := o.look(ctx, node, more)
	if conn != nil {
		conn.Close()
	}

	return seen
}

// look observes, and leaves the connection open; nil if there is none.
func (o *Observer) look(ctx context.Context, node *inventory.Node, more reading) (Observation, *talos.Conn) {
	seen, conn := o.contact(ctx, node, more)
	if seen.State == talos.Maintenance {
		conn = o.readMachine(ctx, &seen, conn)
	}

	return seen, conn
}

func (o *Observer) contact(ctx context.Context, node *inventory.Node, more reading) (Observation, *talos.Conn) {
	asked := o.Clock.Now()
	probed, conn := o.reach(ctx, node)
	seen := Observation{Node: node, Probed: probed, Asked: asked, At: o.Clock.Now()}

	return seen, o.noteContact(ctx, &seen, conn, more)
}

// noteContact takes in how a node answered, and reads one that is configured by us.
func (o *Observer) noteContact(ctx context.Context, seen *Observation, conn *talos.Conn, more reading) *talos.Conn {
	o.Note(seen.Node, func(facts *Facts) { facts.noteAnswer(*seen) })

	if seen.State == talos.Ours {
		conn = o.readConfigured(ctx, seen, conn, more)
	}

	o.Note(seen.Node, func(facts *Facts) { facts.noteConfig(*seen) })

	return conn
}

// reach finds out what answers. A connection that will be read from tells it as well as a probe, in one handshake less:
// one to where the node was the last time, or to the only address where it may be. There is none if the node was
// probed.
func (o *Observer) reach(ctx context.Context, node *inventory.Node) (talos.Probed, *talos.Conn) {
	facts := o.Facts(node)
	if facts.last.State == talos.Maintenance && (facts.Sent != nil || o.isAnothers(node, facts.last.Address)) {
		facts.last = talos.Probed{}
	}

	if conn, err := o.Dialer().Open(ctx, facts.last); err == nil && conn != nil {
		// Only the certificate tells a machine in maintenance from another one that has its address now.
		if !conn.Insecure() || conn.Fingerprint() == facts.last.Fingerprint {
			return conn.Probed(), conn
		}

		conn.Close()
	}

	if addresses := o.Addresses(node); len(addresses) == 1 && !o.isAnothers(node, addresses[0]) {
		return o.meet(ctx, node, addresses[0])
	}

	return o.Probe(ctx, node), nil
}

// meet is Probe of the only address of a node, and leaves the connection open.
func (o *Observer) meet(ctx context.Context, node *inventory.Node, address string) (talos.Probed, *talos.Conn) {
	probed, conn := o.Dialer().Meet(ctx, address)
	if !o.findsStale(ctx, node, probed) {
		return probed, conn
	}

	if conn != nil {
		conn.Close()
	}

	return o.probe(ctx, node), nil
}

// readMachine reads what a node tells in maintenance and configured by us alike, on the given connection or one of its
// own, which it leaves open.
func (o *Observer) readMachine(ctx context.Context, seen *Observation, conn *talos.Conn) *talos.Conn {
	if conn == nil {
		var err error
		if conn, err = o.Dialer().Open(ctx, seen.Probed); err != nil {
			seen.ReadErr = err
			return nil
		}
	}

	o.identify(ctx, seen, conn)
	seen.readStatus(ctx, conn)

	return conn
}

// readConfigured reads what there is to know of a node configured by us, on a connection as readMachine does.
func (o *Observer) readConfigured(ctx context.Context, seen *Observation, conn *talos.Conn, more reading) *talos.Conn {
	if conn = o.readMachine(ctx, seen, conn); conn == nil {
		return nil
	}

	var err error

	seen.Services, err = conn.Services(ctx)
	seen.failed(err)
	seen.failed(o.readConfig(ctx, seen, conn))
	seen.failed(o.readInstall(ctx, seen, conn))

	o.Note(seen.Node, func(facts *Facts) {
		facts.noteInstall(*seen)

		if seen.Installing() {
			seen.InstallFailure = facts.InstallFailure
		}
	})

	if more != nil {
		more(seen, conn)
	}

	return conn
}

// failed keeps the first read that did not work.
func (s *Observation) failed(err error) { s.ReadErr = cmp.Or(s.ReadErr, err) }

// readStatus reads a node's status, unless it is there.
func (s *Observation) readStatus(ctx context.Context, conn *talos.Conn) {
	if s.Status != nil {
		return
	}

	status, err := conn.MachineStatus(ctx)
	if err == nil {
		s.Status = &status
	}

	s.failed(err)
}

// identify asks once for each certificate whether it is the declared machine: a machine makes itself a new one whenever
// it boots.
func (o *Observer) identify(ctx context.Context, seen *Observation, conn *talos.Conn) {
	if facts := o.Facts(seen.Node); facts.identified == conn.Fingerprint() {
		seen.Boot = facts.Boot
		return
	}

	finding, err := o.WrongMachine(ctx, seen.Node, conn)
	seen.failed(err)

	if err == nil && finding == nil {
		o.Note(seen.Node, func(facts *Facts) {
			facts.identified = conn.Fingerprint()
			seen.Boot = facts.Boot
		})
	}

	seen.Wrong = finding
}

// WrongMachine reads, on this very connection, the hardware addresses and the UUID of the machine, and compares them
// with the declared ones. Nil means that it is the declared machine, or that nothing is declared.
func (o *Observer) WrongMachine(ctx context.Context, node *inventory.Node,
	conn *talos.Conn) (*diagnosis.Finding, error) {
	links, err := conn.Links(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the machine's links: %w", err)
	}

	system, err := conn.SystemInformation(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the machine's UUID: %w", err)
	}

	boot, err := bootOf(ctx, conn, system)
	if err != nil {
		return nil, err
	}

	finding := nodes.Identity(o.Cluster, node, links, system)
	if finding == nil {
		finding = o.otherThanFound(node, conn.Address(), links, system)
	}

	if finding == nil {
		// Another machine's boots are not this node's.
		o.Note(node, func(facts *Facts) { facts.Boot = boot })
	}

	return finding, nil
}

// bootOf tells a machine's boots apart: by the boot's id, or before Talos 1.14 by when it read its firmware's data.
func bootOf(ctx context.Context, conn *talos.Conn, system talos.SystemInfo) (string, error) {
	id, err := conn.BootID(ctx)
	switch {
	case err != nil:
		return "", fmt.Errorf("read the machine's boot id: %w", err)
	case id == "" && !system.Read.IsZero():
		return system.Read.Format(time.RFC3339Nano), nil
	default:
		return id, nil
	}
}

// Version reads the running Talos of a node that answers; a refusal leaves it empty.
func (o *Observer) Version(ctx context.Context, seen Observation) string {
	conn, err := o.Dialer().Open(ctx, seen.Probed)
	if err != nil || conn == nil {
		return ""
	}
	defer conn.Close()

	version, err := conn.Version(ctx)
	if err != nil {
		return ""
	}

	return version
}
