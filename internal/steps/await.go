package steps

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/wait"
	"github.com/talos-mage/talos-mage/internal/talos"
)

const (
	// redialFirst and redialLast bound the wait between two dials of a closed port.
	redialFirst = 250 * time.Millisecond
	redialLast  = 500 * time.Millisecond
	// observeAgain is the wait between two observations of a node that answers and isn't watched.
	observeAgain = 800 * time.Millisecond
)

// verdict is what a step makes of one observation.
type verdict struct {
	// done ends the wait well; problem ends it badly; neither goes on.
	done    bool
	problem *diagnosis.Problem
	// doing is what the node does meanwhile, in a few words.
	doing string
}

// await observes a node until the judge is satisfied or one of its three clocks has run out: still in maintenance,
// silent, or answering with an unchanged stage.
func (w *work) await(ctx context.Context, node *inventory.Node,
	judge func(context.Context, observe.Observation) verdict) (seen observe.Observation, failed *diagnosis.Problem) {
	var clocks clocks

	install := installWatch{observer: w.observer}
	defer install.stop()

	visit := w.observer.Visit(node)
	defer visit.Close()

	waiter, redial := w.waiter(), redialFirst
	waiter.Interrupted = func(ctx context.Context) *diagnosis.Problem { return w.interrupted(ctx, node) }

	failed = waiter.Until(ctx, func(ctx context.Context) wait.State {
		seen = visit.Observe(ctx)
		if (seen.Silent() || seen.Wrong != nil) && w.follow(ctx, seen) {
			seen = visit.Observe(ctx)
		}

		verdict := judge(ctx, seen)
		switch {
		case verdict.problem != nil || verdict.done:
			return wait.State{Done: verdict.done, Problem: verdict.problem}
		case seen.FailedForGood():
			return wait.State{Problem: w.readFailure(seen)}
		}

		install.watch(ctx, seen)

		clock, pause := clocks.tick(w.observer, seen), redial
		if verdict.doing != "" {
			clock.For = verdict.doing
		}

		if seen.Silent() {
			redial = min(2*redial, redialLast)
		} else {
			redial, pause = redialFirst, w.pauseWhileAnswering(seen)
		}

		return wait.State{
			Limit: clock.Limit, Asked: seen.Asked, Node: node.Name, Silent: w.observer.SilentByItself(seen), Pause: pause,
			Rest:   func(ctx context.Context, pause time.Duration) error { return w.rest(ctx, visit, seen, pause) },
			TimeUp: func(waited time.Duration) *diagnosis.Problem { return w.stuck(seen, clock, waited) },
		}
	})

	return seen, failed
}

// pauseWhileAnswering is the gap between two observations of a node that answers. What a booting node still lacks shows
// in its status, which is watched; anything else has to be asked for.
func (w *work) pauseWhileAnswering(seen observe.Observation) time.Duration {
	if watched(seen) && seen.Installed() {
		return w.Settings.CheckInterval
	}

	return min(w.Settings.CheckInterval, observeAgain)
}

// watched reports whether the node's status is watched between two observations. A watch on a node that is about to
// reboot would hold up its shutdown, so only a booting one is, and not beside an unattended install: of that its status
// tells nothing.
func watched(seen observe.Observation) bool {
	return seen.State == talos.Ours && seen.Stage() == talos.StageBooting && !seen.Installing()
}

// rest waits until the next observation: a booting node is watched, so that a change of its status ends it at once.
func (w *work) rest(ctx context.Context, visit *observe.Visit, seen observe.Observation, pause time.Duration) error {
	if !watched(seen) {
		return w.Clock.Sleep(ctx, pause)
	}

	conn := visit.Conn()
	if conn == nil {
		return w.Clock.Sleep(ctx, min(pause, observeAgain))
	}

	watching, stop := w.Clock.WithTimeout(ctx, pause)
	defer stop()

	for update := range conn.WatchStatus(watching) {
		switch {
		case update.Err != nil && watching.Err() == nil:
			return w.Clock.Sleep(ctx, min(pause, observeAgain))
		case update.Err == nil && !update.Status.Same(*seen.Status):
			return nil
		}
	}

	<-watching.Done()

	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	return nil
}

// installWatch listens to a node while it installs. When an install fails that has a stage of its own, the node's API
// closes within milliseconds, and after the reboot that follows nothing on the node tells the reason any more; that of
// an unattended one shows only for a moment before the next try.
type installWatch struct {
	observer *observe.Observer
	cancel   context.CancelFunc
	waiting  sync.WaitGroup
	running  atomic.Bool
}

// watch starts to listen to a node that installs, unless it does already.
func (w *installWatch) watch(ctx context.Context, seen observe.Observation) {
	if !seen.TellsFailure() || !w.running.CompareAndSwap(false, true) {
		return
	}

	if w.cancel != nil {
		w.cancel()
	}

	ctx, w.cancel = context.WithCancel(ctx)

	w.waiting.Go(func() {
		defer w.running.Store(false)

		w.observer.ListenForFailure(ctx, seen)
	})
}

// stop ends the listening.
func (w *installWatch) stop() {
	if w.cancel != nil {
		w.cancel()
	}

	w.waiting.Wait()
}
