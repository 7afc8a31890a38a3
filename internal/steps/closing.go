package steps

import (
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/text"
)

// toldError is an error whose text leaves out what people have read already.
type toldError struct {
	error
	message string
}

func (e *toldError) Error() string { return e.message }

func (e *toldError) Unwrap() error { return e.error }

// Closing is a run's error as the last thing that people read: a line for each cause, with all nodes that have it. A
// cause that stands above is not said again, but whom it concerns, and what to do next.
func Closing(run *Run, err error) error {
	if err == nil {
		return nil
	}

	var lines []string
	for _, same := range bySubject(leaves(err)) {
		lines = append(lines, same.line(run))
	}

	return &toldError{err, strings.Join(lines, "\n")}
}

// Troubles are what a run failed for, each cause with all nodes that have it. That changes would be made, and that a
// signal ended the run, is none.
func Troubles(run *Run, err error) []report.Trouble {
	if err == nil {
		return nil
	}

	var troubles []report.Trouble
	for _, same := range bySubject(leaves(err)) {
		switch {
		case same.Problem == nil:
			troubles = append(troubles, report.Trouble{Cause: same.other.Error()})
		case same.ExitCode() == diagnosis.ExitDryRun, same.ID == diagnosis.Interrupted:
		default:
			troubles = append(troubles, report.TroubleOf(same.Problem, same.subjects, run.Report.Results()))
		}
	}

	return troubles
}

// leaves are the errors that an error consists of.
func leaves(err error) []error {
	switch err := err.(type) { //nolint:errorlint // what is wrapped in more words is a leaf
	case *Failure:
		return leaves(err.Err)
	case *multierror.Error:
		var errs []error
		for _, err := range err.Errors {
			errs = append(errs, leaves(err)...)
		}

		return errs
	default:
		return []error{err}
	}
}

// shared is a problem that one node or several have, or an error that is none.
type shared struct {
	*diagnosis.Problem
	subjects []string
	other    error
}

func (s shared) sameAs(problem *diagnosis.Problem) bool {
	return s.Problem != nil && s.ID == problem.ID && s.Step == problem.Step && s.Cause == problem.Cause &&
		s.Next == problem.Next
}

// bySubject puts errors with one cause together.
func bySubject(errs []error) []shared {
	var all []shared
	for _, err := range errs {
		problem, ok := err.(*diagnosis.Problem) //nolint:errorlint // as in leaves
		if !ok {
			all = append(all, shared{other: err})
			continue
		}

		index := slices.IndexFunc(all, func(one shared) bool { return one.sameAs(problem) })
		if index < 0 {
			index = len(all)
			all = append(all, shared{Problem: problem})
		}

		if problem.Node != "" {
			all[index].subjects = text.AppendNew(all[index].subjects, problem.Subject())
		}
	}

	return all
}

func (s shared) line(run *Run) string {
	if s.Problem == nil {
		return s.other.Error()
	}

	shown := *s.Problem
	if len(s.subjects) > 1 {
		shown.Node, shown.Address = text.List(s.subjects), ""
	}

	if !run.Unheard && run.Report.Told(s.Problem) {
		shown.Cause, shown.At = string(endOf(run, s.Problem))+", as told above", diagnosis.Location{}
	}

	return shown.Error()
}

// endOf is how it ended for a node with a problem: it failed, or nothing was begun.
func endOf(run *Run, problem *diagnosis.Problem) report.Status {
	for _, result := range run.Report.Results() {
		if result.Step == problem.Step && result.Node == problem.Node && result.Status == report.Refused {
			return report.Refused
		}
	}

	return report.Failed
}
