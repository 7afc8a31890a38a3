package terminal_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/test/e2e/program"
	"github.com/talos-mage/talos-mage/internal/test/tmux"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

// talosMage is the compiled program.
var talosMage = sync.OnceValues(func() (string, error) {
	return program.Compile(filepath.Join("..", "..", "..", ".."))
})

func compiled(t *testing.T) string {
	t.Helper()

	path, err := talosMage()
	require.NoError(t, err)

	return path
}

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := talosMage(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}

	os.Exit(code) //nolint:forbidigo // what tests end with
}

// The second half of the demo finds nothing to do, and fits on the screen that every terminal has; also in Task's
// output, which is the terminal itself.
func TestTheDemosSecondHalfFitsOnAScreen(t *testing.T) {
	t.Parallel()

	for name, command := range map[string]func(t *testing.T) string{
		"alone": func(t *testing.T) string { return compiled(t) + " demo" },
		"in Task's output": func(t *testing.T) string {
			taskfile := filepath.Join(t.TempDir(), "Taskfile.yaml")
			require.NoError(t, os.WriteFile(taskfile,
				[]byte("version: '3'\ntasks:\n  demo:\n    silent: true\n    cmd: "+compiled(t)+" demo\n"), 0o600))

			return tool.Find(t, "task") + " -t " + taskfile + " demo"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			terminal := tmux.Start(t, 80, 24, command(t))
			second := terminal.Shows("end ")
			removeFiles(t, terminal.All())
			require.Contains(t, second, "end 0", terminal.All())
			require.Contains(t, second, "The same command again, on the same nodes:")
			require.Contains(t, second, "· applySequential  6 nodes already have their config (")
			require.Contains(t, second, "\nnothing to do\n")

			all := terminal.All()
			require.Contains(t, all, "✓ applySequential  6 nodes applied: config sent (")
			require.NotContains(t, all, "INFO", "log lines say what is shown already")
			require.NotContains(t, all, " done  ", "live lines are left behind")
		})
	}
}

// removeFiles removes those that a demo says it has made.
func removeFiles(t *testing.T, told string) {
	t.Helper()

	made := regexp.MustCompile(`files in (\S+)/talos\n`).FindStringSubmatch(told)
	require.NotNil(t, made, told)
	require.NoError(t, os.RemoveAll(made[1]))
}

// What is listed and explained keeps its words whole at the width that every terminal has, and stands behind its name.
func TestListsAndExplanationsWrapAtWords(t *testing.T) {
	t.Parallel()

	for words, behind := range map[string]string{"-l": " {21}", "-h": " {2,21}", "talos -h": "", "explain TM041": " {8}"} {
		t.Run(words, func(t *testing.T) {
			t.Parallel()

			piped, err := exec.CommandContext(t.Context(), compiled(t), strings.Fields(words)...).Output() //nolint:gosec // our own
			require.NoError(t, err)

			terminal := tmux.Start(t, 80, 200, compiled(t)+" "+words)
			shown, _, _ := strings.Cut(terminal.Shows("end 0"), "end 0")
			require.Equal(t, strings.Fields(string(piped)), strings.Fields(shown))

			lines := strings.Count(strings.TrimSpace(string(piped)), "\n")
			require.Greater(t, strings.Count(shown, "\n"), lines, "nothing is wrapped")
			require.Regexp(t, `(?m)^`+behind+`\S`, shown)
		})
	}
}

const unreachable = `clusterName: lab
endpoint: https://127.203.77.11:6443
talosVersion: v1.13.9
kubernetesVersion: v1.36.3
nodes:
  - {hostname: cp1, ipAddress: 127.203.77.11, controlPlane: true, installDisk: /dev/vda}
  - {hostname: worker1, ipAddress: 127.203.77.21, installDisk: /dev/vda}
`

// What a run failed for stands out at its end, with the command to type; the last line repeats none of it.
func TestAFailureStandsOut(t *testing.T) {
	t.Parallel()

	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "talos"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(root, "talos", "talconfig.yaml"), []byte(unreachable), 0o600))

	terminal := tmux.Start(t, 80, 60, "cd "+root+" && "+compiled(t)+" preflight", "NO_COLOR=1",
		"NODE_REACHABILITY_RETRIES=1", "ROOT_DIR="+root)
	shown := terminal.Shows("end 3")
	_, block, _ := strings.Cut(shown, "━━ FAILED ━")
	require.Regexp(t, `(?m)^  step      preflight$`, block, shown)
	require.Regexp(t, `(?m)^  cause     none of 2 nodes answers \[TM093\]$`, block)
	require.Regexp(t, `(?m)^  next      \S`, block)
	require.Contains(t, block, "\nError: preflight failed, as told above\n")
}
