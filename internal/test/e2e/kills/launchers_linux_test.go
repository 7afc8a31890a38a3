package kills_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// newHeldWorld is a cluster whose only machine does not take its config before the test says so, which keeps the recipe
// in its apply step.
func newHeldWorld(t *testing.T) *world {
	t.Helper()

	w := newWorld(t, shape{controlPlanes: 1, rendered: true})
	w.Nodes[0].Refuse(true)

	return w
}

// inApply waits until a process is in the apply step.
func inApply(t *testing.T, p *process) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(p.stderr.String(), "applySequential started") },
		labcluster.Deadline, 5*time.Millisecond)
}

// The first thing that a process can do may come after its mage was killed.
func TestAProgramWhoseMageIsDeadAlreadyChangesNothing(t *testing.T) {
	t.Parallel()

	w := newWorld(t, shape{controlPlanes: 1, rendered: true})
	p := start(t, w.root, w.launchedEnv(), func(string) {}, "/bin/sh", "-c", `"$0" talos &`, launcher.Program)
	p.wait(t)

	require.Contains(t, p.stderr.String(), "died")
	require.Contains(t, p.stderr.String(), "mage talos continues from here")
	require.Empty(t, w.settled(t))
	w.requireFiles(t, noLeftovers)
}

// "go tool mage" is a process more: go starts mage, which starts the program.
func TestTheProgramEndsWithTheGoAboveItsMage(t *testing.T) {
	t.Parallel()

	w := newHeldWorld(t)
	repository, err := filepath.Abs(filepath.Join("..", "..", "..", ".."))
	require.NoError(t, err)

	typed := launcher.Command(w.root, "talos")
	environ := append(w.launchedEnv(), "GOTMPDIR="+t.TempDir())
	p := start(t, repository, environ, func(string) {}, append([]string{"go", "tool", "mage"}, typed[1:]...)...)
	inApply(t, p)

	changes := w.changes()
	require.NoError(t, p.command.Process.Signal(syscall.SIGKILL))
	p.wait(t)
	w.Nodes[0].Refuse(false)

	require.Contains(t, p.stderr.String(), "mage talos continues from here")
	require.Equal(t, changes, w.settled(t))
	w.converges(t, false)
}

// Mage swallows a SIGINT that it alone gets, as from a kill by its number: nothing is stopped, and nobody is misled.
func TestASIGINTToMageAloneStopsNothing(t *testing.T) {
	t.Parallel()

	w := newHeldWorld(t)
	p := w.start(t, true, func(string) {})
	inApply(t, p)

	p.send(way{itsLauncher, syscall.SIGINT})
	w.Nodes[0].Refuse(false)
	p.wait(t)

	require.Zero(t, p.code(), p.output())
	w.requireHealthy(t)
}

// A second signal ends a program that is being stopped at once, which is as good as any other kill.
func TestTwoSignalsAreOneKill(t *testing.T) {
	t.Parallel()

	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()

			w := newHeldWorld(t)
			p := w.start(t, false, func(string) {})
			inApply(t, p)

			p.send(way{aloneTool, signal})
			p.send(way{aloneTool, signal})
			p.wait(t)
			w.Nodes[0].Refuse(false)

			require.NotZero(t, p.code())
			w.requireFiles(t, newLeftovers)
			w.converges(t, false)
		})
	}
}

// The programs that render secrets and configs end with the run that started them: nobody waits for what they write.
func TestTheUsersProgramsEndWithAKilledRun(t *testing.T) {
	t.Parallel()

	for name, victim := range map[string]victim{"the program is killed": aloneTool, "mage is killed": itsLauncher} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := newWorld(t, shape{controlPlanes: 1})
			began := filepath.Join(t.TempDir(), "began")
			talhelper := filepath.Join(filepath.Dir(w.templates), "talhelper")

			whole, err := os.ReadFile(talhelper)
			require.NoError(t, err)
			script(t, talhelper, "touch "+began+"; exec sleep 600")

			way := way{victim, syscall.SIGKILL}
			p := w.start(t, way.launched(), func(string) {})
			require.Eventually(t, func() bool { return fileExists(began) }, labcluster.Deadline, 5*time.Millisecond)
			p.send(way)
			p.wait(t)
			w.requireFiles(t, newLeftovers)

			require.NoError(t, os.WriteFile(talhelper, whole, 0o755))
			w.converges(t, false)
		})
	}
}

func fileExists(path string) bool {
	_, err := os.Stat(path)

	return err == nil
}
