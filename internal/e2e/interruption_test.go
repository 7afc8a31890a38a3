//go:build unix

package e2e_test

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/e2e/program"
	"github.com/talos-mage/talos-mage/internal/emulator"
)

// A run that is stopped says how to go on, and the same command then does the rest.
func TestAStoppedBringUpGoesOn(t *testing.T) {
	t.Parallel()

	tests := map[string]struct {
		args   []string
		signal syscall.Signal
		// group is set for a signal that a terminal sends: everything that runs in it gets it.
		group bool
		code  int
	}{
		"SIGTERM to the program": {[]string{launcher(t), "talos"}, syscall.SIGTERM, false, 143},
		"SIGINT to the program":  {[]string{launcher(t), "talos"}, syscall.SIGINT, false, 130},
	}

	if task := lookForTask(t); task != "" {
		tests["Ctrl-C in Task's terminal"] = struct {
			args   []string
			signal syscall.Signal
			group  bool
			code   int
		}{[]string{task, "-x", "bootstrap:talos"}, syscall.SIGINT, true, 130}
	}

	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			root := userRepository(t)
			c := newCluster(t, filepath.Join(root, "talos"), 3, 1)
			typed := command{dir: root, env: c.environment("TALOS_MAGE=" + launcher(t)), args: tt.args}

			// The first control plane has its config: the middle of apply.
			got := interrupt(t, typed, tt.signal, tt.group, func(ctx context.Context) error {
				return c.Nodes[0].WaitFor(ctx, func(node *emulator.Node) bool { return len(node.Config()) > 0 })
			})
			require.Equal(t, tt.code, got.code, got.stderr)
			require.Contains(t, got.stderr, "mage talos goes on from here")
			require.NotContains(t, strings.Join(c.changes(), "\n"), "Bootstrap")

			got = run(t, typed)
			require.Equal(t, 0, got.code, got.stdout+got.stderr)
			require.Equal(t, c.eachOnce(), c.changes())
		})
	}
}

// interrupt starts a command, waits for the moment, sends the signal and gives the command's outcome.
func interrupt(t *testing.T, c command, signal syscall.Signal, group bool, moment func(context.Context) error) outcome {
	t.Helper()

	var stdout, stderr strings.Builder

	process := exec.CommandContext(t.Context(), c.args[0], c.args[1:]...)
	process.Dir, process.Env = c.dir, program.Environment(c.env...)
	process.Stdout, process.Stderr = &stdout, &stderr
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}

	require.NoError(t, process.Start())
	require.NoError(t, moment(t.Context()))

	target := process.Process.Pid
	if group {
		target = -target
	}

	require.NoError(t, syscall.Kill(target, signal))

	err := process.Wait()

	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}

	return outcome{process.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}
