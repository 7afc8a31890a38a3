package steps

import (
	"context"
	"fmt"
	"time"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/wait"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// settle finds out whether a call whose reply was lost took effect. Nothing is sent again before the node was seen.
func (a *applier) settle(ctx context.Context, before observe.Observation, lost error, result *outcome) error {
	var (
		closed time.Time // when the port was first found closed, if it has been since
		again  error
		since  = a.Clock.Now()
	)

	if a.Clock.Sleep(ctx, observeAgain) != nil {
		return a.interrupted(ctx, before.Node)
	}

	waiter := a.waiter()
	waiter.Interrupted = func(ctx context.Context) *diagnosis.Problem { return a.interrupted(ctx, before.Node) }

	failed := waiter.Until(ctx, func(ctx context.Context) wait.State {
		now := a.observer.Observe(ctx, before.Node)
		switch {
		case now.Silence != talos.Refused:
			closed = time.Time{}
		case closed.IsZero():
			closed = now.At
		}

		if arrived := a.arrival(before, now, closed); arrived != "" {
			result.status, result.detail = report.Applied, arrived
			return wait.State{Done: true}
		}

		if a.notArrived(before, now, now.Asked.Sub(since)) {
			a.observer.Note(now.Node, func(facts *observe.Facts) { facts.Sent = nil })
			again = &againError{fmt.Errorf("apply config: %w", lost),
				"the config was sent, but no reply came and the node is unchanged"}

			return wait.State{Done: true}
		}

		return wait.State{
			Problem: a.replaced(before, now),
			Limit: wait.Limit{For: "reply lost: checking whether the config arrived", Since: since,
				Limit: a.Settings.NodeWait},
			Asked: now.Asked, Node: before.Node.Name, Pause: observeAgain,
			TimeUp: func(time.Duration) *diagnosis.Problem {
				return a.problem(now, diagnosis.ApplyOutcomeUnknown,
					"the reply to the config was lost and the node has not answered since: it may or may not have it",
					command("verify", now.Node))
			},
		}
	})
	if failed != nil {
		return failed
	}

	return again
}

// arrival says how an observation shows that the node took the config in; empty if it does not show that. A port that
// is closed for a moment does not: what closed it may be what lost the reply, or the call.
func (a *applier) arrival(before, now observe.Observation, closed time.Time) string {
	switch {
	case now.State == talos.Ours && now.Relation == observe.ConfigSame:
		return "reply lost, the config is there"
	case before.State == talos.Maintenance && !closed.IsZero() && now.Asked.Sub(closed) >= reachable(a.Settings):
		return "reply lost, the node went on to install or boot"
	default:
		return ""
	}
}

// notArrived reports whether the config has to be sent again: the node has long been as it was before.
func (a *applier) notArrived(before, now observe.Observation, waited time.Duration) bool {
	return waited > a.Settings.ReachabilityDelay && !now.NotOurs() && now.Relation != observe.ConfigSwapped &&
		(now.State == talos.Maintenance || now.State == talos.Ours && unchanged(before, now))
}

// replaced is the problem of a node that is something else by now, or runs somebody else's config.
func (a *applier) replaced(before, now observe.Observation) *diagnosis.Problem {
	switch {
	case now.NotOurs():
		return a.notOurs(now)
	case now.Relation == observe.ConfigSwapped:
		return a.swapped(now)
	case now.State == talos.Ours && now.Config != nil && !unchanged(before, now):
		return a.unsent(now)
	default:
		return nil
	}
}

// unchanged reports whether a configured node runs the config that it ran before.
func unchanged(before, now observe.Observation) bool {
	return before.Config != nil && now.Config != nil && machineconfig.Same(before.Config, now.Config)
}
