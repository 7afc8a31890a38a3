package workspace

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

// programs run in the talos folder, with the paths that the settings give. An age key that is not there is left out:
// sops would insist on it instead of trying the user's other keys.
func (w *Workspace) programs() program.Runner {
	environ := slices.Clone(w.Environ)
	for _, pair := range w.Settings.Environ() {
		if name, path, _ := strings.Cut(pair, "="); name != "SOPS_AGE_KEY_FILE" || exists(path) {
			environ = append(environ, pair)
		}
	}

	return program.Runner{Environ: environ, Dir: w.Settings.TalosDir}
}

// talhelper runs talhelper. Its complaint becomes part of the error, scrubbed.
func (w *Workspace) talhelper(ctx context.Context, arguments ...string) error {
	_, err := w.programs().Run(ctx, nil, Talhelper, arguments...)

	var failure *program.Failure
	switch {
	case err == nil, ctx.Err() != nil:
		return err //nolint:wrapcheck // nothing to add
	case errors.Is(err, program.ErrMissing):
		return diagnosis.NewProblem(diagnosis.ProgramMissing,
			"talhelper is not on the PATH, and CONFIG_GENERATOR=talhelper asks for it",
			"leave CONFIG_GENERATOR at native, install talhelper, or put the machine configs into "+
				w.Settings.ClusterConfigDir).From(err)
	case errors.As(err, &failure):
		return diagnosis.NewProblem(diagnosis.ProgramFailed,
			fmt.Sprintf("talhelper %s failed: %s", failure.Verb, complaintOf(failure)),
			"fix what it complains about, then run the same command again").From(err)
	default:
		return err //nolint:wrapcheck // it names the program
	}
}

// complaintOf is what a program wrote to its error stream, on one line and without secrets; if it wrote nothing, how it
// ended.
func complaintOf(failure *program.Failure) string {
	if text := strings.Join(strings.Fields(report.Scrub(failure.Complaint)), " "); text != "" {
		return text
	}

	return failure.Err.Error()
}
