package scenario

import (
	"context"
	"net/netip"
	"slices"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// Play makes the scenario's events happen to a cluster that was made of its Options, until the last one or the
// context's end. It tells of each.
func (s *Scenario) Play(ctx context.Context, cluster *labcluster.Cluster, tell func(Event)) {
	timepiece := cluster.Lab.Clock()
	began := timepiece.Now()

	for _, event := range s.events() {
		if timepiece.Sleep(ctx, event.At-timepiece.Now().Sub(began)) != nil {
			return
		}

		event.happen(cluster.Node(event.Node))
		tell(event)
	}
}

func (e Event) happen(node *emulator.Node) {
	switch e.Do {
	case Set:
		node.Set(func(faults *emulator.Faults) { *faults = faultsInBlock(e.Faults, node.Address()) })
	case Heal:
		node.Set(func(faults *emulator.Faults) { *faults = emulator.Faults{} })
	case PowerOff:
		node.PowerOff()
	case PowerOn:
		node.PowerOn()
	case Cordon, Uncordon:
		node.Cordon(e.Do == Cordon)
	}
}

// faultsInBlock puts an address after the apply into the lab's block.
func faultsInBlock(faults emulator.Faults, node netip.Addr) emulator.Faults {
	faults.Calls = slices.Clone(faults.Calls) // they are counted down

	if faults.AddressAfter.IsValid() {
		faults.AddressAfter = inBlock(faults.AddressAfter, node)
	}

	return faults
}

// inBlock puts an address, of which a scenario gives the last part alone, into the block of a node's.
func inBlock(address, node netip.Addr) netip.Addr {
	bytes, last := node.As4(), address.As4()
	bytes[3] = last[3]

	return netip.AddrFrom4(bytes)
}
