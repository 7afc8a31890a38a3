// Package baddisk gives tests a file system that can't be written to, whoever the test runs as.
package baddisk

// State is what is wrong with the file system.
type State int

// States of a file system.
const (
	// Full has no room for another byte.
	Full State = iota
	// ReadOnly can't be written to at all.
	ReadOnly
)
