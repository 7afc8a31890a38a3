// Package wait is how steps wait: they look, again and again, until what they see is what they want, or the limit of
// that wait has run out. A wait is data and a condition; the looking, the pauses, the lines that say what is waited for
// and how long, and the signal that ends it are the same for all.
package wait

import (
	"context"
	"slices"
	"time"

	"github.com/talos-mage/talos-mage/internal/base/clock"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
)

// Limit bounds a wait.
type Limit struct {
	// For is what is waited for, in a few words.
	For string
	// Since is when that began, Limit how long it may last.
	Since time.Time
	Limit time.Duration
}

// Left is what was left when somebody was asked. One who falls silent meanwhile makes a look long: that says nothing of
// the time since.
func (l Limit) Left(asked time.Time) time.Duration { return min(l.Limit, l.Limit-asked.Sub(l.Since)) }

// State is what one look came to.
type State struct {
	// Done ends the wait well, Problem badly; neither goes on.
	Done    bool
	Problem *diagnosis.Problem

	Limit
	// Asked is when the look began; the zero value: when Until called it.
	Asked time.Time
	// Node is whose line says what is waited for; empty for the cluster as a whole. Lines, if there are any, say it
	// instead.
	Node  string
	Lines []Line
	// Silent is set when nobody answers whom the run has reason to expect: without waiting (-noWait) that ends it.
	Silent bool
	// Pause is the longest time until the next look; Rest, if set, passes it in another way than asleep.
	Pause time.Duration
	Rest  func(ctx context.Context, pause time.Duration) error
	// TimeUp is the problem when the limit has run out, after so long a wait; nil where the next look decides about that.
	TimeUp func(waited time.Duration) *diagnosis.Problem
}

// Line says of one node what it is waited for.
type Line struct{ Node, Text string }

// Waiter waits on behalf of a step.
type Waiter struct {
	Step   string
	Clock  clock.Clock
	Report *report.Recorder
	// NoWait ends waits for those who are silent, and no others.
	NoWait bool
	// Interrupted is the problem when the context is done.
	Interrupted func(ctx context.Context) *diagnosis.Problem
}

// Until looks until a state ends the wait; nil if it ends well. What it said of nodes is taken back when it is over.
func (w *Waiter) Until(ctx context.Context, look func(context.Context) State) *diagnosis.Problem {
	var said lines
	defer func() { w.takeBack(said) }()

	for {
		asked := w.Clock.Now()
		state := look(ctx)
		if !state.Asked.IsZero() {
			asked = state.Asked
		}

		switch left := state.Left(asked); {
		case ctx.Err() != nil:
			return w.Interrupted(ctx)
		case state.Problem != nil || state.Done:
			return state.Problem
		case state.TimeUp != nil && (left <= 0 || w.NoWait && state.Silent):
			return state.TimeUp(w.Clock.Now().Sub(state.Since).Round(time.Second))
		default:
			said = w.tell(state, left, said)

			pause := state.Pause
			if left > 0 {
				pause = min(pause, left)
			}

			if w.rest(ctx, state, pause) != nil {
				return w.Interrupted(ctx)
			}
		}
	}
}

// lines are what was said last, of whom.
type lines []Line

// tell says what is waited for, and what is left of the time. What was said of others before is no longer so.
func (w *Waiter) tell(state State, left time.Duration, before lines) lines {
	now := lines(state.Lines)
	if len(now) == 0 && state.For != "" {
		now = lines{{state.Node, state.For}}
	}

	w.takeBack(slices.DeleteFunc(before, now.name))

	for _, line := range now {
		w.Report.Progress(w.Step, report.Progress{Node: line.Node, Text: line.Text, Since: state.Since, Left: left})
	}

	return now
}

// name reports whether the lines say something of the node that another one is about.
func (l lines) name(other Line) bool {
	return slices.ContainsFunc(l, func(line Line) bool { return line.Node == other.Node })
}

func (w *Waiter) takeBack(said lines) {
	for _, line := range said {
		w.Report.Idle(w.Step, line.Node)
	}
}

func (w *Waiter) rest(ctx context.Context, state State, pause time.Duration) error {
	if state.Rest != nil {
		return state.Rest(ctx, pause)
	}

	return w.Clock.Sleep(ctx, pause)
}
