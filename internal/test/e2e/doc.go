// Package e2e holds tests alone: what a person types, from Task, the old scripts and Mage down to the emulated nodes.
package e2e
