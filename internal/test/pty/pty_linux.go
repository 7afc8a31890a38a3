package pty

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Open makes a terminal for a program, and the end that shows what is written to it and takes what is typed. Both are
// for the caller to close. The test is skipped where the machine has none.
func Open(tb testing.TB) (screen, terminal *os.File) {
	tb.Helper()

	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		tb.Skipf("this machine has no pseudo terminals: %v", err)
	}

	fd := int(screen.Fd())
	require.NoError(tb, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))

	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(tb, err)

	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(tb, err)

	return screen, terminal
}
