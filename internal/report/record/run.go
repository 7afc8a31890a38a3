// Package record keeps what happened in runs, in a folder each: the events as they came, and the pages and documents
// that are made of them. It judges nothing: what it says stands in the events.
package record

import (
	"slices"
	"time"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
)

// Run is what the events of a run come to.
type Run struct {
	// Name is that of the run's folder.
	Name            string
	Target, Version string
	Settings        []report.Setting
	// Began and Last are when its first and its last event came.
	Began, Last time.Time
	// Outcome is how it ended; nil while it goes on, or if it was killed.
	Outcome *Outcome
	// Nodes are in the order in which steps named them.
	Nodes    []string
	Steps    []*Step
	Findings []report.Line
	// Results of a node and a step: the last one.
	Results []report.Line
	Spans   []Span
	Marks   []Mark

	known map[string]bool
	// doing is the place of each node's span that has not ended; resultAt that of each node's result in a step.
	doing    map[string]int
	resultAt map[[2]string]int
}

func newRun(name string) *Run {
	return &Run{Name: name, known: map[string]bool{}, doing: map[string]int{}, resultAt: map[[2]string]int{}}
}

// Outcome is how a run ended.
type Outcome struct {
	Code    diagnosis.ExitCode
	Message string
}

// Step is one step of a run. Ended is zero while it goes on.
type Step struct {
	Name         string
	Began, Ended time.Time
	Error        string
}

// Span is what a node, or the cluster as a whole, was doing for some time.
type Span struct {
	Node, Step, Text string
	From, To         time.Time
}

// Mark is something that happened at one time.
type Mark struct {
	Node, Step string
	At         time.Time
	// Status is empty for an attempt that failed and was repeated.
	Status report.Status
	Text   string
}

// add takes in the next event.
func (r *Run) add(line report.Line) {
	if r.Began.IsZero() {
		r.Began = line.Time
	}

	r.Last = line.Time

	switch line.Event {
	case report.KindRun:
		r.Target, r.Version, r.Settings = line.Target, line.Version, line.Settings
	case report.KindStarted:
		r.start(line)
	case report.KindProgress:
		r.progress(line)
	case report.KindFinding:
		r.Findings = append(r.Findings, line)
	case report.KindResult:
		r.result(line)
	case report.KindFinished:
		r.finish(line)
	case report.KindOutcome:
		outcome := Outcome{Message: line.Message}
		if line.Code != nil {
			outcome.Code = *line.Code
		}

		r.Outcome = &outcome
	}
}

func (r *Run) start(line report.Line) {
	r.Steps = append(r.Steps, &Step{Name: line.Step, Began: line.Time})
	for _, node := range line.Nodes {
		r.know(node)
	}
}

func (r *Run) know(node string) {
	if node != "" && !r.known[node] {
		r.known[node] = true
		r.Nodes = append(r.Nodes, node)
	}
}

func (r *Run) progress(line report.Line) {
	r.know(line.Node)

	if line.Failed != "" {
		r.Marks = append(r.Marks, Mark{Node: line.Node, Step: line.Step, At: line.Time, Text: line.Failed})
	}

	at, open := r.doing[line.Node]
	if open && r.Spans[at].Step == line.Step && r.Spans[at].Text == line.Text {
		r.Spans[at].To = line.Time
		return
	}

	r.rest(line.Node, line.Time)

	r.doing[line.Node] = len(r.Spans)
	r.Spans = append(r.Spans, Span{Node: line.Node, Step: line.Step, Text: line.Text, From: line.Time, To: line.Time})
}

// rest ends a node's span.
func (r *Run) rest(node string, at time.Time) {
	if span, open := r.doing[node]; open {
		r.Spans[span].To = at
		delete(r.doing, node)
	}
}

func (r *Run) result(line report.Line) {
	r.know(line.Node)
	r.rest(line.Node, line.Time)
	r.Marks = append(r.Marks, Mark{Node: line.Node, Step: line.Step, At: line.Time, Status: line.Status,
		Text: said(line)})

	subject := [2]string{line.Step, line.Node}
	if earlier, replaces := r.resultAt[subject]; replaces && line.Node != "" {
		r.Results[earlier] = line
		return
	}

	r.resultAt[subject] = len(r.Results)
	r.Results = append(r.Results, line)
}

// said is what a result tells besides its status.
func said(line report.Line) string {
	switch {
	case line.Cause != "":
		return line.Cause
	case line.Error != "":
		return line.Error
	default:
		return line.Detail
	}
}

func (r *Run) finish(line report.Line) {
	for node := range r.doing {
		r.rest(node, line.Time)
	}

	for _, step := range slices.Backward(r.Steps) {
		if step.Name == line.Step && step.Ended.IsZero() {
			step.Ended, step.Error = line.Time, line.Error
			return
		}
	}
}

// Word is how the run ended, in a word or two.
func (r *Run) Word() string {
	if r.Outcome == nil {
		return "unfinished"
	}

	switch r.Outcome.Code {
	case diagnosis.ExitOK:
		return "done"
	case diagnosis.ExitDryRun:
		return "would change"
	case diagnosis.ExitInterrupt, diagnosis.ExitTerminated:
		return "stopped"
	default:
		return "failed"
	}
}

// Took is how long the run lasted, or has lasted.
func (r *Run) Took() time.Duration { return r.Last.Sub(r.Began) }
