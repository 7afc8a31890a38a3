package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/base/program"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
)

// variable is a variable of the run's environment.
func (r *Run) variable(name string) string { return program.Runner{Environ: r.Environ}.Variable(name) }

// programs run in the talos folder, with the paths that the settings give.
func (r *Run) programs() program.Runner {
	return program.Runner{Environ: r.programEnviron(), Dir: r.Settings.TalosDir}
}

// talhelper runs talhelper. Its complaint becomes part of the error, scrubbed.
func (r *Run) talhelper(ctx context.Context, step string, arguments ...string) ([]byte, error) {
	output, err := r.programs().Run(ctx, nil, "talhelper", arguments...)

	var failure *program.Failure
	switch {
	case err == nil:
		return output, nil
	case ctx.Err() != nil:
		return nil, interrupted(ctx, step)
	case errors.Is(err, program.ErrMissing):
		return nil, &diagnosis.Problem{Step: step, Err: err, Finding: diagnosis.Finding{
			ID: diagnosis.ProgramMissing, Severity: diagnosis.Failure, Exit: diagnosis.ExitBadInput,
			Cause: "talhelper is not on the PATH, and CONFIG_GENERATOR=talhelper asks for it",
			Next: "leave CONFIG_GENERATOR at native, install talhelper, or put the machine configs into " +
				r.Settings.ClusterConfigDir,
		}}
	case errors.As(err, &failure):
		return nil, &diagnosis.Problem{Step: step, Err: err, Finding: diagnosis.Finding{
			ID: diagnosis.ProgramFailed, Severity: diagnosis.Failure, Exit: diagnosis.ExitBadInput,
			Cause: fmt.Sprintf("talhelper %s failed: %s", failure.Verb, complaintOf(failure)),
			Next:  "correct what it complains about, then run the same command again",
		}}
	default:
		return nil, err
	}
}

// programEnviron is the run's environment with the paths that the settings give. An age key that is not there is left
// out: sops would insist on it instead of trying the user's other keys.
func (r *Run) programEnviron() []string {
	environ := slices.Clone(r.Environ)
	for _, pair := range r.Settings.Environ() {
		if name, path, _ := strings.Cut(pair, "="); name != "SOPS_AGE_KEY_FILE" || fileExists(path) {
			environ = append(environ, pair)
		}
	}

	return environ
}

// complaintOf is what a program wrote to its error stream, on one line and without secrets; if it wrote nothing, how it
// ended.
func complaintOf(failure *program.Failure) string {
	if text := strings.Join(strings.Fields(report.Scrub(failure.Complaint)), " "); text != "" {
		return text
	}

	return failure.Err.Error()
}
