package workspace

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/base/program"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/talos/talosctl"
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

// gitPatience is how long git may take to say what it ignores.
const gitPatience = 10 * time.Second

// notIgnored is how git check-ignore says so; it ends with 128 outside of a repository.
const notIgnored = 1

// Unignored reports whether a file lies in a git repository that does not ignore it. Without git nothing is.
func (w *Workspace) Unignored(ctx context.Context, path string) bool {
	ctx, cancel := context.WithTimeout(ctx, gitPatience)
	defer cancel()

	git := program.Git(w.Environ, filepath.Dir(path))
	_, err := git.Run(ctx, nil, "git", "-c", "core.fsmonitor=false", "check-ignore", "--quiet", "--", path)

	var exit *exec.ExitError

	return errors.As(err, &exit) && exit.ExitCode() == notIgnored
}

// Talosctl is the user's talosctl, with the talosconfig of the run.
func (w *Workspace) Talosctl() talosctl.Talosctl {
	return talosctl.Talosctl{Programs: w.programs(), Talosconfig: w.Settings.Talosconfig}
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
