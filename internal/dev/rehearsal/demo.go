// Package rehearsal holds the target that shows a bring-up on emulated nodes. The program has it, and this repository's
// magefile; importers of the targets do not.
package rehearsal

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/magefile/mage/mg"

	"github.com/talos-mage/talos-mage/internal/cli/invocation"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/steps"
)

// Demo brings six emulated nodes up to a Kubernetes cluster, over real gRPC and TLS on loopback, and then shows that a
// second run has nothing to do. With -discover the nodes have other addresses than the declared ones, as from DHCP.
func Demo(ctx context.Context,
	talosVersion *string, // Talos release that the nodes run and the files are for; by default v1.14.1.
	discover *bool,
) error {
	version := labcluster.NewestTalos
	if talosVersion != nil {
		version = *talosVersion
	}

	if err := emulator.CanPlay(version); err != nil {
		return mg.Fatal(2, err.Error())
	}

	folder, err := os.MkdirTemp("", "talos-mage-demo-")
	if err != nil {
		return fmt.Errorf("make folder for the demo: %w", err)
	}

	options := labcluster.Options{
		Name:         "demo",
		TalosVersion: version,
		Contract:     labcluster.OwnForm(version),
		LabOptions:   emulator.LabOptions{TimeScale: labcluster.DemoScale},
	}

	var nobodySays []string

	if discover != nil && *discover {
		options.Edit, nobodySays = withLease, []string{"NODE_ADDRESSES=", "DISCOVER=true"}
	}

	cluster, err := labcluster.New(filepath.Join(folder, "talos"), options)
	if err != nil {
		return fmt.Errorf("start emulated nodes: %w", err)
	}
	defer cluster.Close() //nolint:errcheck // the process ends

	if err := cluster.Booted(ctx); err != nil {
		return err
	}

	fmt.Printf("%d emulated nodes of Talos %s in maintenance mode on %s,\ntime %d times as fast; files in %s\n\n",
		len(cluster.Nodes), cluster.Nodes[0].Options().TalosVersion, cluster.Lab.Prefix(), labcluster.DemoScale, cluster.Dir)

	call := invocation.FromProcess("demo")
	call.Environ = slices.Concat(withoutSettings(os.Environ()), cluster.EnvironIn(folder), nobodySays)
	call.Workdir = folder

	for _, title := range []string{"", "\nThe same command again, on the same nodes:\n"} {
		fmt.Println(title)

		if failure := call.Execute(ctx, "talos", nil, steps.Talos); failure != nil {
			return mg.Fatal(int(failure.Code), failure.Message)
		}
	}

	return nil
}

// withLease puts a machine where no file says that it is.
func withLease(machine *emulator.NodeOptions) {
	const beyond = 100

	address := machine.Address.As4()
	address[3] += beyond
	machine.Address = netip.AddrFrom4(address)
}

// withoutSettings keeps a user's own settings away from the demo: it must not touch their kubeconfig.
func withoutSettings(environ []string) []string {
	return settings.Without(environ, func(name string) bool {
		return name == "NO_COLOR" || strings.HasPrefix(name, "LOG_")
	})
}
