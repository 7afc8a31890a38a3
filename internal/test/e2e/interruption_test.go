//go:build unix

package e2e_test

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/test/e2e/program"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

// A signal reaches the program through Task and the scripts; it says how to go on, and the same command then does the
// rest.
func TestWhatIsStoppedGoesOn(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		args   []string
		signal syscall.Signal
		// group is set for a signal that a terminal sends: everything that runs in it gets it.
		group bool
		code  int
		next  string
	}{
		"Ctrl-C in Task's terminal": {
			[]string{"task", "-x", "bootstrap:talos"}, syscall.SIGINT, true, 130,
			"task bootstrap:talos continues from here",
		},
		"SIGTERM to a script": {
			[]string{"bash", "scripts/bootstrap-talos-apply.sh", "talos/clusterconfig"}, syscall.SIGTERM, false, 143,
			"scripts/lib/talos-mage.sh applySequential continues from here",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			args := slices.Clone(tt.args)
			args[0] = tool.Find(t, args[0])

			root := userRepository(t)
			c := newCluster(t, filepath.Join(root, "talos"), 3, 1)
			typed := command{dir: root, env: c.environment("TALOS_MAGE=" + launcher(t)), args: args}

			// A machine that still boots would be served at the end, and might have to wait for the next one.
			for _, node := range c.Nodes {
				require.NoError(t, node.WaitFor(t.Context(),
					func(node *emulator.Node) bool { return node.Stage() == "maintenance" }))
			}

			// The second control plane keeps its apply waiting.
			c.Nodes[1].Set(func(f *emulator.Faults) { f.MetaNotReady = true })

			// The first control plane has its config: the middle of apply.
			got := interrupt(t, typed, tt.signal, tt.group, func(ctx context.Context) error {
				return c.Nodes[0].WaitFor(ctx, func(node *emulator.Node) bool { return len(node.Config()) > 0 })
			})
			require.Equal(t, tt.code, got.code, got.stderr)
			require.Contains(t, got.stderr, tt.next)

			c.Nodes[1].Set(func(f *emulator.Faults) { f.MetaNotReady = false })

			got = run(t, typed)
			require.Equal(t, 0, got.code, got.stdout+got.stderr)

			for _, node := range c.Nodes {
				require.Equal(t, 1, strings.Count(strings.Join(c.changes(), "\n"), node.Name()+" ApplyConfiguration"), node.Name())
			}
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
