package lockfile_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/lockfile"
)

func TestEveryUserCanTakeALockInTurn(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "lock")
	require.NoError(t, lockfile.Make(path))

	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o666), info.Mode().Perm(), "whatever the umask")

	require.NoError(t, os.WriteFile(path, []byte("12\n"), 0o600))
	require.NoError(t, lockfile.Make(path))

	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "12\n", string(data), "a file that is there stays as it is")

	require.NoError(t, lockfile.NameHolder(path))

	data, err = os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(os.Getpid())+"\n", string(data))

	// A file that can only be read is enough.
	require.NoError(t, os.Chmod(path, 0o444))

	ours, theirs := lockfile.New(path), lockfile.New(path)

	taken, err := ours.TryLock()
	require.NoError(t, err)
	require.True(t, taken)

	taken, err = theirs.TryLock()
	require.NoError(t, err)
	require.False(t, taken)

	require.NoError(t, ours.Unlock())

	taken, err = theirs.TryLock()
	require.NoError(t, err)
	require.True(t, taken)
	require.NoError(t, theirs.Unlock())
}

func TestALockNeedsAFolder(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, lockfile.Make(filepath.Join(t.TempDir(), "nowhere", "lock")), fs.ErrNotExist)
}
