package audit

import (
	"context"

	preflight "github.com/talos-mage/talos-mage/internal/check/nodes"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// live is a node in maintenance that answered, with its machine config.
type live struct {
	cluster *inventory.Cluster
	node    *inventory.Node
	config  *machineconfig.Config
	facts   preflight.Facts
}

// liveCheck is a check of a node that answered.
type liveCheck struct {
	ids []diagnosis.ID
	run func(context.Context, *live) []diagnosis.Finding
}

// liveChecks are this package's own; preflight has others.
var liveChecks = []liveCheck{
	{[]diagnosis.ID{diagnosis.LinkSelectorUnmatched}, checkLiveSelectors},
	{[]diagnosis.ID{diagnosis.VolumeNoDisk, diagnosis.VolumeDiskHoldsData, diagnosis.VolumeDiskAmbiguous},
		checkLiveVolumes},
	{[]diagnosis.ID{diagnosis.NodeUpgradePath}, checkLiveUpgrade},
	{[]diagnosis.ID{diagnosis.AgentElsewhere}, checkGuestAgent},
}

// liveRows are the table's rows of checks that need a node's answer.
func liveRows() []Check {
	var rows []Check

	seen := map[diagnosis.ID]bool{}

	add := func(id diagnosis.ID, needs diagnosis.Need) {
		if !seen[id] {
			seen[id] = true
			rows = append(rows, Check{ID: id, Kind: Machines, Needs: needs})
		}
	}

	for _, check := range preflight.NodeChecks() {
		for _, id := range check.IDs {
			add(id, check.Needs)
		}
	}

	for _, check := range liveChecks {
		for _, id := range check.ids {
			add(id, diagnosis.NeedsConfig|diagnosis.NeedsFacts)
		}
	}

	return rows
}

// finding is about the node.
func (l *live) finding(id diagnosis.ID, next, cause string) diagnosis.Finding {
	entry, _ := diagnosis.Lookup(id)

	return diagnosis.Finding{
		ID: id, Severity: entry.Severity, Node: l.node.Name, Address: l.facts.Address, Cause: cause, Next: next,
		At: diagnosis.Location{Path: l.config.Path},
	}
}
