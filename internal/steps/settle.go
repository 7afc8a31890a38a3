package steps

import (
	"context"
	"fmt"
	"time"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// settle finds out whether a call whose reply was lost took effect. Nothing is sent again before the node was seen.
func (a *applier) settle(ctx context.Context, before observe.Observation, lost error, result *outcome) error {
	var closed time.Time // when the port was first found closed, if it has been since

	for since := a.Clock.Now(); ; {
		if a.Clock.Sleep(ctx, lookAgain) != nil {
			return a.interrupted(ctx, before.Node, a.step)
		}

		now := a.observer.Observe(ctx, before.Node)
		waited := now.Asked.Sub(since)

		switch {
		case now.Silence != talos.Refused:
			closed = time.Time{}
		case closed.IsZero():
			closed = now.At
		}

		if arrived := a.arrival(before, now, closed); arrived != "" {
			result.status, result.detail = report.Applied, arrived

			return nil
		}

		if err := a.notArrived(before, now, waited, lost); err != nil {
			return err
		}

		a.Report.Progress(a.step, report.Progress{
			Node: before.Node.Name, Text: "reply lost: looking whether the config arrived", Since: since,
			Left: a.Settings.NodeWait - waited,
		})
	}
}

// arrival says how a look shows that the node took the config in; empty if it does not show that. A port that is closed
// for a moment does not: what closed it may be what lost the reply, or the call.
func (a *applier) arrival(before, now observe.Observation, closed time.Time) string {
	switch {
	case now.State == talos.Ours && now.Relation == observe.ConfigSame:
		return "reply lost, the config is there"
	case before.State == talos.Maintenance && !closed.IsZero() &&
		(now.Asked.Sub(closed) >= a.reachable() || a.Settings.NoWait):
		return "reply lost, the node went on to install or boot"
	default:
		return ""
	}
}

// notArrived reports whether the config has to be sent again (*againError), that something is wrong, or nil: that it is
// too early to say.
func (a *applier) notArrived(before, now observe.Observation, waited time.Duration, lost error) error {
	settled := waited > a.Settings.ReachabilityDelay

	switch {
	case now.NotOurs():
		return a.strangerProblem(a.step, now)
	case now.Relation == observe.ConfigSwapped:
		return a.swappedProblem(a.step, now)
	case now.State == talos.Maintenance && settled, now.State == talos.Ours && unchanged(before, now) && settled:
		a.observer.Note(now.Node, func(facts *observe.Facts) { facts.Sent = nil })

		return &againError{fmt.Errorf("apply config: %w", lost),
			"the config was sent, no reply came, and the node is as before"}
	case now.State == talos.Ours && now.Config != nil && !unchanged(before, now):
		return a.unsentProblem(a.step, now)
	case waited > a.Settings.NodeWait || a.Settings.NoWait:
		return a.problem(a.step, now, diagnosis.ApplyOutcomeUnknown,
			"the reply to the config was lost and the node has not answered since: it may or may not have it",
			command("verify", now.Node))
	default:
		return nil
	}
}

// unchanged reports whether a configured node runs the config that it ran before.
func unchanged(before, now observe.Observation) bool {
	return before.Config != nil && now.Config != nil && machineconfig.Same(before.Config, now.Config)
}
