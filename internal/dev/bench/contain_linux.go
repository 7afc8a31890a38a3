package bench

import (
	"os/exec"
	"syscall"
)

// contain makes a program end with this process, and all that it started with its context.
func contain(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
}
