// Package program runs the user's own programs (talhelper, sops) as the user would.
package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// patience is how long a program that was told to stop may go on holding its output open.
const patience = time.Second

// ErrMissing is the error of a program that is not on the PATH.
var ErrMissing = errors.New("not on the PATH")

// Runner runs programs in one environment and folder.
type Runner struct {
	// Environ is the programs' environment, as "NAME=value"; its PATH is where they are looked for.
	Environ []string
	// Dir is their working directory.
	Dir string
}

// Git runs git about a folder: what points it at another repository, as in a hook, is left out.
func Git(environ []string, folder string) Runner {
	environ = slices.DeleteFunc(slices.Clone(environ), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")

		return slices.Contains([]string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"}, name)
	})

	return Runner{Environ: environ, Dir: folder}
}

// Failure is a program that ended with an error.
type Failure struct {
	Name string
	// Verb is its first argument, which says what it was to do.
	Verb string
	// Complaint is what it wrote to its error stream. It may hold secrets.
	Complaint string
	// Err is how it ended.
	Err error
}

// Error does not quote the complaint, which may hold secrets.
func (f *Failure) Error() string { return fmt.Sprintf("%s %s: %v", f.Name, f.Verb, f.Err) }

// Unwrap gives how it ended.
func (f *Failure) Unwrap() error { return f.Err }

// Variable is the value of a variable of the environment; of several the last counts, as everywhere. Empty if it is not
// set.
func (r Runner) Variable(name string) string {
	value := ""

	for _, pair := range r.Environ {
		if key, text, _ := strings.Cut(pair, "="); key == name {
			value = text
		}
	}

	return value
}

// Find looks for a program on the PATH.
func (r Runner) Find(name string) (path string, found bool) {
	for _, folder := range filepath.SplitList(r.Variable("PATH")) {
		if path, err := exec.LookPath(filepath.Join(folder, name)); err == nil {
			return path, true
		}
	}

	return "", false
}

// Run runs a program with an input and gives what it printed. The error is ErrMissing, wrapped; or a *Failure, also
// when the context ended it.
func (r Runner) Run(ctx context.Context, input []byte, name string, arguments ...string) ([]byte, error) {
	path, found := r.Find(name)
	if !found {
		return nil, fmt.Errorf("run %s: %w", name, ErrMissing)
	}

	var complaint bytes.Buffer

	command := exec.CommandContext(ctx, path, arguments...)
	command.Dir = r.Dir
	command.Env = r.Environ
	command.Stdin = bytes.NewReader(input)
	command.Stderr = &complaint
	command.WaitDelay = patience

	output, err := outputOf(command)
	if err != nil {
		return nil, &Failure{Name: name, Verb: arguments[0], Complaint: complaint.String(), Err: err}
	}

	return output, nil
}
