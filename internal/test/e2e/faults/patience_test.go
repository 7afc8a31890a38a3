//go:build !race

package faults_test

import "math"

// How long a look at a machine, and a call that changes it, may take: long for a loaded computer, short for tests with
// machines that are off.
const (
	dialTimeout  = "1500ms"
	applyTimeout = "4s"
)

// mostOfEach is how many faults of a section are played. Without the race detector there is time for all.
const mostOfEach = math.MaxInt
