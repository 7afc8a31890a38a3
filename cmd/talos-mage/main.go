// Command talos-mage takes machines in Talos maintenance mode to a healthy Kubernetes cluster. Its targets are those
// that a magefile can import, and the rehearsals.
package main

import (
	"context"
	"os"
	"runtime/debug"

	"github.com/talos-mage/talos-mage/internal/cli/commandline"
	"github.com/talos-mage/talos-mage/internal/cli/invocation"
)

// heapGrowth is how many percent the heap may grow by before it is collected, unless GOGC says otherwise: a run is
// short, and keeps most of what it reads.
const heapGrowth = 300

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}

	program := commandline.Program{Name: invocation.Called(), Targets: allTargets(), Terminal: invocation.Terminal(),
		Foresee: invocation.FromProcess("").Foresee, Names: invocation.FromProcess("").Names}
	code := program.Main(context.Background(), os.Args[1:], os.Stdout, os.Stderr)

	os.Exit(code) //nolint:forbidigo // it is what all else hands its code to
}
