//go:build unix

package plainfile_test

import (
	"net"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/plainfile"
)

// Nothing is waited for, and nothing is read without an end.
func TestPipesAndDevicesAreNotOpened(t *testing.T) {
	t.Parallel()

	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))

	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket) //nolint:noctx // it listens to nobody
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })

	for path, want := range map[string]string{
		pipe:        "it is a pipe, not a file",
		socket:      "it is a socket, not a file",
		"/dev/zero": "it is a device, not a file",
	} {
		_, _, err := plainfile.Read(path)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, plainfile.Refuse(path), want)
	}

	data, _, err := plainfile.Read("/dev/null")
	require.NoError(t, err, "people name it where they want no file")
	require.Empty(t, data)
}
