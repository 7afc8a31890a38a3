// Package scale holds tests and benchmarks alone: what a bring-up of many nodes costs the program. Nodes and program
// are processes of their own, so that neither's share counts for the other, and both are this package's test binary. It
// needs Linux, which tells what a process uses.
package scale
