//go:build race

package faults_test

// Under the race detector everything takes several times as long.
const (
	dialTimeout  = "4s"
	applyTimeout = "8s"
)

// oneOfEach has one fault of each class played: to the program they look alike, so that it does the same.
const oneOfEach = true
