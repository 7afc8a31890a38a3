package baddisk

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// inside tells a test process that it is the one in a namespace of its own, and where its file system is.
const inside = "BADDISK_FOLDER"

const skipped = "SKIP: this machine lets no test mount a file system for itself"

// Run calls prepare with the folder of a small file system, brings that into the state, and calls check. Both happen in
// a second process that runs the calling test again, in a mount namespace of its own, and whose output it gives: none
// in that process itself. Where that is not allowed the test is skipped.
func Run(t *testing.T, state State, prepare, check func(folder string)) (output string) {
	t.Helper()

	if folder := os.Getenv(inside); folder != "" {
		err := unix.Mount("tmpfs", folder, "tmpfs", 0, "size=64k")
		if errors.Is(err, os.ErrPermission) {
			t.Skip(skipped)
		}

		require.NoError(t, err)
		prepare(folder)
		spoil(t, state, folder)
		check(folder)

		return ""
	}

	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v") //nolint:gosec // this very program
	command.Env = append(os.Environ(), inside+"="+t.TempDir())
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}

	combined, err := command.CombinedOutput()

	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || bytes.Contains(combined, []byte(skipped)) {
		t.Skip(skipped)
	}

	require.NoError(t, err, string(combined))

	return string(combined)
}

func spoil(t *testing.T, state State, folder string) {
	t.Helper()

	if state == ReadOnly {
		require.NoError(t, unix.Mount("tmpfs", folder, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""))

		return
	}

	filler, err := os.Create(filepath.Join(folder, "filler"))
	require.NoError(t, err)

	for err == nil {
		_, err = filler.Write(make([]byte, 4096))
	}

	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, filler.Close())
}
