package recipe

import (
	"context"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/base/suggest"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
)

// Hook is code of the program's around steps of a recipe. A dry run calls none.
//
// Hooks are recorded as steps, called "before " or "after " and the name of theirs. An error, of either kind, ends the
// recipe with the exit code of the step that the hook is for; before a step it keeps that from being executed.
type Hook struct {
	// Step is the name of the step that the hook is for; of all steps when empty. Run refuses the name of a step that
	// the run does not have.
	Step string
	// Before, if set, is called when the step is next. A step that changes anything has the cluster's lock by then. It is
	// not called for a step that is left out, as there is nothing to do.
	Before func(ctx context.Context, at Point) error
	// After, if set, is called when the step has ended, with an error or not. After a run that was stopped, ctx has ended.
	After func(ctx context.Context, at Point) error
}

// Point is where in a run a hook is called.
type Point struct {
	// Cluster is the cluster that the run is for.
	Cluster Cluster
	// Step is the step's name.
	Step string
	// Outcomes tell how the step went, one a node, or one for the cluster as a whole; nil before it.
	Outcomes []Outcome
	// Err is what the step failed with; nil before it, and if it went well. Its text is for people, and holds no secrets.
	Err error
}

// judge refuses hooks for steps that the run does not have: a hook that is never called may be one that was to keep
// something from being done.
func (r *runner) judge(planned []steps.Step) error {
	names := make([]string, 0, len(planned))
	for _, step := range planned {
		names = append(names, step.Name())
	}

	for _, hook := range r.recipe.Hooks {
		if hook.Step == "" || slices.Contains(names, hook.Step) {
			continue
		}

		cause := r.recipe.Name + " has a hook for " + hook.Step + ", which this run does not have"
		if near := suggest.Word(hook.Step, names); near != "" {
			cause += "; did you mean " + near + "?"
		}

		return bad(cause, "take one of its steps: "+strings.Join(slices.Compact(names), ", "))
	}

	return nil
}

func (r *runner) hookBefore(step steps.Step) steps.Step {
	r.before = len(r.run.Report.Results())

	return r.hook("before", step, Point{}, func(h Hook) func(context.Context, Point) error { return h.Before })
}

func (r *runner) hookAfter(step steps.Step, err error) steps.Step {
	ofStep := slices.DeleteFunc(r.outcomesSince(r.before), func(o Outcome) bool { return o.Step != step.Name() })
	at := Point{Outcomes: ofStep}
	if err != nil {
		at.Err = &runError{report.Scrub(r.run.Report.Reword(err.Error())), []error{err}}
	}

	return r.hook("after", step, at, func(h Hook) func(context.Context, Point) error { return h.After })
}

// hook is what is executed before or after a step; nil if there is nothing.
func (r *runner) hook(when string, around steps.Step, at Point,
	code func(Hook) func(context.Context, Point) error) steps.Step {
	made := hooked{name: when + " " + around.Name(), exit: around.Exit(), at: at}
	made.at.Cluster, made.at.Step = clusterOf(r.run), around.Name()

	for _, hook := range r.recipe.Hooks {
		if do := code(hook); do != nil && (hook.Step == "" || hook.Step == around.Name()) {
			made.code = append(made.code, do)
		}
	}

	switch {
	case len(made.code) == 0:
		return nil
	case steps.Mutates([]steps.Step{around}):
		return locked{made}
	default:
		return made
	}
}

// hooked is what hooks of one step do, as a step.
type hooked struct {
	name string
	exit diagnosis.ExitCode
	at   Point
	code []func(ctx context.Context, at Point) error
}

// Name is when it is called.
func (h hooked) Name() string { return h.name }

// Exit is the code of the step that it is for.
func (h hooked) Exit() diagnosis.ExitCode { return h.exit }

// Run calls the program, up to the first error.
func (h hooked) Run(ctx context.Context, run *steps.Run) error {
	return call(ctx, run, h, report.OK, func() error {
		for _, do := range h.code {
			if err := do(ctx, h.at); err != nil {
				return err
			}
		}

		return nil
	})
}

// locked is what hooks of a step do that changes something: they see what the step will.
type locked struct{ hooked }

// Mutates has it hold the lock.
func (locked) Mutates() {}
