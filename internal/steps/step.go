// Package steps holds what a bring-up consists of: the steps, and the recipes that list them in order.
// A step first asks each node what state it is in and then does only what is missing, so every step can be run again.
package steps

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/hashicorp/go-multierror"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
)

// Step is one thing to do for a cluster.
type Step interface {
	// Name is how people call the step; results and errors carry it.
	Name() string
	// Exit is the code that a run ends with when the step fails, unless the kind of failure has one of its own.
	Exit() diagnosis.ExitCode
	// Run does it. Errors of several nodes come as one *multierror.Error in the inventory's order.
	Run(ctx context.Context, run *Run) error
}

// mutating steps change a node or a file and so need the cluster's lock.
type mutating interface{ Mutates() }

// perNode steps go node by node; any other concerns the cluster as a whole.
type perNode interface {
	Nodes(run *Run) []*inventory.Node
}

// Mutates reports whether any of the steps may change a node or a file.
func Mutates(steps []Step) bool {
	return slices.ContainsFunc(steps, func(step Step) bool {
		_, changes := step.(mutating)
		return changes
	})
}

// essential steps say which of their failures end a recipe; after any other it goes on with the nodes that are left.
type essential interface{ EndsRecipe(err error) bool }

// conditional steps say why they are left out of a recipe; nothing if they aren't.
type conditional interface {
	Step
	LeftOut(run *Run) (reason string)
}

// Execute runs steps in order. The error is a *Failure: everything that failed, with the exit code of the earliest
// failure. Recording, timing and locking wrap every step here, once.
func Execute(ctx context.Context, run *Run, steps ...Step) error {
	defer run.lock.release()

	var failures []*Failure
	for _, step := range steps {
		if leftOut(run, step) {
			continue
		}

		failed, last := executeHooked(ctx, run, step)
		failures = append(failures, failed...)

		if last {
			break
		}
	}

	return earliest(failures)
}

// leftOut reports whether the recipe goes on without a step, and records why.
func leftOut(run *Run, step Step) bool {
	conditional, ok := step.(conditional)
	if !ok {
		return false
	}

	reason := conditional.LeftOut(run)
	if reason == "" {
		return false
	}

	run.Report.Start(step.Name())
	run.Report.Result(report.Result{Step: step.Name(), Status: report.Skipped, Detail: reason})
	run.Report.Finish(step.Name(), 0, nil)

	return true
}

// executeHooked executes a step, and what the run's hooks put around it. A failure of theirs is the recipe's last, as
// one of an essential step is.
func executeHooked(ctx context.Context, run *Run, step Step) (failures []*Failure, last bool) {
	if hook := run.Hooks.before(step); hook != nil {
		if err := execute(ctx, run, hook); err != nil {
			return []*Failure{failureOf(hook, err)}, true
		}
	}

	err := execute(ctx, run, step)
	if err != nil {
		failures = append(failures, failureOf(step, err))
		essential, ok := step.(essential)
		last = ctx.Err() != nil || ok && essential.EndsRecipe(err)
	}

	if hook := run.Hooks.after(step, err); hook != nil {
		if err := execute(ctx, run, hook); err != nil {
			return append(failures, failureOf(hook, err)), true
		}
	}

	return failures, last
}

func failureOf(step Step, err error) *Failure {
	return &Failure{Step: step.Name(), Code: CodeOf(err), Err: err}
}

// Hooks are what an embedding program has done around the steps of a run. Each gives a step to execute, or nil.
type Hooks struct {
	// Before goes before a step that is about to be executed; an error there keeps it from being so.
	Before func(step Step) Step
	// After goes after it, however it ended.
	After func(step Step, err error) Step
}

func (h Hooks) before(step Step) Step {
	if h.Before == nil {
		return nil
	}

	return h.Before(step)
}

func (h Hooks) after(step Step, err error) Step {
	if h.After == nil {
		return nil
	}

	return h.After(step, err)
}

// earliest is the first failure, with the errors of those that followed it. What a dry run would change is only the
// outcome if nothing failed.
func earliest(failures []*Failure) error {
	if len(failures) == 0 {
		return nil
	}

	first := failures[0]
	errs := make([]error, 0, len(failures))
	for _, failure := range failures {
		if first.Code == diagnosis.ExitDryRun {
			first = failure
		}

		errs = append(errs, failure.Err)
	}

	return &Failure{Step: first.Step, Code: first.Code, Err: diagnosis.Join(errs...)}
}

func execute(ctx context.Context, run *Run, step Step) error {
	if _, changes := step.(mutating); changes && !run.Settings.DryRun {
		if err := run.lock.take(ctx); err != nil {
			return err
		}
	}

	started := time.Now()
	run.Report.Start(step.Name(), nodesOf(step, run)...)

	err := step.Run(ctx, run)

	run.Report.Finish(step.Name(), time.Since(started), err)

	return err
}

func nodesOf(step Step, run *Run) []string {
	if step, ok := step.(perNode); ok {
		return names(step.Nodes(run))
	}

	return nil
}

// Failure is a step that failed, with the exit code that follows from it.
type Failure struct {
	Step string
	Code diagnosis.ExitCode
	Err  error
}

func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap gives the step's error.
func (f *Failure) Unwrap() error { return f.Err }

// CodeOf is the exit code for an error: bad input before anything else, then the code of the first problem.
func CodeOf(err error) diagnosis.ExitCode {
	if err == nil {
		return diagnosis.ExitOK
	}

	var failure *Failure
	if errors.As(err, &failure) {
		return failure.Code
	}

	first := diagnosis.ExitOK
	for _, problem := range problemsIn(err) {
		code := problem.ExitCode()
		if code == diagnosis.ExitBadInput {
			return code
		}

		first = cmp.Or(first, code)
	}

	return cmp.Or(first, diagnosis.ExitUnexpected)
}

// problemsIn finds all problems in an error, in order.
func problemsIn(err error) []*diagnosis.Problem {
	switch err := err.(type) { //nolint:errorlint // each layer of the chain is looked at in turn
	case nil:
		return nil
	case *diagnosis.Problem:
		return []*diagnosis.Problem{err}
	case *multierror.Error:
		return problemsInAll(err.Errors)
	case interface{ Unwrap() []error }:
		return problemsInAll(err.Unwrap())
	default:
		return problemsIn(errors.Unwrap(err))
	}
}

func problemsInAll(errs []error) []*diagnosis.Problem {
	var problems []*diagnosis.Problem
	for _, err := range errs {
		problems = append(problems, problemsIn(err)...)
	}

	return problems
}

// outcome is how a step went for one node: what is reported and, when it failed, why.
type outcome struct {
	node    *inventory.Node
	status  report.Status
	detail  string
	address string
	tries   int
	problem *diagnosis.Problem
	// outdated says that not the node has to change, but its file.
	outdated bool
}

func (o outcome) failed() bool { return o.problem != nil }

// joined makes one error of problems.
func joined(problems []*diagnosis.Problem) error {
	errs := make([]error, 0, len(problems))
	for _, problem := range problems {
		errs = append(errs, problem)
	}

	return diagnosis.Join(errs...)
}

func isMissing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}
