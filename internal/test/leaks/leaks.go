// Package leaks tells tests whether what they closed has really ended.
package leaks

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Require waits until no more goroutines than these are left: what is closed may take a moment to end. After a minute
// it fails with the stacks of all that run.
func Require(t *testing.T, most int) {
	t.Helper()

	for deadline := time.Now().Add(time.Minute); runtime.NumGoroutine() > most; time.Sleep(10 * time.Millisecond) { //nolint:forbidigo // of tests alone, in wall time
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			require.Fail(t, "goroutines are left", "%s", stacks[:runtime.Stack(stacks, true)])
		}
	}
}
