//go:build unix

package steps_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// processorTime is what this process has used of the processors so far.
func processorTime(tb testing.TB) time.Duration {
	tb.Helper()

	var usage syscall.Rusage

	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))

	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
