//go:build race

package steps_test

// dialTimeout is longer here, as everything takes several times as long.
const dialTimeout = "DIAL_TIMEOUT=3s"

// alternate has each target run with one of the generators in each state, and with the other in another state.
const alternate = true
