package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/test/e2e/program"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

// outcome is what a command left behind for whoever called it.
type outcome struct {
	code           int
	stdout, stderr string
}

// command is a command line, with where and in which environment it runs. The environment is that of the test process
// without any of talos-mage's settings, and then env.
type command struct {
	dir  string
	env  []string
	args []string
}

// run runs the command to its end and returns its exit code, whatever it is.
func run(t *testing.T, c command) outcome {
	t.Helper()

	var stdout, stderr bytes.Buffer

	process := exec.CommandContext(t.Context(), c.args[0], c.args[1:]...)
	process.Dir, process.Env = c.dir, program.Environment(c.env...)
	process.Stdout, process.Stderr = &stdout, &stderr

	// The PATH of the command finds its program, as it does in a shell.
	if path, ok := lookUp(c.args[0], process.Env); ok {
		process.Path, process.Err = path, nil
	}

	err := process.Run()

	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err, "starting %s", strings.Join(c.args, " "))
	}

	require.NotErrorIs(t, t.Context().Err(), context.DeadlineExceeded)

	return outcome{process.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// lookUp finds a bare program name on the last PATH of the environment.
func lookUp(name string, environ []string) (string, bool) {
	if strings.ContainsRune(name, filepath.Separator) {
		return "", false
	}

	path := ""

	for _, entry := range environ {
		if value, ok := strings.CutPrefix(entry, "PATH="); ok {
			path = value
		}
	}

	for _, dir := range filepath.SplitList(path) {
		candidate := filepath.Join(dir, name)
		if info, err := os.Stat(candidate); err == nil && info.Mode()&0o111 != 0 && !info.IsDir() {
			return candidate, true
		}
	}

	return "", false
}

// repository is the root of this repository.
func repository(t *testing.T) string {
	t.Helper()

	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	require.NoError(t, err)

	return root
}

// userRepository makes a repository laid out as the users' are, with our Taskfiles and scripts copied in and no Go, and
// returns its root.
func userRepository(t *testing.T) string {
	t.Helper()

	root := t.TempDir()
	ours := repository(t)
	require.NoError(t, os.CopyFS(root, os.DirFS(filepath.Join(ours, "testdata", "userrepo"))))

	for _, dir := range []string{".taskfiles", "scripts"} {
		require.NoError(t, os.CopyFS(filepath.Join(root, dir), os.DirFS(filepath.Join(ours, dir))))
	}

	return root
}

// script writes a shell script that can be run, and returns its path.
func script(t *testing.T, path, text string) string {
	t.Helper()

	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, tool.WriteProgram(path, []byte("#!/usr/bin/env bash\n"+text)))

	return path
}

// write writes a text file, and the folders above it.
func write(t *testing.T, path, text string) {
	t.Helper()

	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
}
