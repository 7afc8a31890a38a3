package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Kinds are the names of all kinds of trouble.
func Kinds() []string {
	var names []string
	for _, kind := range troubles() {
		names = append(names, kind.name)
	}

	return names
}

// Operations are the names of all that is done with a cluster that is up.
func Operations() []string {
	var names []string
	for _, kind := range operationKinds {
		names = append(names, kind.name)
	}

	return names
}

// Looks are the names of all that only looks at a cluster.
func Looks() []string {
	var names []string
	for _, kind := range lookKinds {
		names = append(names, kind.name)
	}

	return names
}

// Turn makes of a machine's faults what they are while the incident lasts, as far as it is a matter of its own knobs.
func (i Incident) Turn(faults *emulator.Faults) {
	if i.on != nil {
		i.on(faults)
	}
}

// UpgradeKubernetes upgrades that of a small cluster, with the talosctl that is given or with the double, and tells
// which calls changed nodes meanwhile, in their order.
func UpgradeKubernetes(ctx context.Context, folder, program string) ([]string, error) {
	plan := &Plan{Endpoint: VIP, Discovery: true, DeclaredMACs: true, OwnCNI: true}
	for _, name := range []string{"cp1", "cp2", "worker1"} {
		plan.Machines = append(plan.Machines, Machine{Name: name, ControlPlane: name != "worker1", TalosVersion: newestTalos,
			Timing: drawTiming(source(1, name), false)})
	}

	w, err := newWorld(plan, folder, defaultScale)
	if err != nil {
		return nil, err
	}
	defer w.close()

	w.settle(ctx)

	if run, err := w.operator("first").runRecipe(ctx); err != nil || run.Code != diagnosis.ExitOK {
		return nil, fmt.Errorf("bring up: %w: %s", err, run.Message)
	}

	care := &Care{Operation: Operation{Kind: upK8sName}}
	w.watchBlows(care)

	if err := w.declareKubernetes(ctx, care); err != nil {
		return nil, err
	}

	if program != "" {
		double := filepath.Join(w.operator("first").machine, "bin", "talosctl")
		if err := os.Remove(double); err != nil {
			return nil, err
		}

		if err := os.Symlink(program, double); err != nil {
			return nil, err
		}
	}

	began := time.Now()

	run, err := w.call(ctx, care.Operation, 1)
	if err == nil && run.Code != diagnosis.ExitOK {
		err = fmt.Errorf("upgrade: %s\n%s", run.Message, run.Output)
	}

	return w.changesSince(began), err
}

// changesSince are the calls by which talosctl changes nodes, in their order.
func (w *world) changesSince(began time.Time) []string {
	type change struct {
		at   time.Time
		what string
	}

	var changes []change

	for _, node := range w.lab.Nodes() {
		for _, call := range node.Calls() {
			if call.Time.After(began) && slices.Contains([]string{"ApplyConfiguration", "ImagePull"}, call.Name()) {
				changes = append(changes, change{call.Time, node.Name() + " " + call.Name()})
			}
		}
	}

	slices.SortFunc(changes, func(a, b change) int { return a.at.Compare(b.at) })

	var told []string
	for _, change := range changes {
		told = append(told, change.what)
	}

	return told
}
