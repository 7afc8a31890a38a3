//go:build !linux

package program

import "os/exec"

// runBound runs a program. When this process is killed it goes on to its end, in a temporary folder that the next run
// removes.
func runBound(command *exec.Cmd) error { return command.Run() }
