// Package terminal holds tests of what a person sees of the compiled program on a terminal.
package terminal
