// Package scenario reads a lab from a file: a cluster, its machines with their faults, and what happens to them when.
package scenario
