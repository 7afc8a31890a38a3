package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Schema is the version of the lines' form, which docs/runs.md describes. It grows when a field changes its meaning or
// goes; readers are to overlook fields that they don't know.
const Schema = 1

// eventStart is what every line begins with.
const eventStart = `{"time":"`

// Kinds of lines.
const (
	KindRun      = "run"
	KindStarted  = "started"
	KindProgress = "progress"
	KindFinding  = "finding"
	KindResult   = "result"
	KindFinished = "finished"
	KindOutcome  = "outcome"
)

// Line is an event as it is written and read: one JSON object. Fields that don't belong to the kind of event are left
// out; times are UTC, durations are seconds, and secrets are masked.
type Line struct {
	Time     time.Time           `json:"time"`
	Event    string              `json:"event"`
	Schema   int                 `json:"schema,omitempty"`
	Target   string              `json:"target,omitempty"`
	Version  string              `json:"version,omitempty"`
	Settings []Setting           `json:"settings,omitempty"`
	Step     string              `json:"step,omitempty"`
	Nodes    []string            `json:"nodes,omitempty"`
	Node     string              `json:"node,omitempty"`
	Address  string              `json:"address,omitempty"`
	Text     string              `json:"text,omitempty"`
	Since    time.Time           `json:"since,omitzero"`
	Left     float64             `json:"left,omitempty"`
	Failed   string              `json:"failed,omitempty"`
	ID       string              `json:"id,omitempty"`
	Severity string              `json:"severity,omitempty"`
	Cause    string              `json:"cause,omitempty"`
	Next     string              `json:"next,omitempty"`
	At       *Place              `json:"at,omitempty"`
	Skipped  bool                `json:"skipped,omitempty"`
	Status   Status              `json:"status,omitempty"`
	Attempts int                 `json:"attempts,omitempty"`
	Seconds  float64             `json:"seconds,omitempty"`
	Detail   string              `json:"detail,omitempty"`
	Error    string              `json:"error,omitempty"`
	Code     *diagnosis.ExitCode `json:"code,omitempty"`
	Message  string              `json:"message,omitempty"`
}

// Place is where in a file a finding is.
type Place struct {
	Path   string `json:"path"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Text   string `json:"text,omitempty"`
}

// LineOf is an event as a line, and whether it is worth one.
func LineOf(event Event) (Line, bool) {
	line := Line{Time: event.Time.UTC(), Step: event.Step}

	switch {
	case event.Began != nil:
		line.setBegan(*event.Began)
	case event.Started != nil:
		line.Event, line.Nodes = KindStarted, event.Started.Nodes
	case event.Progress != nil && event.Progress.Text == "":
		return Line{}, false
	case event.Progress != nil:
		line.setProgress(*event.Progress)
	case event.Finding != nil:
		line.Event = KindFinding
		line.setFinding(*event.Finding)
	case event.Result != nil:
		line.setResult(*event.Result)
	case event.Finished != nil:
		line.Event, line.Seconds = KindFinished, event.Finished.Duration.Seconds()
		if event.Finished.Err != nil {
			line.Error = Scrub(event.Finished.Err.Error())
		}
	case event.Ended != nil:
		line.Event, line.Code, line.Message = KindOutcome, &event.Ended.Code, Scrub(event.Ended.Message)
	default:
		return Line{}, false
	}

	return line, true
}

func (l *Line) setBegan(began Began) {
	l.Event, l.Schema, l.Target, l.Version = KindRun, Schema, began.Target, began.Version
	for _, setting := range began.Settings {
		setting.Value = Scrub(setting.Value)
		l.Settings = append(l.Settings, setting)
	}
}

func (l *Line) setProgress(progress Progress) {
	l.Event, l.Node, l.Text, l.Failed = KindProgress, progress.Node, Scrub(progress.Text), Scrub(progress.Failed)
	l.Since, l.Left = progress.Since.UTC(), progress.Left.Seconds()
}

func (l *Line) setResult(result Result) {
	if problem, ok := diagnosis.AsProblem(result.Err); ok {
		l.setFinding(problem.Finding)
	}

	if result.Err != nil {
		l.Error = Scrub(result.Err.Error())
	}

	l.Event, l.Node, l.Address, l.Status = KindResult, result.Node, result.Address, result.Status
	l.Attempts, l.Seconds, l.Detail = result.Attempts, result.Duration.Seconds(), Scrub(result.Detail)
}

func (l *Line) setFinding(finding diagnosis.Finding) {
	l.ID, l.Severity, l.Node, l.Address = string(finding.ID), finding.Severity.String(), finding.Node, finding.Address
	l.Cause, l.Next, l.Skipped = Scrub(finding.Cause), Scrub(finding.Next), finding.Skipped

	if at := finding.At; at.Path != "" {
		l.At = &Place{Path: Scrub(at.Path), Line: at.Line, Column: at.Column, Text: Scrub(at.Text)}
	}
}

// Write appends the line to a file.
func (l *Line) Write(out io.Writer) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)

	return encoder.Encode(l) //nolint:wrapcheck // it names the file
}

// ReadLine is what one line of a file says.
func ReadLine(text []byte) (Line, error) {
	var line Line
	if err := json.Unmarshal(text, &line); err != nil {
		return Line{}, fmt.Errorf("it is no JSON object of an event: %w", err)
	}

	switch {
	case line.Event == KindRun && line.Schema > Schema:
		return Line{}, fmt.Errorf("its schema is %d, of a newer program: this one knows %d", line.Schema, Schema)
	case line.Event == "" || line.Time.IsZero():
		return Line{}, errors.New("it has no event or no time")
	default:
		return line, nil
	}
}

// AsEvent is the event that the line was made of. What was masked stays so.
func (l *Line) AsEvent() Event {
	event := Event{Time: l.Time, Step: l.Step}

	switch l.Event {
	case KindStarted:
		event.Started = &Started{Nodes: l.Nodes}
	case KindFinding:
		finding := l.finding()
		event.Finding = &finding
	case KindResult:
		event.Result = &Result{Node: l.Node, Address: l.Address, Step: l.Step, Status: l.Status, Attempts: l.Attempts,
			Duration: seconds(l.Seconds), Detail: l.Detail, Err: l.err()}
	case KindFinished:
		event.Finished = &Finished{Duration: seconds(l.Seconds), Err: l.err()}
	}

	return event
}

func seconds(number float64) time.Duration { return time.Duration(number * float64(time.Second)) }

func (l *Line) finding() diagnosis.Finding {
	finding := diagnosis.Finding{ID: diagnosis.ID(l.ID), Node: l.Node, Address: l.Address, Cause: l.Cause, Next: l.Next,
		Skipped: l.Skipped}

	for _, severity := range []diagnosis.Severity{diagnosis.NotRun, diagnosis.OK, diagnosis.Warning, diagnosis.Failure} {
		if severity.String() == l.Severity {
			finding.Severity = severity
		}
	}

	if l.At != nil {
		finding.At = diagnosis.Location{Path: l.At.Path, Line: l.At.Line, Column: l.At.Column, Text: l.At.Text}
	}

	return finding
}

func (l *Line) err() error {
	switch {
	case l.Error == "":
		return nil
	case l.ID != "":
		return l.finding().Problem(l.Step, errors.New(l.Error))
	default:
		return errors.New(l.Error)
	}
}
