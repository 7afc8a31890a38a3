package record

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
)

// summary is the form of summary.json; docs/runs.md describes it.
type summary struct {
	Schema  int                 `json:"schema"`
	Run     string              `json:"run"`
	Target  string              `json:"target"`
	Version string              `json:"version"`
	Began   time.Time           `json:"began"`
	Seconds float64             `json:"seconds"`
	Outcome string              `json:"outcome"`
	Code    *diagnosis.ExitCode `json:"code"`
	Message string              `json:"message,omitempty"`
	Steps   []stepSummary       `json:"steps"`
	Results []resultSummary     `json:"results"`
}

type stepSummary struct {
	Step    string  `json:"step"`
	Seconds float64 `json:"seconds"`
	Error   string  `json:"error,omitempty"`
	// Results and Findings are how many there are of each status and severity.
	Results  map[string]int `json:"results,omitempty"`
	Findings map[string]int `json:"findings,omitempty"`
}

type resultSummary struct {
	Step     string        `json:"step"`
	Node     string        `json:"node,omitempty"`
	Address  string        `json:"address,omitempty"`
	Status   report.Status `json:"status"`
	Attempts int           `json:"attempts,omitempty"`
	Seconds  float64       `json:"seconds"`
	Detail   string        `json:"detail,omitempty"`
	ID       string        `json:"id,omitempty"`
	Cause    string        `json:"cause,omitempty"`
	Next     string        `json:"next,omitempty"`
}

// WriteSummary writes how the run went as one JSON document.
func (r *Run) WriteSummary(out io.Writer) error {
	made := summary{Schema: report.Schema, Run: r.Name, Target: r.Target, Version: r.Version, Began: r.Began,
		Seconds: r.Took().Seconds(), Outcome: r.Word(), Steps: []stepSummary{}, Results: []resultSummary{}}

	if r.Outcome != nil {
		made.Code, made.Message = &r.Outcome.Code, r.Outcome.Message
	}

	for _, step := range r.Steps {
		made.Steps = append(made.Steps, r.summaryOf(step))
	}

	for _, line := range r.Results {
		cause := line.Cause
		if cause == "" {
			cause = line.Error
		}

		made.Results = append(made.Results, resultSummary{Step: line.Step, Node: line.Node, Address: line.Address,
			Status: line.Status, Attempts: line.Attempts, Seconds: line.Seconds, Detail: line.Detail, ID: line.ID,
			Cause: cause, Next: line.Next})
	}

	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")

	if err := encoder.Encode(made); err != nil {
		return fmt.Errorf("encode summary: %w", err)
	}

	return nil
}

func (r *Run) summaryOf(step *Step) stepSummary {
	made := stepSummary{Step: step.Name, Seconds: r.stepTook(step).Seconds(), Error: step.Error,
		Results: map[string]int{}, Findings: map[string]int{}}

	for _, result := range r.Results {
		if result.Step == step.Name {
			made.Results[string(result.Status)]++
		}
	}

	for _, finding := range r.Findings {
		if finding.Step == step.Name {
			made.Findings[finding.Severity]++
		}
	}

	return made
}

// stepTook is how long a step lasted; one that did not end lasted to the run's last event.
func (r *Run) stepTook(step *Step) time.Duration {
	if step.Ended.IsZero() {
		return r.Last.Sub(step.Began)
	}

	return step.Ended.Sub(step.Began)
}
