package talos

import (
	"context"
	"errors"
	"io"
	"time"
)

// workTimeout bounds a call in which a node works for long, when its context has no earlier deadline.
const workTimeout = time.Hour

// work makes a call that takes minutes. One to a node that has gone would never end: Talos closes connections that
// ping often enough for gRPC to notice. So the node is asked something else meanwhile.
func (c *Conn) work(ctx context.Context, op Operation, do func(context.Context) error) error {
	return c.call(ctx, op, workTimeout, func(ctx context.Context) error {
		working, stop := context.WithCancelCause(ctx)
		defer stop(nil)

		watched := make(chan struct{})

		go func() {
			defer close(watched)

			c.stopOnceGone(working, stop)
		}()

		err := do(working)
		gone := context.Cause(working)
		stop(nil)
		<-watched

		if err != nil && ctx.Err() == nil && gone != nil {
			return gone
		}

		return err
	})
}

// stopOnceGone ends a call when its node no longer answers another one.
func (c *Conn) stopOnceGone(ctx context.Context, stop context.CancelCauseFunc) {
	check := time.NewTicker(c.timeout)
	defer check.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-check.C:
			if _, err := c.MachineStatus(ctx); Classify(OpRead, err) == Retry && ctx.Err() == nil {
				stop(errNoAnswer)
				return
			}
		}
	}
}

// receive reads a stream to its end.
func receive[T any](next func() (T, error), each func(T)) error {
	for {
		message, err := next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}

		each(message)
	}
}
