package targets

import (
	"context"

	"github.com/talos-mage/talos-mage/internal/steps"
)

// UpgradeK8s brings Kubernetes to the version that talenv.yaml or the profile declares, on every node, with talosctl.
//
// The way there, the nodes' Talos, deprecated APIs in use and talosctl's own version are looked at first, and a dry run
// is shown. Run again, it goes on where it stopped. docs/targets.md says more.
func UpgradeK8s(ctx context.Context, skipChecks *string, dryRun *bool) error {
	return execute(ctx, "upgradeK8s", overrides{"skipChecks": skipChecks, "dryRun": dryRun}, only(steps.UpgradeK8s{}))
}
