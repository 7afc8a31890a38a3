package targets

import (
	"context"

	"github.com/talos-mage/talos-mage/internal/steps"
)

// Reset wipes nodes and takes them back to maintenance mode: those that -node names, or with -cluster=<its name> all.
//
// It lists what is lost, and goes on once the name of the node or cluster was typed, or with -yes. Their config goes,
// and all that a life in the cluster left behind. -systemDisk wipes all of the disk that Talos is on, -disk other
// disks. Workers first, then control planes, one by one; a node that leaves a cluster must not cost etcd its quorum. A
// node in maintenance is skipped, so that it can be run again.
func Reset(ctx context.Context, node, cluster, disk *string, systemDisk, discover, yes, dryRun *bool) error {
	return execute(ctx, "reset", overrides{
		"node": node, "cluster": cluster, "disk": disk, "systemDisk": systemDisk, "discover": discover, "yes": yes,
		"dryRun": dryRun,
	}, only(steps.Reset{}))
}
