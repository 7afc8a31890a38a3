//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package held

import (
	"os"
	"syscall"
)

// locks reports whether the system has locks which end with their process, and which leave the file to everybody.
const locks = true

// lock takes the lock of an open file or folder, which ends when that is closed. It tells whether it got it.
func lock(file *os.File, wait bool) bool {
	how := syscall.LOCK_EX
	if !wait {
		how |= syscall.LOCK_NB
	}

	for {
		switch err := syscall.Flock(int(file.Fd()), how); err { //nolint:errorlint // a number
		case nil:
			return true
		case syscall.EINTR:
		default:
			return false
		}
	}
}
