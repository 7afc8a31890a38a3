package steps

import (
	"context"
	"sync"

	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// installWatch listens to a node while it installs: when the install fails the node's API closes within milliseconds,
// and after the reboot that follows nothing on the node tells the reason any more.
type installWatch struct {
	run     *Run
	cancel  context.CancelFunc
	waiting sync.WaitGroup

	mu      sync.Mutex
	running bool
}

// watch starts to listen to a node that installs, unless it does already.
func (w *installWatch) watch(ctx context.Context, seen observe.Observation) {
	if seen.State != talos.Ours || seen.Stage() != "installing" || !w.begin() {
		return
	}

	if w.cancel != nil {
		w.cancel()
	}

	ctx, w.cancel = context.WithCancel(ctx)

	w.waiting.Go(func() {
		defer w.end()

		conn, err := w.run.observer.Dialer().Secure(ctx, seen.Address)
		if err != nil {
			return
		}
		defer conn.Close()

		if words, err := conn.InstallFailure(ctx); err == nil && words != "" {
			w.run.observer.Note(seen.Node, func(facts *observe.Facts) { facts.InstallFailure = words })
		}
	})
}

func (w *installWatch) begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	if w.running {
		return false
	}

	w.running = true

	return true
}

func (w *installWatch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.running = false
}

// stop ends the listening.
func (w *installWatch) stop() {
	if w.cancel != nil {
		w.cancel()
	}

	w.waiting.Wait()
}
