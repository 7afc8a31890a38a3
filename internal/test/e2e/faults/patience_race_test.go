//go:build race

package faults_test

// Under the race detector everything takes several times as long.
const (
	dialTimeout  = "4s"
	applyTimeout = "8s"
)

// mostOfEach is how many faults of a section are played. Chaos shows the detector many more.
const mostOfEach = 1
