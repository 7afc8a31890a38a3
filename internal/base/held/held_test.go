package held_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/held"
)

const pattern = ".config.tmp-*"

// locking skips a test of what only happens where the system has locks.
func locking(t *testing.T) {
	t.Helper()

	if runtime.GOOS == "windows" {
		t.Skip("this system has no locks that end with their process and leave the file alone")
	}
}

func TestWhatNobodyHoldsIsRemoved(t *testing.T) {
	t.Parallel()
	locking(t)

	folder := t.TempDir()
	abandoned := filepath.Join(folder, ".config.tmp-1")
	full := filepath.Join(folder, ".config.tmp-2")
	other := filepath.Join(folder, "config")

	require.NoError(t, os.WriteFile(abandoned, []byte("secret"), 0o600))
	require.NoError(t, os.Mkdir(full, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(full, "part"), []byte("secret"), 0o600))
	require.NoError(t, os.WriteFile(other, []byte("kept"), 0o600))
	require.NoError(t, os.Symlink("config", filepath.Join(folder, ".config.tmp-3")))

	held.Clean(folder, pattern)

	require.NoFileExists(t, abandoned)
	require.NoDirExists(t, full)
	require.FileExists(t, other)
	require.FileExists(t, filepath.Join(folder, ".config.tmp-3"), "a link is nobody's temporary file")

	held.Clean(filepath.Join(folder, "missing"), pattern)
}

func TestWhatIsHeldStays(t *testing.T) {
	t.Parallel()

	parent := t.TempDir()

	file, err := held.NewFile(parent, pattern)
	require.NoError(t, err)

	folder, err := held.NewFolder(parent, pattern)
	require.NoError(t, err)

	held.Clean(parent, pattern)
	require.FileExists(t, file.Name())
	require.DirExists(t, folder.Path)

	for path, mode := range map[string]os.FileMode{file.Name(): 0o600, folder.Path: 0o700} {
		info, err := os.Stat(path)
		require.NoError(t, err)

		if runtime.GOOS != "windows" {
			require.Equal(t, mode, info.Mode().Perm())
		}
	}

	require.NoError(t, folder.Remove())
	require.NoDirExists(t, folder.Path)
	require.NoError(t, file.Close())

	held.Clean(parent, pattern)
	require.FileExists(t, file.Name(), "closed is not released")
	file.Release()

	if runtime.GOOS != "windows" {
		held.Clean(parent, pattern)
		require.NoFileExists(t, file.Name())
	}
}

func TestAFileIsRemovedOnlyIfItIsWhatItSeems(t *testing.T) {
	t.Parallel()
	locking(t)

	path := filepath.Join(t.TempDir(), "lock")
	require.False(t, held.RemoveAbandoned(path, nil))
	require.NoError(t, os.WriteFile(path, []byte("mine"), 0o600))

	says := func(text string) func(*os.File) bool {
		return func(file *os.File) bool {
			data := make([]byte, 10)
			n, _ := file.Read(data)

			return string(data[:n]) == text
		}
	}

	require.False(t, held.RemoveAbandoned(path, says("yours")))
	require.FileExists(t, path)
	require.True(t, held.RemoveAbandoned(path, says("mine")))
	require.NoFileExists(t, path)
}

func TestAFileMovesToAFreeNameAlone(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	taken, free := filepath.Join(folder, "taken"), filepath.Join(folder, ".config.tmp-free")
	require.NoError(t, os.WriteFile(taken, []byte("kept"), 0o600))

	file, err := held.NewFile(folder, pattern)
	require.NoError(t, err)

	_, err = file.WriteString("new")
	require.NoError(t, err)
	require.NoError(t, file.Close())

	require.ErrorIs(t, file.MoveTo(taken), fs.ErrExist)
	require.NoError(t, file.MoveTo(free))
	require.NoFileExists(t, file.Name())

	held.Clean(folder, pattern)

	for path, want := range map[string]string{taken: "kept", free: "new"} {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, want, string(data))
	}

	file.Release()
}

func TestNobodyLosesAFileToCleaners(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()

	var everybody sync.WaitGroup

	for range 4 {
		everybody.Go(func() {
			for range 50 {
				file, err := held.NewFile(folder, pattern)
				if err != nil {
					t.Errorf("make file: %v", err)

					return
				}

				held.Clean(folder, pattern)

				if _, err := os.Stat(file.Name()); err != nil {
					t.Errorf("held file: %v", err)
				}

				file.Close()
				file.Release()
			}
		})
	}

	everybody.Wait()
}
