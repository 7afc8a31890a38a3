package states_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// What is no file of a sane size is refused at once, whatever reads it.
func TestPipesDevicesAndHugeFilesAreNoInput(t *testing.T) {
	t.Parallel()

	w := newWorld(t, labcluster.Options{ControlPlanes: 1}, nil)

	inputs := map[string]struct {
		path     string
		commands []string
	}{
		"talconfig":      {w.talconfig(), []string{"audit", "status", "talos"}},
		"talenv":         {filepath.Join(w.Dir, "talenv.yaml"), []string{"audit", "status"}},
		"machine config": {w.ConfigFile("cp1"), []string{"audit", "preflight"}},
		"talosconfig":    {w.Talosconfig(), []string{"audit", "status", "verifyNodes"}},
		"kubeconfig":     {w.kubeconfig(), []string{"kubeconfig", "talos"}},
		"age key":        {filepath.Join(w.root, "age.key"), []string{"audit", "config:generate"}},
		"nodes file":     {filepath.Join(w.root, "nodes.yaml"), []string{"verifyNodes"}},
	}

	for kind, made := range map[string]struct {
		make func(path string) error
		says string
	}{
		"a pipe":   {func(path string) error { return syscall.Mkfifo(path, 0o600) }, "it is a pipe, not a file"},
		"a device": {func(path string) error { return os.Symlink("/dev/zero", path) }, "it is a device, not a file"},
		"huge": {func(path string) error { return os.WriteFile(path, make([]byte, 10<<20), 0o600) },
			"it has 10.0 MB, and at most 4 MB are read"},
	} {
		for name, input := range inputs {
			_, missing := os.Stat(input.path)
			if missing == nil {
				hide(t, input.path)
			}

			require.NoError(t, made.make(input.path))

			for _, command := range input.commands {
				got := w.ends(t, 2, nil, command)
				require.Contains(t, got.Stdout+got.Stderr, made.says, "%s as %s", kind, name)
			}

			require.NoError(t, os.Remove(input.path))

			if missing == nil {
				unhide(t, input.path)
			}
		}
	}

	require.Empty(t, w.changes())
}

func TestAPipeAmongOpenTofuFilesIsNoInput(t *testing.T) {
	t.Parallel()

	w := newWorld(t, labcluster.Options{ControlPlanes: 1}, nil)
	folder := filepath.Join(w.root, "tofu")
	require.NoError(t, os.Mkdir(folder, 0o700))
	require.NoError(t, syscall.Mkfifo(filepath.Join(folder, "vm.tf"), 0o600))
	// What OpenTofu keeps beside its files may be as large as it likes.
	require.NoError(t, os.WriteFile(filepath.Join(folder, "terraform.tfstate"), make([]byte, 10<<20), 0o600))

	got := w.ends(t, 2, []string{"TOFU_DIR=" + folder, "AUDIT_PROFILE=interop"}, "audit")
	require.Contains(t, got.Stdout+got.Stderr, "vm.tf: it is a pipe, not a file")
}

// Ctrl-C is heard even where a reader of the report keeps the program waiting for ever.
func TestCtrlCIsHeardInTheMiddleOfAWrite(t *testing.T) {
	t.Parallel()

	w := newWorld(t, labcluster.Options{ControlPlanes: 1}, nil)
	path := filepath.Join(w.root, "report")

	got := w.ends(t, 0, []string{"REPORT_FILE=" + path}, "explain", "TM001")
	require.Empty(t, got.Stderr, "what needs no report opens none")

	require.NoError(t, syscall.Mkfifo(path, 0o600))
	got = w.ends(t, 2, []string{"REPORT_FILE=" + path}, "preflight")
	require.Contains(t, got.Stderr, "can't be written", "nobody reads from it")

	full, err := syscall.Open(path, syscall.O_RDWR|syscall.O_NONBLOCK, 0)
	require.NoError(t, err)
	t.Cleanup(func() { syscall.Close(full) })

	for err == nil {
		_, err = syscall.Write(full, []byte(strings.Repeat("\n", 512)))
	}

	require.True(t, errors.Is(err, syscall.EAGAIN), "%v", err)

	process := w.start(t, []string{"REPORT_FILE=" + path}, "preflight")

	time.Sleep(2 * time.Second) // whenever it comes, it is heard
	require.NoError(t, process.Signal(os.Interrupt))
	require.Equal(t, 130, ended(t, process).Code)
}

// What a setting holds is shown, and not obeyed by the terminal.
func TestEscapeSequencesAreShown(t *testing.T) {
	t.Parallel()

	w := newWorld(t, labcluster.Options{ControlPlanes: 1}, nil)

	for _, setting := range []string{"NODE=cp\x1b[2J", "TALOS_DIR=/tmp/\x1b]0;title\a", "TALOSCONFIG=/tmp/\x9b2J",
		"KUBECONFIG=/no\x1b[31m/where", "LOG_LEVEL=\x1b[1m", "NODE_ADDRESSES=cp1=\x1b[2J", "REPORT_FILE=/no\x1b[2J/where"} {
		for _, command := range []string{"audit", "status", "preflight", "kubeconfig"} {
			got := w.run(t, append([]string{"NO_COLOR="}, setting, "API_TIMEOUT=1s"), command)
			require.NotContains(t, got.Stdout+got.Stderr, "\x1b", "%q %s", setting, command)
			require.NotContains(t, got.Stdout+got.Stderr, "\x9b", "%q %s", setting, command)
			require.NotContains(t, got.Stdout+got.Stderr, "\a", "%q %s", setting, command)
		}
	}
}
