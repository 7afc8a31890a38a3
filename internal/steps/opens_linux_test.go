package steps_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/steps/workspace"
)

// opens counts how often the kernel opened each file of some folders.
type opens struct {
	inotify int
	folders map[int32]string
}

// watch begins to count, for the folders below root.
func watch(t *testing.T, root string) *opens {
	t.Helper()

	inotify, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Close(inotify)) })

	counted := &opens{inotify: inotify, folders: map[int32]string{}}

	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}

		watched, err := unix.InotifyAddWatch(inotify, path, unix.IN_OPEN)
		counted.folders[int32(watched)], _ = filepath.Rel(root, path) //nolint:gosec // the kernel counts from 1

		return err
	}))

	return counted
}

// files are the files that were opened, by their paths below the root, with how often.
func (o *opens) files(t *testing.T) map[string]int {
	t.Helper()

	found := map[string]int{}
	buffer := make([]byte, 64<<10)

	for {
		n, err := unix.Read(o.inotify, buffer)
		if errors.Is(err, unix.EAGAIN) {
			return found
		}

		require.NoError(t, err)

		for events := buffer[:n]; len(events) > 0; {
			folder := int32(binary.NativeEndian.Uint32(events)) //nolint:gosec // what the kernel gave
			mask, length := binary.NativeEndian.Uint32(events[4:]), binary.NativeEndian.Uint32(events[12:])
			name := string(bytes.TrimRight(events[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+length], "\x00"))
			events = events[unix.SizeofInotifyEvent+length:]

			if mask&unix.IN_ISDIR == 0 {
				found[filepath.Join(o.folders[folder], name)]++
			}
		}
	}
}

// declaring are the files that a cluster is declared in, below TALOS_DIR.
var declaring = []string{
	"clusterconfig/lab-cp1.yaml", "clusterconfig/lab-worker1.yaml", "clusterconfig/talosconfig", "patches/all.yaml",
	"talconfig.yaml", "talenv.yaml", "talsecret.yaml",
}

// ownFiles has the workshop's folder hold all kinds of files that a cluster is declared in.
func ownFiles(t *testing.T, w *workshop) {
	t.Helper()

	withoutTalhelper(t, w)
	w.changeTalconfig(t, "nodes:", "patches:\n  - \"@patches/all.yaml\"\nnodes:")
	require.NoError(t, os.MkdirAll(filepath.Join(w.Dir, "patches"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(w.Dir, "patches", "all.yaml"),
		[]byte("machine:\n  sysctls:\n    vm.swappiness: \"${SWAPPINESS}\"\n"), 0o600))

	variables := filepath.Join(w.Dir, "talenv.yaml")
	require.NoError(t, os.WriteFile(variables, []byte(readFile(t, variables)+"SWAPPINESS: 10\n"), 0o600))
	require.NoError(t, os.Remove(filepath.Join(w.folder, ".sops.yaml")))
	w.session(t).succeeds(t, steps.Secrets{}, steps.Configs{Replace: true})
}

func TestEachFileOfAClusterIsOpenedOnceARun(t *testing.T) {
	t.Parallel()

	w := newWorkshop(t, 1, 1)
	w.untilMaintenance(t)
	ownFiles(t, w)

	runs := []struct {
		name string
		run  func(*testing.T)
		// again are the files that are opened once more, with why.
		again map[string]string
	}{
		{"audit", func(t *testing.T) {
			environ := []string{"ROOT_DIR=" + w.folder, "TALOS_DIR=" + w.Dir, "KUBECONFIG=" + filepath.Join(w.folder, "none")}
			loaded, err := settings.Load(environ, nil, w.folder)
			require.NoError(t, err)

			result := table.Run(t.Context(), check.Read(workspace.AuditOptions(t.Context(), loaded, environ)))
			require.Greater(t, len(result.Passed), 100)
		}, nil},
		{"preflight", func(t *testing.T) { w.session(t).do(t, steps.Preflight{}) }, nil},
		{"recipe", func(t *testing.T) {
			s := w.session(t)
			s.succeeds(t, s.recipe()...)
		}, map[string]string{"clusterconfig/talosconfig": "it is changed minutes later, as it is then"}},
	}

	for _, run := range runs {
		counted := watch(t, w.Dir)
		run.run(t)

		opened := counted.files(t)

		for _, path := range declaring {
			times := 1
			if run.again[path] != "" {
				times = 2
			}

			require.Equal(t, times, opened[path], "%s opens %s", run.name, path)
		}
	}
}
