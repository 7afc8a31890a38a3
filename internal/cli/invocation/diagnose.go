package invocation

import (
	"context"
	"fmt"

	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
)

// Diagnose shows why nodes are stuck, with what points to it.
func (i Invocation) Diagnose(ctx context.Context, flags settings.Overrides) *Failure {
	ctx, stop := withSignals(ctx)
	defer stop()

	loaded, err := i.load(ctx, flags)
	if err != nil {
		return i.badInput(err)
	}

	const sarif, asJSON = "sarif", "json"

	if loaded.AuditFormat == sarif {
		return i.badInput(diagnosis.NewProblem(diagnosis.BadSetting,
			loaded.NameOf("AUDIT_FORMAT")+"="+sarif+" is for audits: diagnose takes table or json", "take -format=json"))
	}

	// The document is to be alone.
	beside := i
	if loaded.AuditFormat == asJSON {
		beside.Out = i.Err
	}

	run, failure := beside.open(ctx, opening{target: "diagnose", settings: loaded, start: steps.New})
	if failure != nil {
		return failure
	}

	step := &steps.Diagnose{}
	err = steps.Execute(ctx, run, steps.Located(step)(loaded)...)
	closing := end(run, i.failure(ctx, "diagnose", steps.Closing(run, err)))

	if step.Found != nil {
		i.tell(*step.Found, loaded.AuditFormat == asJSON)
	}

	if step.Found != nil && step.Found.Bundle != "" {
		fmt.Fprintf(beside.Out, "\nbundle: %s; look through it before you pass it on\n", report.Scrub(step.Found.Bundle))
	}

	return i.failure(ctx, "diagnose", steps.Closing(run, err)).and(i.unwrittenReport(run, closing))
}

// tell writes what was found.
func (i Invocation) tell(found steps.Diagnosis, asJSON bool) {
	if asJSON {
		fmt.Fprint(i.Out, i.told(found.JSON()))
		return
	}

	i.say("\n%snext: %s\n", found.Text(), found.Next)
}
