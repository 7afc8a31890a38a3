package plainfile_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/plainfile"
)

func TestAFileIsRead(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "talconfig.yaml")
	require.NoError(t, os.WriteFile(path, []byte("clusterName: lab\n"), 0o640)) //nolint:gosec // its mode is looked at
	require.NoError(t, os.Symlink(path, path+".link"))

	for _, path := range []string{path, path + ".link"} {
		data, mode, err := plainfile.Read(path)
		require.NoError(t, err)
		require.Equal(t, "clusterName: lab\n", string(data))
		require.Equal(t, fs.FileMode(0o640), mode)
		require.NoError(t, plainfile.Refuse(path))
	}

	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("#", plainfile.MaxSize)), 0o600))

	data, _, err := plainfile.Read(path)
	require.NoError(t, err)
	require.Len(t, data, plainfile.MaxSize)
}

func TestWhatIsNoFileIsNotRead(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	large := filepath.Join(folder, "large")
	require.NoError(t, os.WriteFile(large, make([]byte, plainfile.MaxSize+1), 0o600))

	for path, want := range map[string]string{
		large:                            "it has 4.0 MB, and at most 4 MB are read",
		folder:                           "is a directory",
		filepath.Join(folder, "nowhere"): "no such file or directory",
	} {
		_, _, err := plainfile.Read(path)

		var pathError *fs.PathError
		require.ErrorAs(t, err, &pathError)
		require.ErrorContains(t, err, want)
	}

	require.ErrorContains(t, plainfile.Refuse(large), "at most 4 MB")
	require.NoError(t, plainfile.Refuse(filepath.Join(folder, "nowhere")), "whoever reads it says so")
}
