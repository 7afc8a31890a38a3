// Package machine holds the machines of a lab: their hardware, and boots with all that runs on them. Package emulator
// says what they promise to do.
package machine
