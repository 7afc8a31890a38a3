package steps

import (
	"context"
	"fmt"
	"time"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// settle finds out whether a call whose reply was lost took effect. Nothing is sent again before the node was seen.
func (a *applier) settle(ctx context.Context, before sight, lost error, result *outcome) error {
	var closed time.Time // when the port was first found closed, if it has been since

	for since := a.Clock.Now(); ; {
		if a.Clock.Sleep(ctx, lookAgain) != nil {
			return a.interrupted(ctx, before.node, a.step)
		}

		now := a.look(ctx, before.node)
		waited := now.asked.Sub(since)

		switch {
		case now.Silence != talos.Refused:
			closed = time.Time{}
		case closed.IsZero():
			closed = now.at
		}

		if arrived := a.arrival(before, now, closed); arrived != "" {
			result.status, result.detail = report.Applied, arrived

			return nil
		}

		if err := a.notArrived(before, now, waited, lost); err != nil {
			return err
		}

		a.Report.Progress(a.step, report.Progress{
			Node: before.node.Name, Text: "reply lost: looking whether the config arrived", Since: since,
			Left: a.Settings.NodeWait - waited,
		})
	}
}

// arrival says how a look shows that the node took the config in; empty if it does not show that. A port that is closed
// for a moment does not: what closed it may be what lost the reply, or the call.
func (a *applier) arrival(before, now sight, closed time.Time) string {
	switch {
	case now.State == talos.Ours && now.config == configSame:
		return "reply lost, the config is there"
	case before.State == talos.Maintenance && !closed.IsZero() &&
		(now.asked.Sub(closed) >= a.reachable() || a.Settings.NoWait):
		return "reply lost, the node went on to install or boot"
	default:
		return ""
	}
}

// notArrived reports whether the config has to be sent again (*againError), that something is wrong, or nil: that it is
// too early to say.
func (a *applier) notArrived(before, now sight, waited time.Duration, lost error) error {
	settled := waited > a.Settings.ReachabilityDelay

	switch {
	case now.stranger():
		return a.strangerProblem(a.step, now)
	case now.config == configSwapped:
		return a.swappedProblem(a.step, now)
	case now.State == talos.Maintenance && settled, now.State == talos.Ours && unchanged(before, now) && settled:
		a.memory.of(now.node).remember(func(facts *nodeFacts) { facts.sent = nil })

		return &againError{fmt.Errorf("apply config: %w", lost),
			"the config was sent, no reply came, and the node is as before"}
	case now.State == talos.Ours && now.running != nil && !unchanged(before, now):
		return a.unsentProblem(a.step, now)
	case waited > a.Settings.NodeWait || a.Settings.NoWait:
		return a.problem(a.step, now, diagnosis.ApplyOutcomeUnknown,
			"the reply to the config was lost and the node has not answered since: it may or may not have it",
			command("verify", now.node))
	default:
		return nil
	}
}

// unchanged reports whether a configured node runs the config that it ran before.
func unchanged(before, now sight) bool {
	return before.running != nil && now.running != nil && machineconfig.Same(before.running, now.running)
}
