// Command talos-mage takes machines in Talos maintenance mode to a healthy Kubernetes cluster. Its targets are those
// that a magefile can import, and the rehearsals.
package main

import (
	"context"
	"os"

	"github.com/talos-mage/talos-mage/internal/cli/commandline"
	"github.com/talos-mage/talos-mage/internal/cli/invocation"
)

func main() {
	program := commandline.Program{Name: invocation.Called(), Targets: allTargets(), Terminal: invocation.Terminal(),
		Foresee: invocation.FromProcess("").Foresee, Names: invocation.FromProcess("").Names}
	code := program.Main(context.Background(), os.Args[1:], os.Stdout, os.Stderr)

	os.Exit(code) //nolint:forbidigo // it is what all else hands its code to
}
