package steps

import (
	"context"
	"errors"

	"github.com/talos-mage/talos-mage/internal/base/retry"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/discover"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
)

const discoverName = "discover"

// Locate finds the nodes' machines on their networks, for the steps that follow. Nothing is sent where it is not clear
// which machine is whose; a node without a machine is waited for as any other that is silent.
type Locate struct{}

// Name is the step's name.
func (Locate) Name() string { return discoverName }

// Exit is the code for machines that can't be told apart.
func (Locate) Exit() diagnosis.ExitCode { return diagnosis.ExitPreflight }

// Nodes are those that the run works on.
func (Locate) Nodes(run *Run) []*inventory.Node { return run.Nodes() }

// EndsRecipe stops a recipe: without this step the ones that follow may meet other nodes' machines.
func (Locate) EndsRecipe(error) bool { return true }

// Located are steps after a search for the machines, if that was asked for.
func Located(steps ...Step) func(*settings.Settings) []Step {
	return func(settings *settings.Settings) []Step {
		if !settings.Discover {
			return steps
		}

		return append([]Step{Locate{}}, steps...)
	}
}

// errMissing is a search that did not find every node's machine.
var errMissing = errors.New("not every node's machine was found")

// Run searches until every node's machine is found, as often as preflight asks a silent node.
func (s Locate) Run(ctx context.Context, run *Run) error {
	work := begin(run, s)
	tries := run.Settings.ReachabilityRetries

	if run.Settings.DryRun || run.Settings.NoWait {
		tries = 1
	}

	var located located

	_, err := retry.Do(ctx, run.Clock, observe.Evenly(run.Settings, tries), func(ctx context.Context, _ int) error {
		machines, err := run.search(ctx, nil)
		if err != nil {
			return err
		}

		located = work.locate(machines)
		if len(located.missing) > 0 {
			return errMissing
		}

		return nil
	}, func(err error) bool { return errors.Is(err, errMissing) })
	if err != nil && !errors.Is(err, errMissing) || ctx.Err() != nil {
		return work.failed(ctx, err)
	}

	return work.take(located)
}

// located is what came of matching machines with nodes.
type located struct {
	pairs   []pair
	missing []*inventory.Node
}

// pair is a node and its machine.
type pair struct {
	node    *inventory.Node
	machine discover.Machine
	by      string
}

func (w *work) locate(machines []discover.Machine) located {
	var located located

	for _, node := range w.Nodes() {
		machine, found := w.observer.Identify(node, machines)
		if !found {
			located.missing = append(located.missing, node)
			continue
		}

		located.pairs = append(located.pairs, pair{node, machine, "its MAC address or UUID"})
	}

	return located
}

// take has the steps that follow address the nodes where their machines were found.
func (w *work) take(located located) error {
	for _, pair := range located.pairs {
		lease, _ := w.observer.FoundAt(pair.node, pair.machine)
		w.record(report.Result{Node: pair.node.Name, Address: lease.Address, Status: report.OK,
			Detail: "found by " + pair.by})
	}

	for _, node := range located.missing {
		w.record(report.Result{Node: node.Name, Status: report.Warned,
			Detail: "its machine was not found: it is looked for again"})
	}

	return nil
}
