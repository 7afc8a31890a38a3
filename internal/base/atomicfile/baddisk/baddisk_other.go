//go:build !linux

package baddisk

import "testing"

// Run skips the test: only Linux lets a test mount a file system for itself.
func Run(t *testing.T, _ State, _, _ func(folder string)) string {
	t.Helper()
	t.Skip("SKIP: needs Linux")

	return ""
}
