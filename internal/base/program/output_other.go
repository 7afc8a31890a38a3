//go:build !linux

package program

import "os/exec"

// outputOf runs a program. When this process is killed it goes on to its end, in a temporary folder that the next run
// removes.
func outputOf(command *exec.Cmd) ([]byte, error) { return command.Output() }
