// Package rehearsal holds the targets that play a bring-up against emulated nodes. The program has them, and this
// repository's magefile; importers of the targets do not.
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
	version, err := playable(talosVersion, newestTalos)
	if err != nil {
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

	if err := inMaintenance(ctx, cluster); err != nil {
		return err
	}

	fmt.Printf("%d emulated nodes of Talos %s in maintenance mode on %s,\ntime %d times as fast; files in %s\n\n",
		len(cluster.Nodes), cluster.Nodes[0].Options().TalosVersion, cluster.Lab.Prefix(), labcluster.DemoScale, cluster.Dir)

	call := invocation.FromProcess()
	call.Environ = slices.Concat(withoutSettings(os.Environ()), environment(cluster, folder), nobodySays)
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

// newestTalos is what nodes run whose files are made for a rehearsal.
const newestTalos = "v1.14.1"

// playable is the Talos release that was asked for, or the usual one.
func playable(version *string, usual string) (string, error) {
	if version == nil {
		return usual, nil
	}

	return *version, emulator.CanPlay(*version)
}

// inMaintenance waits until all nodes have booted.
func inMaintenance(ctx context.Context, cluster *labcluster.Cluster) error {
	for _, node := range cluster.Nodes {
		if err := node.WaitFor(ctx, func(node *emulator.Node) bool { return node.Stage() == "maintenance" }); err != nil {
			return fmt.Errorf("wait for %s to boot: %w", node.Name(), err)
		}
	}

	return nil
}

// environment leads the program to a cluster of emulated nodes, with root as the repository that it lies in.
func environment(cluster *labcluster.Cluster, root string) []string {
	return append(cluster.Environ(), "ROOT_DIR="+root, "KUBECONFIG="+filepath.Join(root, "kubeconfig"))
}

// withoutSettings keeps a user's own settings away from the demo: it must not touch their kubeconfig.
func withoutSettings(environ []string) []string {
	return settings.Without(environ, func(name string) bool {
		return name == "NO_COLOR" || strings.HasPrefix(name, "LOG_")
	})
}
