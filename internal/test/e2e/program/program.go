// Package program compiles talos-mage the way its users do, and runs it as a process of its own, for tests of what a
// person gets to see.
package program

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"

	"github.com/talos-mage/talos-mage/internal/cli/settings"
)

// Compile makes the program of the repository at root and returns its path, in a folder that the caller removes.
func Compile(root string) (path string, err error) {
	return compile(root, "talos-mage", func(target string) []string {
		return []string{"go", "build", "-o", target, "./cmd/talos-mage"}
	})
}

// compile runs a command that makes a program, and copies it into a folder of its own. All test processes compile at
// the same place, one after the other, so that the first of them does the work.
func compile(root, name string, command func(target string) []string) (path string, err error) {
	root, err = filepath.Abs(root)
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}

	place := filepath.Join(root, compiled)
	if err := os.MkdirAll(place, 0o755); err != nil { //nolint:gosec // programs are for everybody
		return "", fmt.Errorf("make folder to compile in: %w", err)
	}

	turn := flock.New(filepath.Join(place, "lock"))
	if err := turn.Lock(); err != nil {
		return "", fmt.Errorf("wait for another compilation: %w", err)
	}
	defer turn.Unlock() //nolint:errcheck // it ends with the process

	target := filepath.Join(place, name)
	words := command(target)
	compiling := exec.Command(words[0], words[1:]...) //nolint:gosec // words of this package
	compiling.Dir, compiling.Env = root, Environment()

	if output, err := compiling.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile the program: %w\n%s", err, output)
	}

	folder, err := os.MkdirTemp("", "talos-mage-program-")
	if err != nil {
		return "", fmt.Errorf("make folder for the program: %w", err)
	}

	path = filepath.Join(folder, "talos-mage")

	return path, copyFile(target, path)
}

// compiled is where programs are compiled, from the repository's root: it has to lie in the module, and a name that
// starts with an underscore keeps it out of ./... .
var compiled = filepath.Join("bin", "_program")

// copyFile keeps a file as it is now, whatever is made in its place.
func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("read %s: %w", from, err)
	}

	if err := os.WriteFile(to, data, 0o755); err != nil { //nolint:gosec // programs are for everybody
		return fmt.Errorf("copy %s: %w", from, err)
	}

	return nil
}

// Environment is this process's environment without the variables that talos-mage, its Taskfiles and Mage read, and
// then more.
func Environment(more ...string) []string {
	ours := map[string]bool{"TALOS_MAGE": true, "NODES_FILE": true}
	for _, knob := range settings.Table() {
		ours[knob.Name] = true
	}

	clean := []string{"NO_COLOR=1"}

	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if !ours[name] && !strings.HasPrefix(name, "MAGEFILE_") && !strings.HasPrefix(name, "TASK_") {
			clean = append(clean, entry)
		}
	}

	return append(clean, more...)
}

// Outcome is what a process left behind for whoever started it.
type Outcome struct {
	Code           int
	Stdout, Stderr string
}

// Process is a running one.
type Process struct {
	command        *exec.Cmd
	stdout, stderr bytes.Buffer
}

// Start starts a command line in a folder; env is its whole environment.
func Start(dir string, env []string, args ...string) (*Process, error) {
	process := &Process{command: exec.Command(args[0], args[1:]...)} //nolint:gosec // tests say what to run
	process.command.Dir, process.command.Env = dir, env
	process.command.Stdout, process.command.Stderr = &process.stdout, &process.stderr

	if err := process.command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", strings.Join(args, " "), err)
	}

	return process, nil
}

// PID is the process's id.
func (p *Process) PID() int { return p.command.Process.Pid }

// Signal sends the process a signal.
func (p *Process) Signal(signal os.Signal) error { return p.command.Process.Signal(signal) }

// Wait waits for the process's end. A code other than 0 is an outcome, not an error.
func (p *Process) Wait() (Outcome, error) {
	err := p.command.Wait()

	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return Outcome{}, fmt.Errorf("wait for %s: %w", p.command.Path, err)
	}

	return Outcome{p.command.ProcessState.ExitCode(), p.stdout.String(), p.stderr.String()}, nil
}
