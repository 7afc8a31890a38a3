//go:build unix

package invocation

import "syscall"

// lives reports whether there is a process with this id.
func lives(pid int) bool { return syscall.Kill(pid, 0) != syscall.ESRCH } //nolint:errorlint // a number

// sameGroup reports whether a process is in this one's process group.
func sameGroup(pid int) bool {
	group, err := syscall.Getpgid(pid)
	return err != nil || group == syscall.Getpgrp()
}
