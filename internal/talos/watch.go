package talos

import (
	"context"
	"errors"
	"fmt"
	"time"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/protobuf/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
)

// watchLimit is how long a watch lasts at most.
const watchLimit = time.Minute

// ErrWatchOver ends a watch that lasted as long as watches may: probe the node and watch again.
var ErrWatchOver = errors.New("the watch is over")

// StatusUpdate is one update of a watch. The last one before the channel is closed carries the error that ended the
// watch.
type StatusUpdate struct {
	Status Status
	Err    error
}

// WatchStatus follows the node's status: first the present one, then each change.
//
// A watch is short on purpose: it ends after a minute (ErrWatchOver), with the first error, when the node stops
// answering, and once the node is about to go down, since an open stream delays its reboot. The caller then probes the
// node and, if it still makes sense, watches again: what the connection was good for may have changed with the node's
// state. The channel must be read until it is closed, or the context cancelled.
func (c *Conn) WatchStatus(ctx context.Context) <-chan StatusUpdate {
	updates := make(chan StatusUpdate)

	go func() {
		defer close(updates)

		limited, cancel := context.WithTimeoutCause(ctx, watchLimit, ErrWatchOver)
		defer cancel()

		err := c.watchStatus(limited, updates)
		if err == nil || ctx.Err() != nil {
			return
		}

		send(ctx, updates, StatusUpdate{Err: c.failure(OpWatch, nil, err)})
	}()

	return updates
}

func send[T any](ctx context.Context, to chan<- T, update T) bool {
	select {
	case to <- update:
		return true
	case <-ctx.Done():
		return false
	}
}

// watchStatus returns nil when the node is going down.
func (c *Conn) watchStatus(ctx context.Context, updates chan<- StatusUpdate) error {
	// Machinery's own adapter would silently retry a broken watch for a quarter of an hour.
	watcher := state.WrapCore(client.NewAdapter(cosiv1alpha1.NewStateClient(c.api.Conn()), client.WithDisableWatchRetry()))
	events := make(chan safe.WrappedStateEvent[*runtime.MachineStatus])
	if err := safe.StateWatch(ctx, watcher, runtime.NewMachineStatus().Metadata(), events); err != nil {
		return fmt.Errorf("watch machine status: %w", err)
	}

	// gRPC's keepalive can't notice a dead node: Talos closes connections that ping more often than every five minutes.
	check := time.NewTicker(c.timeout)
	defer check.Stop()

	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-check.C:
			if _, err := c.MachineStatus(ctx); err != nil {
				return fmt.Errorf("check that the node still answers: %w", err)
			}
		case event := <-events:
			machineStatus, err := seenIn(event)
			if err != nil {
				return fmt.Errorf("watch machine status: %w", err)
			}

			if machineStatus == nil {
				continue
			}

			status := readStatus(machineStatus)
			if !send(ctx, updates, StatusUpdate{Status: status}) {
				return context.Cause(ctx)
			}

			if GoesDown(status.Stage) {
				return nil
			}
		}
	}
}

// seenIn is the resource that a watch's event carries, nil if it carries none.
func seenIn[T resource.Resource](event safe.WrappedStateEvent[T]) (T, error) {
	var none T

	switch event.Type() {
	case state.Created, state.Updated:
		return event.Resource() //nolint:wrapcheck // the caller says what was watched
	case state.Errored:
		return none, event.Error() //nolint:wrapcheck // as above
	default: // absent so far, or a bookmark
		return none, nil
	}
}

// GoesDown reports whether a node in this stage is about to stop answering.
func GoesDown(stage string) bool {
	switch stage {
	case StageRebooting, StageShutdown, StageResetting, StageUpgrading:
		return true
	default:
		return false
	}
}
