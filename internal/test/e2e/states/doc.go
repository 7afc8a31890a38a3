// Package states holds tests alone: what each command does with nodes in each state, through the compiled program and
// as the nodes tell it.
package states
