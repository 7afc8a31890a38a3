package chaos

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
)

// Strike is an incident that has happened.
type Strike struct {
	Incident

	// Time is the wall clock's.
	Time time.Time
	// Ended is set when it was over before everything was healed.
	Ended bool
	// Healthy are the nodes that were well right before it.
	Healthy []string
	// CostsQuorum is set if it took one of etcd's two voters, or the only one.
	CostsQuorum bool
}

// strike makes an incident happen.
func (w *world) strike(incident Incident) {
	strike := Strike{Incident: incident, Time: time.Now()}

	if incident.At.Anchor != Before {
		for _, planned := range w.plan.Machines {
			if w.unhealthy(planned.Name) == "" {
				strike.Healthy = append(strike.Healthy, planned.Name)
			}
		}

		strike.CostsQuorum = incident.cutsPower && w.needsVoter(incident.Node)
	}

	w.mu.Lock()
	w.strikes = append(w.strikes, strike)
	w.mu.Unlock()

	incident.begin(w.node(incident.Node))
}

// needsVoter reports whether etcd has no quorum without a node, as while it grows.
func (w *world) needsVoter(name string) bool {
	voters := slices.DeleteFunc(w.plan.ControlPlanes(), func(other string) bool { return !w.node(other).EtcdVoter() })

	return len(voters) <= 2 && slices.Contains(voters, name)
}

// over ends an incident that passes by itself.
func (w *world) over(incident Incident) {
	incident.end(w.node(incident.Node))

	w.mu.Lock()
	defer w.mu.Unlock()

	for i := range w.strikes {
		if w.strikes[i].Kind == incident.Kind && w.strikes[i].Node == incident.Node {
			w.strikes[i].Ended = true
		}
	}
}

// struck are the incidents that have happened so far.
func (w *world) struck() []Strike {
	w.mu.Lock()
	defer w.mu.Unlock()

	return slices.Clone(w.strikes)
}

// strikeAll makes incidents happen, each at its moment, until it is stopped.
func (w *world) strikeAll(ctx context.Context, incidents ...Incident) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)

	var playing sync.WaitGroup

	for _, incident := range incidents {
		playing.Go(func() { w.play(ctx, incident) })
	}

	return func() {
		cancel()
		playing.Wait()
	}
}

func (w *world) play(ctx context.Context, incident Incident) {
	clock := w.lab.Clock()

	if incident.At.Anchor != Before {
		if w.await(ctx, incident) != nil || clock.Sleep(ctx, incident.At.After) != nil {
			return
		}

		w.strike(incident)
	}

	if incident.For > 0 && clock.Sleep(ctx, incident.For) == nil {
		w.over(incident)
	}
}

// await waits for the anchor of an incident's moment.
func (w *world) await(ctx context.Context, incident Incident) error {
	const look = 500 * time.Millisecond // in the machines' time

	for {
		if w.reached(incident) {
			return nil
		}

		if err := w.lab.Clock().Sleep(ctx, look); err != nil {
			return err
		}
	}
}

func (w *world) reached(incident Incident) bool {
	switch incident.At.Anchor {
	case Configured:
		return accepted(w.node(incident.Node), "ApplyConfiguration")
	case Bootstrapped:
		return slices.ContainsFunc(w.lab.Nodes(), func(node *emulator.Node) bool { return accepted(node, "Bootstrap") })
	default:
		return !w.isGone(incident.Node)
	}
}

// accepted reports whether a call that changes a machine took effect.
func accepted(node *emulator.Node, method string) bool {
	return slices.ContainsFunc(node.MutatingCalls(),
		func(call emulator.Call) bool { return call.Name() == method && call.Succeeded() })
}
