package targets

import (
	"context"

	"github.com/talos-mage/talos-mage/internal/steps"
)

// Upgrade brings nodes to the Talos version and the schematic that the files declare, and stops at the first that does
// not come back whole.
//
// -cluster=<its name> is all of them, -node some: control planes first, one by one, then workers, -parallel of them at
// once (1 by default). Before the first control plane a snapshot of etcd is taken and verified. Each node pulls the
// image, is drained, installs and reboots; believed is what it runs then. Run again, it goes on with the rest. -dryRun
// shows the plan.
func Upgrade(ctx context.Context, cluster, node, parallel *string, allowDowngrade, yes, dryRun *bool) error {
	return upgrade(ctx, "upgrade", overrides{"cluster": cluster, "node": node, "parallel": parallel,
		"allowDowngrade": allowDowngrade, "yes": yes, "dryRun": dryRun})
}

// UpgradeNode brings one node, by address or name, to the Talos version and the schematic that the files declare.
//
// It is upgrade for that node alone: with a snapshot first, if it is a control plane.
func UpgradeNode(ctx context.Context, address string, allowDowngrade, yes, dryRun *bool) error {
	return upgrade(ctx, "upgradeNode", overrides{"<address>": &address, "allowDowngrade": allowDowngrade, "yes": yes,
		"dryRun": dryRun})
}

// upgrade takes several nodes of a role down at once only if the command line itself says so.
func upgrade(ctx context.Context, target string, flags overrides) error {
	if parallel, _ := flags["parallel"].(*string); parallel == nil {
		one := "1"
		flags["parallel"] = &one
	}

	return execute(ctx, target, flags, only(steps.Upgrade{}))
}
