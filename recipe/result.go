package recipe

import (
	"time"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
)

// Result is what a run came to.
type Result struct {
	// ExitCode is what the program talos-mage would have ended with.
	ExitCode ExitCode
	// Outcomes tell how each step went, for each of its nodes or for the cluster as a whole, in the order they came.
	Outcomes []Outcome
}

// Outcome is how one step ended for one node.
type Outcome struct {
	// Step is the step's name.
	Step string
	// Node is the node's name; empty if this is about the cluster as a whole.
	Node string
	// Address is where the node was asked, perhaps with a port; empty if none was.
	Address string
	// Status is how it ended.
	Status Status
	// Detail is a short remark for people, such as "installed"; often empty.
	Detail string
	// Attempts is how often it was tried; 0 for what is not tried again.
	Attempts int
	// Duration is how long it took.
	Duration time.Duration
	// Problem is why it failed or was refused; nil if it was neither.
	Problem *Problem
}

// Problem is what went wrong, for people. It never holds secrets.
type Problem struct {
	// ID is the kind of trouble, such as TM095, which docs/diagnoses.md explains; empty for an error of no known kind.
	ID string
	// Cause says in plain words what was seen.
	Cause string
	// Next is the command to type, or the change to make; empty for an error of no known kind.
	Next string
}

// Status is how a step ended for a node.
type Status string

// Statuses. No other than Failed and Refused is a failure.
const (
	// StatusOK is for what is as it should be.
	StatusOK Status = "ok"
	// StatusApplied is for what the step changed.
	StatusApplied Status = "applied"
	// StatusSkipped is for what needed no change.
	StatusSkipped Status = "skipped"
	// StatusDrifted is for a node whose config differs from what is declared, and was left so.
	StatusDrifted Status = "drifted"
	// StatusJoining is for a worker that can't answer before etcd runs.
	StatusJoining Status = "joining"
	// StatusWarned is for what does not keep the run from going on.
	StatusWarned Status = "warning"
	// StatusFailed is for a failure: Outcome.Problem says why.
	StatusFailed Status = "failed"
	// StatusRefused is for what the step refused before it did anything to the node: Outcome.Problem says why.
	StatusRefused Status = "refused"
	// StatusPlanned is for what a dry run would have changed.
	StatusPlanned Status = "would change"
)

// ExitCode is how a run ended, as a process's exit code.
type ExitCode int

// Exit codes; docs/exit-codes.md says more. Of several failures the earliest step's counts, and within a step
// ExitBadInput before any other.
const (
	// ExitOK is for a run that did all that it should, or found nothing to do.
	ExitOK ExitCode = 0
	// ExitUnexpected is for errors of no other kind, and for those of a Func.
	ExitUnexpected ExitCode = 1
	// ExitBadInput is for what options and files alone decide.
	ExitBadInput ExitCode = 2
	// ExitPreflight is for a node or a cluster that can't proceed, and for a lock that another run holds.
	ExitPreflight ExitCode = 3
	// ExitApply is for a node that got no config, or was not upgraded or wiped.
	ExitApply ExitCode = 4
	// ExitVerify is for a node that is stuck.
	ExitVerify ExitCode = 5
	// ExitBootstrap is for etcd.
	ExitBootstrap ExitCode = 6
	// ExitKubernetes is for the Kubernetes API, and the cluster's health.
	ExitKubernetes ExitCode = 7
	// ExitDryRun is for a dry run that found something to change.
	ExitDryRun ExitCode = 8
	// ExitInterrupt is for a run whose context ended.
	ExitInterrupt ExitCode = 130
)

// outcomesSince are those after the first so many.
func (r *runner) outcomesSince(first int) []Outcome {
	if r.run == nil {
		return nil
	}

	var outcomes []Outcome
	for _, result := range r.run.Report.Results()[first:] {
		outcomes = append(outcomes, Outcome{
			Step: result.Step, Node: result.Node, Address: result.Address, Status: Status(result.Status),
			Detail: report.Scrub(result.Detail), Attempts: result.Attempts, Duration: result.Duration,
			Problem: problemOf(result.Err),
		})
	}

	return outcomes
}

func problemOf(err error) *Problem {
	if err == nil {
		return nil
	}

	problem, ok := diagnosis.AsProblem(err)
	if !ok {
		return &Problem{Cause: report.Scrub(err.Error())}
	}

	return &Problem{ID: string(problem.ID), Cause: report.Scrub(problem.Cause), Next: report.Scrub(problem.Next)}
}
