package observe

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/talos-mage/talos-mage/internal/check/nodes"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/discover"
	"github.com/talos-mage/talos-mage/internal/discover/leases"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// AddressNow is where a machine is said to answer now: NODE_ADDRESSES, which may call it by its name or by its declared
// address, goes over where it was found.
func AddressNow(given settings.Addresses, found leases.Entry, name, declared string) (string, bool) {
	for _, called := range []string{name, declared} {
		if now, is := given[called]; is {
			return now, true
		}
	}

	return found.Address, found.Address != ""
}

// Lease is where the node's machine was found: by a search of this run, else by an earlier one, if that was kept and
// no other machine is there by now.
func (o *Observer) Lease(node *inventory.Node) (leases.Entry, bool) {
	switch facts := o.Facts(node); {
	case facts.Found.Address != "":
		return facts.Found, true
	case facts.anothersLease:
		return leases.Entry{}, false
	default:
		return o.Leases.Of(node.Name)
	}
}

// usedLease is the lease by which the node is addressed; none where NODE_ADDRESSES goes over it.
func (o *Observer) usedLease(node *inventory.Node) (leases.Entry, bool) {
	lease, known := o.Lease(node)
	now, _ := o.addressNow(node)

	return lease, known && now == lease.Address
}

// findsStale finds out, once a run, whether a node's machine has left the address that was kept of it, and has it
// looked for. It reports whether another address is to be tried from now on.
func (o *Observer) findsStale(ctx context.Context, node *inventory.Node, probed talos.Probed) bool {
	lease, used := o.usedLease(node)
	if facts := o.Facts(node); !used || facts.leaseChecked || facts.Found.Address != "" {
		return false
	}

	why, another := o.staleness(ctx, node, lease, probed)
	if ctx.Err() != nil {
		return false
	}

	o.Note(node, func(facts *Facts) {
		facts.leaseChecked, facts.StaleLease, facts.anothersLease = true, why, another
	})

	if why == "" {
		return false
	}

	return o.LookFor(ctx, node, why) || another
}

// staleness says why the kept address of a node's machine is not its any more, and whether another machine is there;
// empty if it is, or if nobody can tell.
func (o *Observer) staleness(ctx context.Context, node *inventory.Node, lease leases.Entry,
	probed talos.Probed) (why string, another bool) {
	there := fmt.Sprintf("at %s, where it was found on %s", lease.Address, lease.At.Local().Format("2006-01-02 15:04"))

	switch {
	case probed.State == talos.Unreachable && probed.Silence == talos.Broken:
		return "", false
	case probed.State == talos.Unreachable:
		return "it does not answer " + there, false
	case probed.Address != lease.Address: // it has moved to where its machine config puts it
		return "", false
	case probed.State == talos.Foreign:
		return "another cluster's node answers " + there, true
	case probed.State == talos.NotTalos:
		return "something other than Talos answers " + there, true
	case probed.Fingerprint == lease.Fingerprint || o.isStillThere(ctx, node, lease, probed):
		return "", false
	default:
		return "another machine answers " + there, true
	}
}

// isStillThere reports whether the machine that answers is the one of a lease, as far as that can be read.
func (o *Observer) isStillThere(ctx context.Context, node *inventory.Node, lease leases.Entry,
	probed talos.Probed) bool {
	conn, err := o.Dialer().Open(ctx, probed)
	if err != nil || conn == nil {
		return true
	}
	defer conn.Close()

	links, linksErr := conn.Links(ctx)
	system, systemErr := conn.SystemInformation(ctx)

	return cmp.Or(linksErr, systemErr) != nil || o.isFound(node, lease, links, system)
}

// isFound reports whether a machine is the declared one, or, where none is declared, the one that was found.
func (o *Observer) isFound(node *inventory.Node, lease leases.Entry, links []talos.Link,
	system talos.SystemInfo) bool {
	if node.DeclaresMachine() {
		return nodes.Identity(o.Cluster, node, links, system) == nil
	}

	return lease.Is(nodes.PhysicalMACs(links), system.UUID)
}

// otherThanFound is the finding of a machine at the address where another one was found to be the node's; nil if it is
// that one. Of what NODE_ADDRESSES says nobody knows which machine is meant.
func (o *Observer) otherThanFound(node *inventory.Node, address string, links []talos.Link,
	system talos.SystemInfo) *diagnosis.Finding {
	lease, used := o.usedLease(node)
	if !used || address != lease.Address || o.isFound(node, lease, links, system) {
		return nil
	}

	finding := nodes.WrongMachine(node, "another machine is there by now: the one that was found there for it had "+
		cmp.Or(lease.MAC, "UUID "+lease.UUID))

	return &finding
}

// Identify gives the one machine among those that a search found which is the node's: the declared one, or the one that
// was found to be it before. None if nothing tells, or if several might be.
func (o *Observer) Identify(node *inventory.Node, machines []discover.Machine) (discover.Machine, bool) {
	lease := o.Facts(node).Found
	if lease.Address == "" {
		lease, _ = o.Leases.Of(node.Name)
	}

	if !node.DeclaresMachine() && lease.MAC == "" && lease.UUID == "" {
		return discover.Machine{}, false
	}

	var fitting []discover.Machine
	for _, machine := range machines {
		if o.isFound(node, lease, machine.Links, talos.SystemInfo{UUID: machine.UUID}) {
			fitting = append(fitting, machine)
		}
	}

	if len(fitting) != 1 {
		return discover.Machine{}, false
	}

	return fitting[0], true
}

// FoundAt takes in where a search found a node's machine, and reports whether the node was not addressed there before.
func (o *Observer) FoundAt(node *inventory.Node, machine discover.Machine) (lease leases.Entry, moved bool) {
	before, was := o.Addresses(node), o.Addresses(node)[0]
	if kept, known := o.Leases.Of(node.Name); known && o.Facts(node).StaleLease != "" {
		was = kept.Address
	}

	lease = LeaseOf(node, machine)
	for _, address := range machine.Addresses {
		if slices.Contains(before, address.String()) {
			lease.Address = address.String()
		}
	}

	moved = !slices.Contains(before, lease.Address)

	o.Note(node, func(facts *Facts) {
		if was != lease.Address && (facts.Found.Address != "" || facts.Sent != nil || facts.StaleLease != "") {
			facts.MovedFrom = was
		}

		facts.Found, facts.StaleLease, facts.last = lease, "", talos.Probed{}
	})

	return lease, moved
}

// MovedFrom is where a node's machine was found that answers elsewhere by now; empty if it does not.
func (o *Observer) MovedFrom(seen Observation) string {
	lease, _ := o.usedLease(seen.Node)
	for _, was := range []string{o.Facts(seen.Node).MovedFrom, lease.Address} {
		if was != "" && was != seen.Address {
			return was
		}
	}

	return ""
}

// LeaseOf is what there is to keep of a machine that a search found to be a node's.
func LeaseOf(node *inventory.Node, machine discover.Machine) leases.Entry {
	lease := leases.Entry{Node: node.Name, Address: machine.Address().String(), UUID: machine.UUID,
		Fingerprint: machine.Fingerprint, At: time.Now().UTC().Truncate(time.Second)}

	// A virtual address may be another control plane's in a moment.
	for _, address := range machine.Addresses {
		if !slices.Contains(node.VIPs, address) {
			lease.Address = address.String()
			break
		}
	}

	if len(machine.MACs) > 0 {
		lease.MAC = machine.MACs[0]
	}

	return lease
}
