package invocation

import (
	"context"
	"fmt"

	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
)

// Discover shows the machines that some networks have, whether or not a cluster is declared.
func (i Invocation) Discover(ctx context.Context, flags settings.Overrides) *Failure {
	ctx, stop := withSignals(ctx)
	defer stop()

	loaded, err := i.load(ctx, flags)
	if err != nil {
		return i.badInput(err)
	}

	if err := refuseSARIF(loaded, "discover"); err != nil {
		return i.badInput(err)
	}

	// The document is to be alone.
	beside := i
	if loaded.AuditFormat == formatJSON {
		beside.Out = i.Err
	}

	run, failure := beside.open(ctx, opening{target: "discover", settings: loaded, start: steps.NewAnywhere})
	if failure != nil {
		return failure
	}

	step := &steps.Discover{}
	err = steps.Execute(ctx, run, step)
	closing := end(run, i.failure(ctx, "discover", steps.Closing(run, err)))

	if step.Found != nil {
		i.show(*step.Found, loaded.AuditFormat == formatJSON)
	}

	return i.ended(ctx, run, "discover", err).and(i.unwrittenReport(run, closing))
}

// show writes what was found.
func (i Invocation) show(found steps.Discovery, asJSON bool) {
	if asJSON {
		fmt.Fprint(i.Out, i.told(found.JSON()))
		return
	}

	fmt.Fprintln(i.Out)
	fmt.Fprint(i.Out, report.Scrub(found.Table(report.Width(i.Out))))

	if remarks := found.Remarks(); remarks != "" {
		i.say("\n%s", remarks)
	}

	i.say("\nnext: %s\n", found.Next)
}
