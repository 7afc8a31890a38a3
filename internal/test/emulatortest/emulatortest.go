// Package emulatortest runs the tests of a package that plays many emulated nodes. Such tests wait most of the time,
// and what they do then is handshakes and garbage: they run many at once, and with cheaper ones of both.
package emulatortest

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"
)

// garbage is how much larger than what is in use the heap may get before it is swept, in percent.
const garbage = 1000

// Run runs the tests, so many at once unless the command line or the number of processors asks for more, and gives the
// process's exit code. Programs that the tests start inherit what makes them cheaper.
func Run(m *testing.M, atOnce int) int {
	flag.Parse()

	if given := flag.Lookup("test.parallel"); given.Value.String() == given.DefValue {
		if err := flag.Set("test.parallel", strconv.Itoa(max(atOnce, runtime.GOMAXPROCS(0)))); err != nil {
			fmt.Fprintln(os.Stderr, err)

			return 1
		}
	}

	debug.SetGCPercent(garbage)

	// Without the key exchange that withstands quantum computers.
	for name, value := range map[string]string{"GOGC": strconv.Itoa(garbage), "GODEBUG": "tlsmlkem=0"} {
		if err := os.Setenv(name, value); err != nil {
			fmt.Fprintln(os.Stderr, err)

			return 1
		}
	}

	return m.Run()
}
