// Package emulatortest runs the tests of a package that plays many emulated nodes. Such tests wait most of the time,
// and what they do then is handshakes and garbage: they run many at once, and with cheaper ones of both.
package emulatortest

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/talos-mage/talos-mage/internal/dev/thrift"
)

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

	thrift.Begin()

	return m.Run()
}
