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
	root, err = filepath.Abs(root)
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}

	// All test processes compile in one folder, one after the other, so that the first of them does the work. It has to
	// lie in the module; a name that starts with an underscore keeps it out of ./... .
	sources := filepath.Join(root, "bin", "_program")
	if err := os.MkdirAll(sources, 0o755); err != nil { //nolint:gosec // programs are for everybody
		return "", fmt.Errorf("make folder for the magefiles: %w", err)
	}

	turn := flock.New(filepath.Join(sources, "lock"))
	if err := turn.Lock(); err != nil {
		return "", fmt.Errorf("wait for another compilation: %w", err)
	}
	defer turn.Unlock() //nolint:errcheck // it ends with the process

	compiled := filepath.Join(sources, "talos-mage")
	if err := compile(root, sources, compiled); err != nil {
		return "", err
	}

	folder, err := os.MkdirTemp("", "talos-mage-program-")
	if err != nil {
		return "", fmt.Errorf("make folder for the program: %w", err)
	}

	path = filepath.Join(folder, "talos-mage")

	return path, copyProgram(compiled, path)
}

// compile makes the program in target, unless what is there is up to date.
func compile(root, sources, target string) error {
	magefile, err := os.ReadFile(filepath.Join(root, "magefiles", "magefile.go"))
	if err != nil {
		return fmt.Errorf("read magefile: %w", err)
	}

	if err := os.WriteFile(filepath.Join(sources, "magefile.go"), magefile, 0o600); err != nil {
		return fmt.Errorf("copy magefile: %w", err)
	}

	compiling := exec.Command("go", "tool", "mage", "-d", sources, "-compile", target) //nolint:gosec // its arguments are made above
	compiling.Dir, compiling.Env = root, Environment()

	if output, err := compiling.CombinedOutput(); err != nil {
		return fmt.Errorf("compile the program: %w\n%s", err, output)
	}

	return nil
}

// copyProgram keeps a program as it is now, whatever is compiled in its place.
func copyProgram(from, to string) error {
	program, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("read the program: %w", err)
	}

	if err := os.WriteFile(to, program, 0o755); err != nil { //nolint:gosec // programs are for everybody
		return fmt.Errorf("copy the program: %w", err)
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
