// Package clock tells time to everything that waits, so that a rehearsal can run faster than the machines it imitates
// and a test need not wait at all.
package clock

import (
	"context"
	"time"
)

// Clock is the only source of time for waits, budgets and durations of a run.
// Limits of a single network call are not taken from it: a handshake takes what it takes.
type Clock interface {
	// Now is the current time; on a scaled clock it advances faster than the wall's.
	Now() time.Time
	// Sleep waits for d, or returns the context's cause as soon as it is done.
	Sleep(ctx context.Context, d time.Duration) error
	// WithTimeout is context.WithTimeout in this clock's time.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
}

// Real is the wall clock.
func Real() Clock { return Scaled(1) }

// Scaled is a clock that runs factor times as fast as the wall clock; factors below 1 count as 1.
func Scaled(factor float64) Clock {
	return scaled{factor: max(factor, 1), start: time.Now()}
}

type scaled struct {
	factor float64
	start  time.Time
}

func (c scaled) wall(d time.Duration) time.Duration {
	return time.Duration(float64(d) / c.factor)
}

func (c scaled) Now() time.Time {
	return c.start.Add(time.Duration(float64(time.Since(c.start)) * c.factor))
}

func (c scaled) Sleep(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	timer := time.NewTimer(c.wall(d))
	defer timer.Stop()

	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

func (c scaled) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.wall(d))
}
