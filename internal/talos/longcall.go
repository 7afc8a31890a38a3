package talos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

const (
	// workTimeout bounds a call in which a node works for long, when its context has no earlier deadline.
	workTimeout = time.Hour
	// standstill is how many times as long as any read may take nothing may move in a call in which something has moved.
	standstill = 24
)

// StandstillError is of a call in which nothing moved any more, though the node answered others.
type StandstillError struct{ For time.Duration }

func (e *StandstillError) Error() string {
	return fmt.Sprintf("it came to a standstill: nothing moved for %s", e.For)
}

// transfer makes a call that tells of all that moves in it, and is given up at a standstill. Until something has moved
// it may be silent.
func (c *Conn) transfer(ctx context.Context, op Operation, limit time.Duration,
	do func(ctx context.Context, moved func()) error) error {
	return c.call(ctx, op, limit, func(ctx context.Context) error {
		return stoppable(ctx, func(ctx context.Context, stop context.CancelCauseFunc) error {
			patience := standstill * c.timeout

			still := time.AfterFunc(limit, func() { stop(&StandstillError{patience}) })
			defer still.Stop()

			return do(ctx, func() { still.Reset(patience) })
		})
	})
}

// work makes a call that takes minutes. One to a node that has gone would never end: Talos closes connections that
// ping often enough for gRPC to notice. So the node is asked something else meanwhile. Where the call tells what moves
// it is a transfer; where it does not, as an installer that writes a disk, it may be silent to its end.
func (c *Conn) work(ctx context.Context, op Operation, do func(ctx context.Context, moved func()) error) error {
	return c.transfer(ctx, op, workTimeout, func(ctx context.Context, moved func()) error {
		return stoppable(ctx, func(ctx context.Context, stop context.CancelCauseFunc) error {
			watching, end := context.WithCancel(ctx)
			watched := make(chan struct{})

			go func() {
				defer close(watched)

				c.stopOnceGone(watching, stop)
			}()

			defer func() { end(); <-watched }()

			return do(ctx, moved)
		})
	})
}

// stoppable does what can be stopped for a reason, which is then its error.
func stoppable(ctx context.Context, do func(ctx context.Context, stop context.CancelCauseFunc) error) error {
	stopped, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	err := do(stopped, stop)
	if reason := context.Cause(stopped); err != nil && ctx.Err() == nil && reason != nil {
		return reason
	}

	return err
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

// movingWriter tells that something moved with all that is written.
type movingWriter struct {
	to    io.Writer
	moved func()
}

func (w movingWriter) Write(data []byte) (int, error) {
	w.moved()
	return w.to.Write(data) //nolint:wrapcheck // it is the caller's own
}

// movingReader tells that something moved with all that is read.
type movingReader struct {
	from  io.Reader
	moved func()
}

func (r movingReader) Read(data []byte) (int, error) {
	r.moved()
	return r.from.Read(data) //nolint:wrapcheck // it is the caller's own
}
