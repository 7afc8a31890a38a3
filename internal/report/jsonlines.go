package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// JSONLines writes every event as one JSON object a line. The names of the fields are stable; secrets are masked.
type JSONLines struct {
	out io.Writer
	err error
}

// NewJSONLines writes to out. The first error of writing is kept for Close.
func NewJSONLines(out io.Writer) *JSONLines { return &JSONLines{out: out} }

// eventStart is what every line begins with.
const eventStart = `{"time":"`

// jsonEvent is the form of a line. Fields that don't belong to the kind of event are left out; times are UTC, durations
// are seconds.
type jsonEvent struct {
	Time     time.Time `json:"time"`
	Event    string    `json:"event"` // started, progress, finding, result, finished
	Step     string    `json:"step"`
	Nodes    []string  `json:"nodes,omitempty"`
	Node     string    `json:"node,omitempty"`
	Address  string    `json:"address,omitempty"`
	Text     string    `json:"text,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	Left     float64   `json:"left,omitempty"`
	ID       string    `json:"id,omitempty"`
	Severity string    `json:"severity,omitempty"`
	Cause    string    `json:"cause,omitempty"`
	Next     string    `json:"next,omitempty"`
	Skipped  bool      `json:"skipped,omitempty"`
	Status   Status    `json:"status,omitempty"`
	Attempts int       `json:"attempts,omitempty"`
	Seconds  float64   `json:"seconds,omitempty"`
	Detail   string    `json:"detail,omitempty"`
	Error    string    `json:"error,omitempty"`
}

// Handle writes the event.
func (j *JSONLines) Handle(event Event) {
	line := jsonEvent{Time: event.Time.UTC(), Step: event.Step}
	switch {
	case event.Started != nil:
		line.Event, line.Nodes = "started", event.Started.Nodes
	case event.Progress != nil && event.Progress.Text == "":
		return
	case event.Progress != nil:
		line.Event, line.Node, line.Text = "progress", event.Progress.Node, Scrub(event.Progress.Text)
		line.Since, line.Left = event.Progress.Since.UTC(), event.Progress.Left.Seconds()
	case event.Finding != nil:
		line.Event = "finding"
		line.setFinding(*event.Finding)
	case event.Result != nil:
		result := event.Result
		line.Event, line.Node, line.Address, line.Status = "result", result.Node, result.Address, result.Status
		line.Attempts, line.Seconds, line.Detail = result.Attempts, result.Duration.Seconds(), Scrub(result.Detail)
		line.setError(result.Err)
	case event.Finished != nil:
		line.Event, line.Seconds = "finished", event.Finished.Duration.Seconds()
		if event.Finished.Err != nil {
			line.Error = Scrub(event.Finished.Err.Error())
		}
	default:
		return
	}

	encoder := json.NewEncoder(j.out)
	encoder.SetEscapeHTML(false)

	if err := encoder.Encode(line); err != nil && j.err == nil {
		j.err = fmt.Errorf("write event: %w", err)
	}
}

// setError gives the parts of a problem, or an error's text.
func (e *jsonEvent) setError(err error) {
	if err == nil {
		return
	}

	node, address := e.Node, e.Address

	if problem, ok := diagnosis.AsProblem(err); ok {
		e.setFinding(problem.Finding)
	}

	e.Node, e.Address = node, address
	e.Error = Scrub(err.Error())
}

func (e *jsonEvent) setFinding(finding diagnosis.Finding) {
	e.ID, e.Severity, e.Node, e.Address = string(finding.ID), finding.Severity.String(), finding.Node, finding.Address
	e.Cause, e.Next, e.Skipped = Scrub(finding.Cause), Scrub(finding.Next), finding.Skipped
}

// Close closes what is written to, if it can be closed, and gives the first error of writing.
func (j *JSONLines) Close() error {
	if closer, ok := j.out.(io.Closer); ok {
		return errors.Join(j.err, closer.Close())
	}

	return j.err
}
