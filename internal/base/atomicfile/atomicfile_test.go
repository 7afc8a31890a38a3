package atomicfile_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/atomicfile"
	"github.com/talos-mage/talos-mage/internal/base/atomicfile/baddisk"
)

var noon = time.Date(2026, 1, 4, 12, 0, 0, 0, time.UTC)

func TestWriteFileReplacesContentAndMode(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		name     string
		existing []byte
	}{
		{name: "new file"},
		{name: "existing file that others may read", existing: []byte("old")},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			path := filepath.Join(t.TempDir(), "config")

			if test.existing != nil {
				require.NoError(t, os.WriteFile(path, test.existing, 0o644))
			}

			require.NoError(t, atomicfile.WriteFile(path, []byte("new"), 0o600))

			requireContent(t, path, "new")
			requireMode(t, path, 0o600)
			requireOnly(t, filepath.Dir(path), "config")
		})
	}
}

func TestWriteFileFollowsSymlinks(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		name   string
		exists bool
	}{
		{name: "to an existing file", exists: true},
		{name: "to a file that does not exist yet"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			dir := t.TempDir()
			target := filepath.Join(dir, "real", "config")
			middle := filepath.Join(dir, "real", "link")
			path := filepath.Join(dir, "config")

			require.NoError(t, os.Mkdir(filepath.Dir(target), 0o700))

			if test.exists {
				require.NoError(t, os.WriteFile(target, []byte("old"), 0o600))
			}

			require.NoError(t, os.Symlink("config", middle))
			require.NoError(t, os.Symlink(middle, path))

			require.NoError(t, atomicfile.WriteFile(path, []byte("new"), 0o600))

			requireContent(t, target, "new")

			info, err := os.Lstat(path)
			require.NoError(t, err)
			require.NotZero(t, info.Mode()&fs.ModeSymlink, "the link must stay a link")
		})
	}
}

func TestWriteFileRefusesWhatIsNoFile(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	loop := filepath.Join(dir, "loop")

	require.NoError(t, os.Symlink(loop, loop))

	require.ErrorContains(t, atomicfile.WriteFile(loop, nil, 0o600), "too many symbolic links")
	require.ErrorContains(t, atomicfile.WriteFile(dir, nil, 0o600), "not a regular file")
	require.ErrorIs(t, atomicfile.WriteFile(filepath.Join(dir, "missing", "config"), nil, 0o600), fs.ErrNotExist)
}

func TestWriteFileOnAFullDiskKeepsTheOldFile(t *testing.T) {
	t.Parallel()

	requireOldFileKept(t, baddisk.Full, syscall.ENOSPC, "config", "filler")
}

func TestWriteFileOnAReadOnlyDiskKeepsTheOldFile(t *testing.T) {
	t.Parallel()

	requireOldFileKept(t, baddisk.ReadOnly, syscall.EROFS, "config")
}

func requireOldFileKept(t *testing.T, state baddisk.State, want error, files ...string) {
	t.Helper()

	baddisk.Run(t, state, func(folder string) {
		require.NoError(t, os.WriteFile(filepath.Join(folder, "config"), []byte("old"), 0o600))
	}, func(folder string) {
		path := filepath.Join(folder, "config")

		require.ErrorIs(t, atomicfile.WriteFile(path, make([]byte, 4096), 0o600), want)

		_, err := atomicfile.Backup(path, noon)
		require.ErrorIs(t, err, want)

		requireContent(t, path, "old")
		requireOnly(t, folder, files...)
	})
}

func TestReadersNeverSeePartOfAFile(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "config")
	contents := [][]byte{bytes.Repeat([]byte("a"), 1<<16), bytes.Repeat([]byte("b"), 1<<17)}

	require.NoError(t, atomicfile.WriteFile(path, contents[0], 0o600))

	var (
		writers sync.WaitGroup
		lock    sync.Mutex
	)

	done := make(chan struct{})

	for _, content := range contents {
		writers.Go(func() {
			for range 20 {
				lock.Lock()

				if err := atomicfile.WriteFile(path, content, 0o600); err != nil {
					t.Errorf("write: %v", err)
				}

				lock.Unlock()
			}
		})
	}

	go func() {
		writers.Wait()
		close(done)
	}()

	for {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, contents[0]) || bytes.Equal(data, contents[1]), "read a mixture of %d bytes",
			len(data))

		select {
		case <-done:
			requireOnly(t, filepath.Dir(path), "config")

			return
		default:
		}
	}
}

