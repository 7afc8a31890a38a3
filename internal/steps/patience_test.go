//go:build !race

package steps_test

// dialTimeout is how long a call to a machine may take: long for a loaded computer, short for tests with machines that
// are off.
const dialTimeout = "DIAL_TIMEOUT=1s"

// detectsRaces is set below the race detector, which sees nothing of other processes.
const detectsRaces = false
