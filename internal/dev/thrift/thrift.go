// Package thrift lets processes with many emulated nodes cost less.
package thrift

import (
	"os"
	"runtime/debug"
	"strconv"
)

// garbage is how much larger than what is in use the heap may get before it is swept, in percent.
const garbage = 1000

// Begin makes a process that plays many nodes, and the programs that it starts, spend less on what such a process
// does most: garbage, and handshakes, which then do without the key exchange that withstands quantum computers.
func Begin() {
	debug.SetGCPercent(garbage)

	os.Setenv("GOGC", strconv.Itoa(garbage)) //nolint:errcheck // the name is good
	os.Setenv("GODEBUG", "tlsmlkem=0")       //nolint:errcheck // as above
}
