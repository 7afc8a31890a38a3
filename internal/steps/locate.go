package steps

import (
	"context"
	"errors"
	"slices"

	"github.com/talos-mage/talos-mage/internal/base/retry"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/discover"
	"github.com/talos-mage/talos-mage/internal/discover/match"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
)

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
var errMissing = errors.New("not every node's machine was found and read")

// Run searches until every node's machine is found and read, as often as preflight asks a silent node.
func (s Locate) Run(ctx context.Context, run *Run) error {
	work := begin(run, s)
	tries := run.Settings.ReachabilityRetries

	if run.Settings.DryRun || run.Settings.NoWait {
		tries = 1
	}

	options, err := run.matchOptions(ctx)
	if err != nil {
		return work.failed(ctx, err)
	}

	var matched match.Result

	_, err = retry.Do(ctx, run.Clock, observe.Evenly(run.Settings, tries), func(ctx context.Context, _ int) error {
		found, err := run.search(ctx)
		if err != nil {
			return err
		}

		matched = work.assign(found.Machines, options)
		if len(matched.Missing) > 0 || slices.ContainsFunc(matched.Ambiguous, unread) {
			return errMissing
		}

		return nil
	}, func(err error) bool { return errors.Is(err, errMissing) })
	if err != nil && !errors.Is(err, errMissing) || ctx.Err() != nil {
		return work.failed(ctx, err)
	}

	return work.take(matched)
}

// unread reports whether a conflict may be over once its machines tell all that they are.
func unread(conflict match.Conflict) bool {
	return slices.ContainsFunc(conflict.Machines, func(machine discover.Machine) bool { return machine.Err != nil })
}

// byLease is how a machine is matched that was found to be a node's before.
const byLease = "what was found before"

// assign finds the machine of each node of the cluster, so that none is taken for another node's: of those that declare
// no machine first the one that was found to be theirs before.
func (w *work) assign(machines []discover.Machine, options match.Options) match.Result {
	var before match.Result

	nodes := slices.Clone(w.Cluster.Nodes)
	for _, node := range w.Cluster.Nodes {
		machine, known := w.observer.Identify(node, machines)
		if node.DeclaresMachine() || !known {
			continue
		}

		before.Pairs = append(before.Pairs, match.Pair{Node: node, Machine: machine, Address: machine.Address(),
			By: byLease})
		nodes = filtered(nodes, func(other *inventory.Node) bool { return other != node })
		machines = filtered(machines, func(other discover.Machine) bool { return other.Address() != machine.Address() })
	}

	matched := match.Match(nodes, machines, options)
	matched.Pairs = append(before.Pairs, matched.Pairs...)

	return matched
}

// take has the steps that follow address the nodes where their machines were found.
func (w *work) take(matched match.Result) error {
	problems := w.conflicts(matched.Ambiguous)
	if len(problems) > 0 {
		return joined(problems)
	}

	for _, pair := range matched.Pairs {
		if !w.selected(pair.Node) {
			continue
		}

		lease, _ := w.observer.FoundAt(pair.Node, pair.Machine)
		w.record(report.Result{Node: pair.Node.Name, Address: lease.Address, Status: report.OK,
			Detail: "found by " + pair.By})
	}

	for _, node := range filtered(matched.Missing, w.selected) {
		w.record(report.Result{Node: node.Name, Address: node.Address, Status: report.Warned,
			Detail: "its machine was not found"})
	}

	return nil
}

// conflicts are the problems of the run's nodes whose machines can't be told.
func (w *work) conflicts(ambiguous []match.Conflict) []*diagnosis.Problem {
	var problems []*diagnosis.Problem

	for _, conflict := range ambiguous {
		for _, node := range filtered(conflict.Nodes, w.selected) {
			problem := w.problem(observe.Unobserved(node, nil), diagnosis.MachineAmbiguous,
				"its machine can't be told: "+conflict.Why, untilTold(conflict))
			problem.Address = conflict.Machines[0].Address().String()
			w.record(report.Result{Node: node.Name, Address: problem.Address, Status: report.Failed, Err: problem})
			problems = append(problems, problem)
		}
	}

	return problems
}
