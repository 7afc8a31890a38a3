// Package recipe runs talos-mage's recipes and steps as part of a Go program: the bring-up of a cluster of Talos nodes,
// single steps of it, and recipes of these and the program's own steps, with hooks before and after any of them.
//
//	result, err := recipe.Talos().Run(ctx, recipe.Options{Dir: "/srv/homelab"})
//	result, err = recipe.Health().Run(ctx, recipe.Options{Dir: "/srv/homelab"})
//
// A run from Go is a run as any other. A step looks at the nodes first and does only what is missing, so that the same
// run again continues where the last one stopped. Whatever changes a node or a file holds the cluster's lock, which no
// other run on the machine can have meanwhile. Every run is recorded. A dry run changes nothing and calls no code of
// the program's. Data may be lost only where Options.LoseDataOf names whose.
//
// What takes a person's look first is not offered: replacing a node, removing a member of etcd, restoring etcd, new
// secrets while nodes are silent, and whatever else permits loss on a command line alone.
//
// No setting is read from the program's environment, nobody is asked on its terminal, and nothing is written to its
// output, unless Options says so. Signals stay the program's: end the context to stop a run. Steps, and so hooks, are
// called one after the other, by the goroutine that called Run. Runs of several clusters may go on at once.
package recipe

import (
	"context"
	"errors"
	"fmt"

	"github.com/talos-mage/talos-mage/internal/cli/invocation"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/steps"
)

// Recipe is steps that run in order, as one run: with one lock, one record and one exit code.
//
// A step that fails for some of its nodes leaves them out of the steps that follow. The recipe ends early with a failed
// step that the others build on, as preflight is, with a failed Func and with a failed Hook.
type Recipe struct {
	// Name is what the run is called in its record and in messages. It must not be empty.
	Name string
	// Steps are executed in this order; there has to be one at least.
	Steps []Step
	// Hooks are the program's code around steps. Those of one step are called in this order.
	Hooks []Hook
}

// Talos is the whole bring-up of a cluster, from machines in maintenance mode to a Kubernetes API that answers:
// secrets, configs, preflight, apply, verify, bootstrap, kubeconfig, apply again for late workers, verifyWorkers.
//
// Run again, it does what is missing, and nothing where the cluster is up.
func Talos() Recipe { return Recipe{Name: "talos", Steps: stepsOf(steps.BringUp)} }

// Run executes the recipe. The error is nil if the exit code is 0; else its text names each node that failed, with the
// step, the cause and what to do next, a line each. It wraps the errors of the program's own steps and hooks, and the
// cause that ctx ended with. The result holds what happened in either case.
//
// Bad input ends with ExitBadInput before any node is asked: a recipe or Options that make no sense, files that can't
// be read, a node that they do not declare, and a step that may lose data which Options.LoseDataOf does not permit.
// When ctx ends, the run stops as soon as it can, with ExitInterrupt.
func (r Recipe) Run(ctx context.Context, options Options) (Result, error) {
	if err := r.validate(); err != nil {
		return refused(err)
	}

	call, flags, err := options.invocation()
	if err != nil {
		return refused(err)
	}

	runner := &runner{recipe: r, options: options}
	call.Embedded = runner.embedded()

	failure := call.Execute(ctx, r.Name, flags, r.plan)
	result := Result{Outcomes: runner.outcomesSince(0)}

	if failure == nil {
		return result, nil
	}

	result.ExitCode = ExitCode(failure.Code)

	if result.ExitCode == ExitInterrupt {
		return result, &runError{failure.Message, []error{failure.Err}}
	}

	return result, &runError{failure.Message, programErrors(failure.Err)}
}

// runError is what a run ended with, in words that hold no secrets.
type runError struct {
	message string
	causes  []error
}

func (e *runError) Error() string { return e.message }

// Unwrap leads to the errors of the program's own code.
func (e *runError) Unwrap() []error { return e.causes }

// programErrors are those that the program's own code returned, of all that a run failed with.
func programErrors(err error) (found []error) {
	switch err := err.(type) { //nolint:errorlint // each layer of the chain is looked at in turn
	case nil:
	case *diagnosis.Problem:
		if err.ID == diagnosis.OwnCodeFailed {
			found = append(found, err.Err)
		}
	case interface{ WrappedErrors() []error }: // a multierror's
		for _, one := range err.WrappedErrors() {
			found = append(found, programErrors(one)...)
		}
	default:
		found = programErrors(errors.Unwrap(err))
	}

	return found
}

func refused(err error) (Result, error) {
	return Result{ExitCode: ExitCode(steps.CodeOf(err))}, &runError{message: err.Error()}
}

// validate refuses what could not mean anything.
func (r Recipe) validate() error {
	switch {
	case r.Name == "":
		return bad("Recipe.Name is empty", "name the recipe")
	case len(r.Steps) == 0:
		return bad(r.Name+" has no steps", "give it Steps")
	}

	for _, step := range r.Steps {
		if step.plan == nil {
			return bad(r.Name+" has a Step that nothing made", "take steps from this package's functions")
		}
	}

	for _, hook := range r.Hooks {
		if hook.Before == nil && hook.After == nil {
			return bad(r.Name+" has a Hook with neither Before nor After", "give it one")
		}
	}

	return nil
}

func bad(cause, next string) error {
	return diagnosis.NewProblem(diagnosis.BadRecipe, cause, next).In("recipe")
}

// plan is what the steps are with these settings: a search for the machines goes first, if it was asked for.
func (r Recipe) plan(loaded *settings.Settings) []steps.Step {
	located := false
	planned := make([]steps.Step, 0, len(r.Steps))

	for _, step := range r.Steps {
		located = located || step.located
		planned = append(planned, step.plan(loaded))
	}

	if !located {
		return planned
	}

	return steps.Located(planned...)(loaded)
}

// runner is one run of a recipe.
type runner struct {
	recipe  Recipe
	options Options
	// run is set once the cluster's files were read.
	run *steps.Run
	// before is how many outcomes there were before the step that is being executed.
	before int
}

func (r *runner) embedded() *invocation.Embedded {
	embedded := &invocation.Embedded{Judge: r.judge, Prepare: r.prepare, Next: map[diagnosis.ID]string{
		diagnosis.NotAgreed:     "see with Options.DryRun what would be lost; then name it in Options.LoseDataOf",
		diagnosis.ObjectMissing: "name them in Options.Nodes, or for all of them the cluster in Options.Cluster",
	}, Names: map[string]string{"-node": "Options.Nodes", "-cluster": "Options.Cluster"}}
	if len(r.options.LoseDataOf) > 0 {
		embedded.Agree = r.agree
	}

	return embedded
}

func (r *runner) prepare(run *steps.Run) error {
	r.run = run

	if len(r.recipe.Hooks) > 0 && !run.Settings.DryRun {
		run.Hooks = steps.Hooks{Before: r.hookBefore, After: r.hookAfter}
	}

	for _, name := range r.options.LoseDataOf {
		if node := run.Cluster.Node(name); name != run.Cluster.Name && (node == nil || node.Name != name) {
			return bad(fmt.Sprintf("Options.LoseDataOf has %q, which is neither the cluster %s nor the name of a node of it",
				name, run.Cluster.Name), "correct it")
		}
	}

	return nil
}
