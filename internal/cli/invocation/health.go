package invocation

import (
	"context"
	"fmt"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
)

// Health shows how a cluster that is up is.
func (i Invocation) Health(ctx context.Context, flags settings.Overrides) *Failure {
	ctx, stop := withSignals(ctx)
	defer stop()

	loaded, err := i.load(ctx, flags)
	if err != nil {
		return i.badInput(err)
	}

	if err := refuseSARIF(loaded, "health"); err != nil {
		return i.badInput(err)
	}

	// The document is to be alone.
	beside, asJSON := i, loaded.AuditFormat == formatJSON
	if asJSON {
		beside.Out = i.Err
	}

	run, failure := beside.open(ctx, opening{target: "health", settings: loaded, brief: true, start: steps.New})
	if failure != nil {
		return failure
	}

	step := &steps.Health{Live: loaded.AuditProfile == string(check.InteropProfile)}
	err = steps.Execute(ctx, run, step)
	closing := end(run, i.failure(ctx, "health", steps.Closing(run, err)))

	if step.Found != nil && ctx.Err() == nil {
		i.showHealth(*step.Found, asJSON)
	}

	return i.ended(ctx, run, "health", err).and(i.unwrittenReport(run, closing))
}

// Formats of what is found.
const (
	formatTable = "table"
	formatJSON  = "json"
	formatSARIF = "sarif"
)

// refuseSARIF says that a form is for audits alone.
func refuseSARIF(loaded *settings.Settings, target string) error {
	if loaded.AuditFormat != formatSARIF {
		return nil
	}

	return diagnosis.NewProblem(diagnosis.BadSetting, loaded.NameOf("AUDIT_FORMAT")+"="+formatSARIF+" is for audits: "+
		target+" takes table or json", "take -format=json")
}

func (i Invocation) showHealth(found steps.Healthiness, asJSON bool) {
	if asJSON {
		fmt.Fprint(i.Out, i.told(found.JSON()))
		return
	}

	for _, rows := range found.Tables() {
		fmt.Fprintln(i.Out)
		fmt.Fprint(i.Out, i.ownCommands(report.Scrub(report.Columns(rows, report.Width(i.Out), nil))))
	}

	i.say("\nnext: %s\n", found.Next)
}
