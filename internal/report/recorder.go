package report

import (
	"sync"
	"time"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Recorder takes in what happens during a run, passes it to the sinks and keeps the results. Safe for concurrent use.
type Recorder struct {
	// Reword, if set, is applied to what people read: it names the program as they called it.
	Reword func(string) string

	mu       sync.Mutex
	now      func() time.Time
	sinks    []Sink
	results  []Result
	findings []diagnosis.Finding
	// said are the causes that people were told.
	said told
}

// NewRecorder records with the given source of time.
func NewRecorder(now func() time.Time, sinks ...Sink) *Recorder {
	return &Recorder{now: now, sinks: sinks, said: told{}}
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

// Begin opens the run.
func (r *Recorder) Begin(began Began) { r.emit(Event{Began: &began}) }

// End closes the run.
func (r *Recorder) End(ended Ended) { r.emit(Event{Ended: &ended}) }

// Start opens a step.
func (r *Recorder) Start(step string, nodes ...string) {
	r.emit(Event{Step: step, Started: &Started{Nodes: nodes}})
}

// reworded is a text, or several, as people read it.
func (r *Recorder) reworded(texts ...*string) {
	for _, text := range texts {
		if r.Reword != nil {
			*text = r.Reword(*text)
		}
	}
}

// rewordedError is an error as people read it: a problem's cause and next command are.
func (r *Recorder) rewordedError(err error) error {
	problem, ok := diagnosis.AsProblem(err)
	if !ok || r.Reword == nil {
		return err
	}

	shown := *problem
	r.reworded(&shown.Cause, &shown.Next)

	return &shown
}

// Progress says what a node is doing within a step.
func (r *Recorder) Progress(step string, progress Progress) {
	r.emit(Event{Step: step, Progress: &progress})
}

func (r *Recorder) say(finding diagnosis.Finding) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.said.add(finding)
}

// Told reports whether people have read a problem's cause.
func (r *Recorder) Told(problem *diagnosis.Problem) bool {
	r.mu.Lock()
	defer r.mu.Unlock()

	return r.said.has(problem.Finding)
}

// Idle takes back what a node was said to be doing.
func (r *Recorder) Idle(step, node string) { r.Progress(step, Progress{Node: node}) }

// Finding records a finding of a step.
func (r *Recorder) Finding(step string, finding diagnosis.Finding) {
	r.say(finding)
	r.reworded(&finding.Cause, &finding.Next)
	r.emit(Event{Step: step, Finding: &finding})
}

// Result records how the step ended for a node.
func (r *Recorder) Result(result Result) {
	if problem, ok := diagnosis.AsProblem(result.Err); ok {
		r.say(problem.Finding)
	}

	r.reworded(&result.Detail)
	result.Err = r.rewordedError(result.Err)
	r.emit(Event{Step: result.Step, Result: &result})
}

// Finish closes a step.
func (r *Recorder) Finish(step string, duration time.Duration, err error) {
	r.emit(Event{Step: step, Finished: &Finished{Duration: duration, Err: r.rewordedError(err)}})
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
