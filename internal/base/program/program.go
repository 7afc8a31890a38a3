// Package program runs the user's own programs (talhelper, sops) as the user would.
package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// patience is how long a program that was told to stop may go on holding its output open.
const patience = time.Second

// shellSignal is what shells add to a signal's number for the exit code of what it stopped.
const shellSignal = 128

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

	var output, complaint bytes.Buffer

	command := r.command(ctx, path, arguments)
	command.Stdin = bytes.NewReader(input)
	command.Stdout, command.Stderr = &output, &complaint

	if err := runBound(command); err != nil {
		awaitOwnSignal(ctx, err)

		return nil, &Failure{Name: name, Verb: arguments[0], Complaint: complaint.String(), Err: err}
	}

	return output.Bytes(), nil
}

// Follow runs a program, and tells each line of both its streams as it comes. A context that ends asks the program to
// stop, as Ctrl-C does. Errors are those of Run.
func (r Runner) Follow(ctx context.Context, told func(line string), name string, arguments ...string) error {
	path, found := r.Find(name)
	if !found {
		return fmt.Errorf("run %s: %w", name, ErrMissing)
	}

	var complaint bytes.Buffer

	var turn sync.Mutex

	inTurn := func(line string) {
		turn.Lock()
		defer turn.Unlock()

		told(line)
	}

	output, errs := &lineWriter{told: inTurn}, &lineWriter{told: inTurn}
	command := r.command(ctx, path, arguments)
	command.Stdout, command.Stderr = output, io.MultiWriter(errs, &complaint)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }

	err := runBound(command)
	output.end()
	errs.end()

	if err != nil {
		awaitOwnSignal(ctx, err)

		return &Failure{Name: name, Verb: arguments[0], Complaint: complaint.String(), Err: err}
	}

	return nil
}

// awaitOwnSignal waits until the context has ended too, if a signal stopped the program: Ctrl-C goes to both, and the
// program may have died of it before this process has seen its own. Nobody else's signal ends the context.
func awaitOwnSignal(ctx context.Context, err error) {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return
	}

	status, _ := exit.Sys().(syscall.WaitStatus)
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		if status.Signal() != signal && exit.ExitCode() != shellSignal+int(signal) {
			continue
		}

		select {
		case <-ctx.Done():
		case <-time.After(patience):
		}
	}
}

func (r Runner) command(ctx context.Context, path string, arguments []string) *exec.Cmd {
	command := exec.CommandContext(ctx, path, arguments...)
	command.Dir = r.Dir
	command.Env = r.Environ
	command.WaitDelay = patience

	return command
}

// lineWriter tells lines, without what ends them.
type lineWriter struct {
	told func(line string)
	rest []byte
}

// Write implements io.Writer.
func (w *lineWriter) Write(data []byte) (int, error) {
	w.rest = append(w.rest, data...)

	for {
		line, after, whole := bytes.Cut(w.rest, []byte("\n"))
		if !whole {
			return len(data), nil
		}

		w.told(string(line))
		w.rest = after
	}
}

// end tells a last line that nothing ended.
func (w *lineWriter) end() {
	if len(w.rest) > 0 {
		w.told(string(w.rest))
	}
}
