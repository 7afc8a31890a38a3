package scenario

import (
	"context"
	"net/netip"

	"github.com/talos-mage/talos-mage/internal/emulator"
	"github.com/talos-mage/talos-mage/internal/emulator/labcluster"
)

// Play makes the scenario's events happen to a cluster that was made of its Options, until the last one or the context's end. It tells of each.
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
		node.Set(func(faults *emulator.Faults) { *faults = inBlock(e.Faults, node.Address()) })
	case Heal:
		node.Set(func(faults *emulator.Faults) { *faults = emulator.Faults{} })
	case PowerOff:
		node.PowerOff()
	case PowerOn:
		node.PowerOn()
	}
}

// inBlock puts an address after the apply, of which a scenario gives the last part alone, into the lab's block.
func inBlock(faults emulator.Faults, node netip.Addr) emulator.Faults {
	if faults.AddressAfter.IsValid() {
		block, host := node.As4(), faults.AddressAfter.As4()
		block[3] = host[3]
		faults.AddressAfter = netip.AddrFrom4(block)
	}

	return faults
}
