//go:build race

package steps_test

// dialTimeout is longer here, as everything takes several times as long.
const dialTimeout = "DIAL_TIMEOUT=3s"

// detectsRaces is set below the race detector, which sees nothing of other processes.
const detectsRaces = true
