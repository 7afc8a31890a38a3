// Package diagnosis is the one catalogue of what can be wrong with a cluster's files, its nodes and its bring-up:
// every finding, check and diagnosis a person can see has an entry with a stable id, a cause and a remedy.
package diagnosis

import (
	"errors"
	"fmt"
	"strings"
)

// ID names a kind of trouble for good: "TM036". Ids are never reused.
type ID string

// Severity says what a finding means for going on.
type Severity int

// Severities, in rising order.
const (
	// NotRun is for a check whose input is missing. It never counts as passed.
	NotRun Severity = iota - 1
	OK
	Warning
	Failure
)

func (s Severity) String() string {
	switch s {
	case NotRun:
		return "not run"
	case OK:
		return "ok"
	case Warning:
		return "warning"
	case Failure:
		return "failure"
	default:
		return fmt.Sprintf("severity %d", int(s))
	}
}

// Entry describes one kind of trouble: the part of a finding that is the same wherever it is met.
type Entry struct {
	ID ID
	// Title is one line without a full stop.
	Title string
	// Severity is what the finding usually is.
	Severity Severity
	// Exit is the code a run ends with when this is a failure.
	Exit ExitCode
	// Cause explains in plain words how it comes about.
	Cause string
	// Remedy says what to do.
	Remedy string
	// Source is the upstream file, documentation page or issue that the facts come from.
	Source string
	// Unskippable findings ignore SKIP_CHECKS: identity and certificate authority.
	Unskippable bool
}

// Finding is one observation about one node, or about the cluster as a whole.
type Finding struct {
	ID       ID
	Severity Severity
	// Node is the inventory's name of the node; empty for the cluster.
	Node string
	// Address is where the node was asked; empty for the cluster or when no node was asked.
	Address string
	// Cause says what was seen, with this case's own values. Lines after the first are a table or a diff.
	Cause string
	// Next is the command to type, or the change to make.
	Next string
	// Exit overrides the entry's exit code when not zero.
	Exit ExitCode
	// Skipped is set when SKIP_CHECKS turned a failure into this warning.
	Skipped bool
	// At is where it stands in a file; the zero value when it is about none, or the place is not known.
	At Location
}

// ExitCode is what a failing finding ends the run with.
func (f Finding) ExitCode() ExitCode {
	if f.Exit != ExitOK {
		return f.Exit
	}

	if entry, ok := Lookup(f.ID); ok && entry.Exit != ExitOK {
		return entry.Exit
	}

	return ExitUnexpected
}

// Subject names the node with its address, or the cluster.
func (f Finding) Subject() string {
	switch {
	case f.Node == "":
		return "cluster"
	case f.Address == "" || strings.Contains(f.Node, f.Address):
		return f.Node
	default:
		return fmt.Sprintf("%s (%s)", f.Node, f.Address)
	}
}

// Headline is the first line of the cause, for where there is room for one line.
func (f Finding) Headline() string {
	headline, _, _ := strings.Cut(f.Cause, "\n")

	return headline
}

// Placed is the headline with the place that it is about, which goes first unless a node is named.
func (f Finding) Placed() string {
	headline, place := f.Headline(), f.At.String()

	switch {
	case f.At.Path == "" || strings.Contains(headline, place):
		return headline
	case f.Node == "":
		return place + ": " + headline
	case f.At.Line > 0:
		return fmt.Sprintf("%s (%s)", headline, place)
	default:
		return headline
	}
}

// Problem is a finding that ended a step for a node: the error form that people read.
type Problem struct {
	Finding
	// Step is the step's name.
	Step string
	// Err is the underlying error, for errors.Is and the logs; it may be nil. Its text is never shown raw.
	Err error
}

// NewProblem is a failure with what happened and what to do next. The code that it ends the run with is the
// catalogue's.
func NewProblem(id ID, cause, next string) *Problem {
	return Finding{ID: id, Severity: Failure, Cause: cause, Next: next}.Problem("", nil)
}

// Problem is the finding as what ended a step; err is the underlying error, or nil.
func (f Finding) Problem(step string, err error) *Problem {
	return &Problem{Finding: f, Step: step, Err: err}
}

// From names the underlying error.
func (p *Problem) From(err error) *Problem {
	p.Err = err
	return p
}

// In names the step.
func (p *Problem) In(step string) *Problem {
	p.Step = step
	return p
}

// Error names the node, the step, the cause and the next command, on one line.
func (p *Problem) Error() string {
	var text strings.Builder

	// "cluster: bootstrap: ..." would say no more than "bootstrap: ...", and a place in a file says more than both.
	if p.Node != "" || p.Step == "" && p.At.Path == "" {
		text.WriteString(p.Subject() + ": ")
	}

	if p.Step != "" {
		text.WriteString(p.Step + ": ")
	}

	text.WriteString(p.Placed())

	if p.ID != "" {
		fmt.Fprintf(&text, " [%s]", p.ID)
	}

	if p.Next != "" {
		text.WriteString(". Next: " + p.Next)
	}

	return text.String()
}

// Unwrap gives the underlying error.
func (p *Problem) Unwrap() error { return p.Err }

// AsProblem finds the first Problem in an error's chain.
func AsProblem(err error) (*Problem, bool) {
	var problem *Problem

	ok := errors.As(err, &problem)

	return problem, ok
}
