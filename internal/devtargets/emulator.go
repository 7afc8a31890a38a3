package devtargets

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/magefile/mage/mg"

	"github.com/talos-mage/talos-mage/internal/emulator"
	"github.com/talos-mage/talos-mage/internal/emulator/labcluster"
)

// Emulator runs Talos nodes in this process.
type Emulator mg.Namespace

// Up runs emulated nodes in the foreground until Ctrl-C, and prints the environment that leads to them.
//
// Without -talosDir it makes the files of three control planes and three workers; with it, it plays the nodes that the talconfig.yaml there declares.
// -scale says how many times as fast as the wall clock time passes on the nodes (20 by default).
func (Emulator) Up(ctx context.Context, talosDir *string, scale *float64) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()

	speed := float64(labcluster.DemoScale)
	if scale != nil {
		speed = *scale
	}

	cluster, settings, err := startCluster(talosDir, emulator.LabOptions{TimeScale: speed})
	if err != nil {
		return mg.Fatal(2, err.Error())
	}
	defer cluster.Close() //nolint:errcheck // the process ends

	if err := inMaintenance(ctx, cluster); err != nil {
		return nil //nolint:nilerr // Ctrl-C while they boot
	}

	fmt.Fprintf(os.Stderr, "%d emulated nodes in maintenance mode on %s; Ctrl-C ends them. In another terminal:\n\n", len(cluster.Nodes), cluster.Lab.Prefix())

	for _, pair := range settings {
		fmt.Printf("export %s\n", shellQuoted(pair))
	}

	<-ctx.Done()

	return nil
}

// startCluster starts the nodes and gives the environment that leads to them.
func startCluster(talosDir *string, options emulator.LabOptions) (*labcluster.Cluster, []string, error) {
	if talosDir != nil {
		cluster, err := labcluster.FromDirectory(*talosDir, os.Environ(), labcluster.Options{LabOptions: options})
		if err != nil {
			return nil, nil, err
		}

		return cluster, cluster.Environ(), nil
	}

	root, err := os.MkdirTemp("", "talos-mage-emulator-")
	if err != nil {
		return nil, nil, fmt.Errorf("make folder for the cluster: %w", err)
	}

	cluster, err := labcluster.New(filepath.Join(root, "talos"), labcluster.Options{Name: "lab", LabOptions: options})
	if err != nil {
		return nil, nil, err
	}

	return cluster, environment(cluster, root), nil
}

// shellQuoted makes NAME=value safe to paste.
func shellQuoted(pair string) string { return fmt.Sprintf("%q", pair) }
