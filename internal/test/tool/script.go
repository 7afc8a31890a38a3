package tool

import (
	"os"
	"syscall"
)

// WriteProgram writes a program that a test runs at once. No other process of the test's begins meanwhile: it would
// hold the file open for a moment, and a file that somebody writes to is not executed (ETXTBSY, golang/go#22315).
func WriteProgram(path string, text []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()

	return os.WriteFile(path, text, 0o700) //nolint:gosec,wrapcheck // it is to be run; it names the file
}
