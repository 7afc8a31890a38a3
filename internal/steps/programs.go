package steps

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
)

// programPatience is how long a program that was told to stop may go on holding its output open.
const programPatience = time.Second

// variable is a variable of the run's environment; of several the last counts, as everywhere.
func (r *Run) variable(name string) string {
	value := ""

	for _, pair := range r.Environ {
		if key, text, _ := strings.Cut(pair, "="); key == name {
			value = text
		}
	}

	return value
}

// findProgram looks for one of the user's programs on the run's PATH.
func (r *Run) findProgram(name string) (string, bool) {
	for _, folder := range filepath.SplitList(r.variable("PATH")) {
		if path, err := exec.LookPath(filepath.Join(folder, name)); err == nil {
			return path, true
		}
	}

	return "", false
}

// program runs one of the user's programs in the talos folder and gives what it printed. Its complaint becomes part of the error, scrubbed.
func (r *Run) program(ctx context.Context, step string, input []byte, name string, arguments ...string) ([]byte, error) {
	path, found := r.findProgram(name)
	if !found {
		return nil, &diagnosis.Problem{Step: step, Finding: diagnosis.Finding{
			ID: diagnosis.ProgramMissing, Severity: diagnosis.Failure, Exit: diagnosis.ExitBadInput,
			Cause: name + " is not on the PATH: it makes the cluster's secrets and machine configs",
			Next:  "install " + name + ", or put the machine configs into " + r.Settings.ClusterConfigDir,
		}}
	}

	var complaint bytes.Buffer

	command := exec.CommandContext(ctx, path, arguments...)
	command.Dir = r.Settings.TalosDir
	command.Env = r.programEnviron()
	command.Stdin = bytes.NewReader(input)
	command.Stderr = &complaint
	command.WaitDelay = programPatience

	output, err := outputOf(command)

	switch {
	case err == nil:
		return output, nil
	case ctx.Err() != nil:
		return nil, r.interruptedStep(ctx, step)
	default:
		return nil, &diagnosis.Problem{Step: step, Err: err, Finding: diagnosis.Finding{
			ID: diagnosis.ProgramFailed, Severity: diagnosis.Failure, Exit: diagnosis.ExitBadInput,
			Cause: fmt.Sprintf("%s %s failed: %s", name, arguments[0], complaintOf(complaint.String(), err)),
			Next:  "correct what it complains about, then run the same command again",
		}}
	}
}

// programEnviron is the run's environment with the paths that the settings give. An age key that is not there is left out:
// sops would insist on it instead of trying the user's other keys.
func (r *Run) programEnviron() []string {
	environ := slices.Clone(r.Environ)

	for _, pair := range r.Settings.Environ() {
		if name, path, _ := strings.Cut(pair, "="); name != "SOPS_AGE_KEY_FILE" || fileExists(path) {
			environ = append(environ, pair)
		}
	}

	return environ
}

// complaintOf is what a program wrote to its error stream, on one line and without secrets; if it wrote nothing, how it ended.
func complaintOf(text string, err error) string {
	if text = strings.Join(strings.Fields(report.Scrub(text)), " "); text != "" {
		return text
	}

	return err.Error()
}
