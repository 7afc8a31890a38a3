package steps

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/discover"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// searchAgain is the shortest pause between two searches of the networks while nodes are waited for.
const searchAgain = 30 * time.Second

// finder finds the machines of nodes that are silent where they are expected. Whoever asks while a search goes on has
// its answer too.
type finder struct {
	mu       sync.Mutex
	searched time.Time
	machines []discover.Machine
}

// find searches the networks, unless that has just been done, and reports whether the node's machine answers at an
// address that was not known. A search that fails has found nothing: the node's silence is reported in any case.
func (f *finder) find(ctx context.Context, run *Run, node *inventory.Node) bool {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.searched.IsZero() || run.Clock.Now().Sub(f.searched) >= searchAgain {
		found, err := run.search(ctx)
		if ctx.Err() != nil {
			return false
		}

		if err != nil {
			run.Log.Warn().Msg("the machines can't be looked for: " + talos.Explain(err))
		}

		f.machines, f.searched = found.Machines, run.Clock.Now()
	}

	machine, identified := run.observer.Identify(node, f.machines)
	if !identified {
		return false
	}

	lease, moved := run.observer.FoundAt(node, machine)
	if moved {
		run.Log.Info().Str("node", node.Name).Msg(fmt.Sprintf("its machine was at %s, now at %s",
			run.observer.Facts(node).MovedFrom, lease.Address))
	}

	return moved
}

// lookFor looks, once, for the machine of a node that is not where an earlier search found it.
func (r *Run) lookFor(ctx context.Context, node *inventory.Node, why string) bool {
	r.Log.Warn().Str("node", node.Name).Msg(why + ": looking for its machine")

	return r.finder.find(ctx, r, node)
}

// follow looks for the machine of a node that does not answer where it was, or in whose place another one does, as
// when a DHCP server gives it another lease; if that was asked for. It reports whether it answers elsewhere.
func (w *work) follow(ctx context.Context, seen observe.Observation) bool {
	return w.Settings.Discover && w.finder.find(ctx, w.Run, seen.Node)
}
