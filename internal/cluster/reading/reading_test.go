package reading_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// written is a file below a new folder.
func written(t *testing.T, text string) (folder, path string) {
	t.Helper()

	folder = t.TempDir()
	path = filepath.Join(folder, "talos", "talconfig.yaml")
	require.NoError(t, os.Mkdir(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o640)) //nolint:gosec // its mode is what is looked at

	return folder, path
}

func TestAFileIsAsItWasWhenItWasFirstAskedFor(t *testing.T) {
	t.Parallel()

	folder, path := written(t, "clusterName: one\n")
	files := reading.New(folder, nil)

	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { files.Open(path) })
	}

	all.Wait()

	first := files.Open(path)
	require.NoError(t, first.Err)
	require.Equal(t, "clusterName: one\n", string(first.Data))
	require.Equal(t, "talos/talconfig.yaml", first.Shown)
	require.Equal(t, os.FileMode(0o640), first.Mode)
	require.True(t, first.Places().Has("", "clusterName"))

	require.NoError(t, os.WriteFile(path, []byte("clusterName: two\n"), 0o600))
	require.Same(t, first, files.Open(filepath.Join(folder, "talos", ".", "talconfig.yaml")), "by whatever name")

	var none *reading.Files

	require.Equal(t, "clusterName: two\n", string(none.Open(path).Data), "without a run each look is new")
}

func TestAFileThatIsNotThereStaysAway(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	path := filepath.Join(folder, "talenv.yaml")
	files := reading.New(folder, nil)

	require.True(t, files.Open(path).Missing())
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.True(t, files.Open(path).Missing())

	_, err := files.Open(path).Config()

	var broken *machineconfig.LoadError

	require.ErrorAs(t, err, &broken)
}

func TestWhatARunMakesIsTakenForRead(t *testing.T) {
	t.Parallel()

	folder, path := written(t, "before")
	files := reading.New(folder, nil)
	require.Equal(t, "before", string(files.Open(path).Data))

	files.Pretend(path, []byte("made up"))
	require.Equal(t, "made up", string(files.Open(path).Data))
	require.True(t, files.Open(path).Unwritten)

	files.Wrote(path, []byte("after"), 0o600)
	require.Equal(t, "after", string(files.Open(path).Data))
	require.Equal(t, os.FileMode(0o600), files.Open(path).Mode)
	require.False(t, files.Open(path).Unwritten)
}

func TestAFileIsDecryptedOnce(t *testing.T) {
	t.Parallel()

	folder, path := written(t, "sealed")

	var times atomic.Int32

	files := reading.New(folder, func(asked string, data []byte) ([]byte, error) {
		times.Add(1)

		if asked != path {
			return nil, errors.New("another file")
		}

		return append([]byte("un"), data...), nil
	})

	for range 3 {
		plain, err := files.Open(path).Decrypted()
		require.NoError(t, err)
		require.Equal(t, "unsealed", string(plain))
	}

	require.EqualValues(t, 1, times.Load())

	_, err := reading.New(folder, nil).Open(path).Decrypted()
	require.ErrorIs(t, err, reading.ErrNoKey)
}

func TestPathsAreShownFromTheRoot(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	files := reading.New(filepath.Join(folder, "repository"), nil)

	require.Equal(t, "talos/a.yaml", files.Shown(filepath.Join(folder, "repository", "talos", "a.yaml")))
	require.Equal(t, filepath.Join(folder, "a.yaml"), files.Shown(filepath.Join(folder, "a.yaml")), "what lies elsewhere")
	require.Equal(t, filepath.Join(folder, "repository2"), files.Shown(filepath.Join(folder, "repository2")))
}
