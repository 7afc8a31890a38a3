// Package faults tests what becomes of a bring-up when something goes wrong with it: each fault is made with a knob of
// an emulated machine, and the outcome of the run, and of the one after healing, is recorded. docs/reliability.md has
// the table of what was recorded.
package faults