func TestBackupKeepsEveryVersion(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "config")

	backup, err := atomicfile.Backup(path, noon)
	require.NoError(t, err)
	require.Empty(t, backup, "nothing to back up")

	require.NoError(t, os.WriteFile(path, []byte("one"), 0o644))

	first, err := atomicfile.Backup(path, noon)
	require.NoError(t, err)
	require.Equal(t, path+".bak-20260104T120000Z", first)

	require.NoError(t, os.WriteFile(path, []byte("two"), 0o644))

	second, err := atomicfile.Backup(path, noon)
	require.NoError(t, err)
	require.Equal(t, path+".bak-20260104T120000Z-2", second)

	requireContent(t, first, "one")
	requireContent(t, second, "two")
	requireMode(t, first, 0o600)
	requireContent(t, path, "two")
}

func requireContent(t *testing.T, path, want string) {
	t.Helper()

	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, want, string(data))
}

func requireMode(t *testing.T, path string, want fs.FileMode) {
	t.Helper()

	if runtime.GOOS == "windows" {
		return
	}

	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, want, info.Mode().Perm())
}

func requireOnly(t *testing.T, dir string, names ...string) {
	t.Helper()

	entries, err := os.ReadDir(dir)
	require.NoError(t, err)

	var found []string
	for _, entry := range entries {
		found = append(found, entry.Name())
	}

	require.Equal(t, names, found)
}

func TestWhatAKilledProcessLeftIsCleanedUp(t *testing.T) {
	t.Parallel()

	dir, links := t.TempDir(), t.TempDir()

	for _, name := range []string{".config.talos-mage-tmp", ".other.talos-mage-tmp", ".config.tmp", "config"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("part"), 0o600))
	}

	require.NoError(t, os.WriteFile(filepath.Join(links, ".config.talos-mage-tmp"), []byte("part"), 0o600))
	require.NoError(t, os.Symlink("config", filepath.Join(links, ".link.talos-mage-tmp")))
	require.NoError(t, os.Symlink(filepath.Join(dir, "config"), filepath.Join(links, "config")))

	atomicfile.Clean(filepath.Join(links, "config"))
	requireOnly(t, dir, ".config.tmp", "config")
	requireOnly(t, links, ".link.talos-mage-tmp", "config")

	atomicfile.Clean(filepath.Join(dir, "missing", "config"))
}

// It may be readable by others, or lead elsewhere.
func TestWhatAKilledProcessLeftIsNotWrittenInto(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		name  string
		leave func(path, elsewhere string) error
	}{
		{name: "a file", leave: func(path, _ string) error { return os.WriteFile(path, []byte("a longer part"), 0o644) }},
		{name: "a link", leave: func(path, elsewhere string) error { return os.Symlink(elsewhere, path) }},
		{name: "another name of a file", leave: func(path, elsewhere string) error { return os.Link(elsewhere, path) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			dir := t.TempDir()
			path, elsewhere := filepath.Join(dir, "config"), filepath.Join(dir, "elsewhere")

			require.NoError(t, os.WriteFile(elsewhere, []byte("kept"), 0o644))
			require.NoError(t, test.leave(filepath.Join(dir, ".config.talos-mage-tmp"), elsewhere))

			require.NoError(t, atomicfile.WriteFile(path, []byte("new"), 0o600))
			requireContent(t, path, "new")
			requireMode(t, path, 0o600)
			requireContent(t, elsewhere, "kept")
			requireOnly(t, dir, "config", "elsewhere")
		})
	}
}
