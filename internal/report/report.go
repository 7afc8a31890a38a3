// Package report shows what happens in a run: its events, the sinks that print or store them, and the closing table of
// steps. What `status` prints is not made here, but in package steps.
package report

import (
	"time"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Status is how a step ended for a node.
type Status string

// Statuses.
const (
	OK      Status = "ok"
	Applied Status = "applied"
	Skipped Status = "skipped"
	Drifted Status = "drifted"
	Joining Status = "joining"
	Warned  Status = "warning"
	Failed  Status = "failed"
	Refused Status = "refused"      // before anything was done to it
	Planned Status = "would change" // dry run
)

// Bad reports whether a step did not do what it was called for.
func (s Status) Bad() bool { return s == Failed || s == Refused }

// Result is how one step ended for one node.
type Result struct {
	// Node is the inventory's name; empty for a step that concerns the cluster as a whole.
	Node     string        `json:"node,omitempty"`
	Address  string        `json:"address,omitempty"`
	Step     string        `json:"step"`
	Status   Status        `json:"status"`
	Attempts int           `json:"attempts,omitempty"`
	Duration time.Duration `json:"duration"`
	// Detail is a short remark: "installed", "4 nodes", "etcd member 8e9e05c52164694d".
	Detail string `json:"detail,omitempty"`
	Err    error  `json:"-"`
}

// Event is one thing that happened; exactly one of the pointers is set.
type Event struct {
	Time     time.Time
	Step     string
	Began    *Began             // the run begins
	Started  *Started           // a step begins
	Progress *Progress          // a node's state within the step
	Finding  *diagnosis.Finding // preflight and other findings
	Result   *Result            // a node is done with the step
	Finished *Finished          // a step ends
	Ended    *Ended             // the run ends
}

// Began opens a run.
type Began struct {
	Target string
	// Version is the program's.
	Version  string
	Settings []Setting
}

// Setting is one setting of a run, as people may see it.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Given tells what somebody set from what is so by default.
	Given bool `json:"given,omitempty"`
}

// Ended closes a run.
type Ended struct {
	Code diagnosis.ExitCode
	// Message is what people read last; empty if all went well.
	Message string
}

// Started opens a step for the given nodes (none: the cluster as a whole).
type Started struct{ Nodes []string }

// Progress is a sign of life: what a node does now, since when, and how long it may still take.
type Progress struct {
	Node string
	// Text is a few words: "installing", "no answer", "waiting for trustd". Without any there is nothing to say of the
	// node at the moment.
	Text string
	// Since is when this began; Left how long it may still last (0: no limit known).
	Since time.Time
	Left  time.Duration
	// Failed is why the attempt failed that is now waited to be repeated; mostly empty.
	Failed string
}

// Finished closes a step.
type Finished struct {
	Duration time.Duration
	Err      error
}

// Sink receives the events of a run, in order, one at a time.
type Sink interface {
	Handle(Event)
	// Close flushes what is pending; nothing is handled afterwards.
	Close() error
}
