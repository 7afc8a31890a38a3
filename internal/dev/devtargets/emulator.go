package devtargets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/magefile/mage/mg"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/scenario"
)

// Emulator runs Talos nodes in this process.
type Emulator mg.Namespace

// Up runs emulated nodes in the foreground until Ctrl-C, and prints the environment that leads to them.
//
// Without flags it makes the files of three control planes and three workers.
func (Emulator) Up(ctx context.Context,
	talosDir *string, // Folder with the talconfig.yaml whose nodes are played.
	scenario *string, // Scenario file, whose nodes are played with its faults and events (docs/emulator.md).
	talosVersion *string, // Talos release that the nodes run; by default that of talosDir's files, else v1.14.1.
	scale *float64, // How many times as fast as the wall clock time passes on the nodes; by default 20.
) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()

	rehearsal, err := startRehearsal(talosDir, scenario, talosVersion, scale)
	if err != nil {
		return mg.Fatal(2, err.Error())
	}
	defer rehearsal.cluster.Close() //nolint:errcheck // the process ends

	go rehearsal.play(ctx)

	if err := rehearsal.booted(ctx); err != nil {
		return nil //nolint:nilerr // Ctrl-C while they boot
	}

	fmt.Fprintf(os.Stderr, "%d emulated nodes on %s; Ctrl-C ends them. In another terminal:\n\n",
		len(rehearsal.cluster.Nodes), rehearsal.cluster.Lab.Prefix())

	for _, pair := range rehearsal.environ {
		fmt.Printf("export %s\n", shellQuoted(pair))
	}

	<-ctx.Done()

	return nil
}

// rehearsal is a lab that somebody runs talos-mage against.
type rehearsal struct {
	cluster *labcluster.Cluster
	// environ leads to its nodes.
	environ []string
	// scenario is what happens in it; nil for nothing.
	scenario *scenario.Scenario
}

// startRehearsal starts the nodes of a talconfig.yaml, of a scenario, or six sound ones.
func startRehearsal(talosDir, scenarioFile, talosVersion *string, scale *float64) (*rehearsal, error) {
	var version string

	switch {
	case talosVersion != nil:
		version = *talosVersion
		if err := emulator.CanPlay(version); err != nil {
			return nil, err
		}
	case talosDir == nil && scenarioFile == nil:
		version = labcluster.NewestTalos
	}

	options := labcluster.Options{Name: "lab", TalosVersion: version, Contract: labcluster.OwnForm(version),
		LabOptions: emulator.LabOptions{TimeScale: labcluster.DemoScale}}
	made := &rehearsal{}

	switch {
	case talosDir != nil && scenarioFile != nil:
		return nil, errors.New("give -talosDir or -scenario, not both")
	case talosVersion != nil && scenarioFile != nil:
		return nil, errors.New("give -talosVersion or -scenario, not both: the scenario says which releases its nodes run")
	case scenarioFile != nil:
		var err error
		if made.scenario, err = scenario.Load(*scenarioFile); err != nil {
			return nil, err
		}

		options = made.scenario.Options()
	}

	if scale != nil {
		options.LabOptions.TimeScale = *scale
	}

	return made, made.start(talosDir, options)
}

func (r *rehearsal) start(talosDir *string, options labcluster.Options) error {
	root, err := os.MkdirTemp("", "talos-mage-emulator-")
	if err != nil {
		return fmt.Errorf("make folder for the cluster: %w", err)
	}

	if talosDir != nil {
		return r.startFrom(*talosDir, root, options)
	}

	if r.cluster, err = labcluster.New(filepath.Join(root, "talos"), options); err != nil {
		return err
	}

	r.environ = r.cluster.EnvironIn(root)

	return nil
}

// startFrom starts the declared nodes. The user's own kubeconfig is left alone: it may know the real cluster by that
// name.
func (r *rehearsal) startFrom(talosDir, root string, options labcluster.Options) error {
	folder, err := filepath.Abs(talosDir)
	if err != nil {
		return fmt.Errorf("find %s: %w", talosDir, err)
	}

	if r.cluster, err = labcluster.FromDirectory(folder, os.Environ(), options); err != nil {
		return err
	}

	r.environ = append(r.cluster.Environ(), "KUBECONFIG="+filepath.Join(root, "kubeconfig"))

	return nil
}

// booted waits until the nodes can be asked. With a scenario some may never be.
func (r *rehearsal) booted(ctx context.Context) error {
	if r.scenario != nil {
		return nil
	}

	return r.cluster.Booted(ctx)
}

// play makes the scenario's events happen, and tells of them.
func (r *rehearsal) play(ctx context.Context) {
	if r.scenario == nil {
		return
	}

	r.scenario.Play(ctx, r.cluster, func(event scenario.Event) { fmt.Fprintln(os.Stderr, event) })
}

// shellQuoted makes NAME=value safe to paste.
func shellQuoted(pair string) string { return fmt.Sprintf("%q", pair) }
