// Package kills holds tests alone: the program, or the mage that started it, is killed at any moment, as a real
// process.
package kills
