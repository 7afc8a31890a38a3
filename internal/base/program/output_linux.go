package program

import (
	"os/exec"
	"runtime"
	"syscall"
)

// runBound runs a program, which ends with this process, also when that is killed: it must not go on writing files for
// nobody.
func runBound(command *exec.Cmd) error {
	// It is the end of the thread that started the program which counts.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

	return command.Run() //nolint:wrapcheck // its caller wraps it
}
