package targets

import (
	"context"

	"github.com/talos-mage/talos-mage/internal/cli/invocation"
)

// Runs lists the recorded runs, and sums up how their steps ended for nodes, and why.
//
// KEEP_RUNS says how many are kept (docs/runs.md).
func Runs(ctx context.Context) error {
	return exit(invocation.FromProcess("runs").Runs(ctx, overrides{}.set()))
}

// Report shows a recorded run: the last one, or the one that -run names.
//
// -open shows its page in a browser: a timeline of the nodes, the results, each finding, the settings.
func Report(ctx context.Context, run *string, open *bool) error {
	return exit(invocation.FromProcess("report").Report(ctx, overrides{"run": run, "open": open}.set()))
}
