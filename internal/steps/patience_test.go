//go:build !race

package steps_test

// dialTimeout is how long a call to a machine may take: long for a loaded computer, short for tests with machines that
// are off.
const dialTimeout = "DIAL_TIMEOUT=1s"

// alternate has each target run with one of the generators in each state, and with the other in another state. Without
// the race detector there is time for all.
const alternate = false
