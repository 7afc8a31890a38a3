package report

import (
	"sync"
	"time"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Recorder takes in what happens during a run, passes it to the sinks and keeps the results. Safe for concurrent use.
type Recorder struct {
	mu       sync.Mutex
	now      func() time.Time
	sinks    []Sink
	results  []Result
	findings []diagnosis.Finding
}

// NewRecorder records with the given source of time.
func NewRecorder(now func() time.Time, sinks ...Sink) *Recorder {
	return &Recorder{now: now, sinks: sinks}
}

func (r *Recorder) emit(event Event) {
	r.mu.Lock()
	defer r.mu.Unlock()

	event.Time = r.now()
	if event.Result != nil {
		r.results = append(r.results, *event.Result)
	}

	if event.Finding != nil {
		r.findings = append(r.findings, *event.Finding)
	}

	for _, sink := range r.sinks {
		sink.Handle(event)
	}
}

// Start opens a step.
func (r *Recorder) Start(step string, nodes ...string) {
	r.emit(Event{Step: step, Started: &Started{Nodes: nodes}})
}

// Progress says what a node is doing within a step.
func (r *Recorder) Progress(step string, progress Progress) {
	r.emit(Event{Step: step, Progress: &progress})
}

// Finding records a finding of a step.
func (r *Recorder) Finding(step string, finding diagnosis.Finding) {
	r.emit(Event{Step: step, Finding: &finding})
}

// Result records how the step ended for a node.
func (r *Recorder) Result(result Result) {
	r.emit(Event{Step: result.Step, Result: &result})
}

// Finish closes a step.
func (r *Recorder) Finish(step string, duration time.Duration, err error) {
	r.emit(Event{Step: step, Finished: &Finished{Duration: duration, Err: err}})
}

// Results are the results so far, in the order they came.
func (r *Recorder) Results() []Result {
	r.mu.Lock()
	defer r.mu.Unlock()

	return append([]Result(nil), r.results...)
}

// Findings are the findings so far, in the order they came.
func (r *Recorder) Findings() []diagnosis.Finding {
	r.mu.Lock()
	defer r.mu.Unlock()

	return append([]diagnosis.Finding(nil), r.findings...)
}

// Close closes the sinks.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()

	var first error
	for _, sink := range r.sinks {
		if err := sink.Close(); err != nil && first == nil {
			first = err
		}
	}

	return first
}
