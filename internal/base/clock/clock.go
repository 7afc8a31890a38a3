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

// Scaled is a clock that runs factor times as fast as the wall clock; factors up to 1 are the wall clock. While the
// machine is too busy to let this process run in time it holds back.
func Scaled(factor float64) Clock {
	if factor <= 1 {
		return wallClock{}
	}

	steady.keep(beatFor(factor))

	return scaled{factor: factor, start: time.Now(), began: steady.read(time.Now()), passed: steady.read}
}

type wallClock struct{}

func (wallClock) Now() time.Time { return time.Now() }

func (wallClock) Sleep(ctx context.Context, d time.Duration) error { return sleep(ctx, d) }

func (wallClock) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

// sleep waits for d of the wall's time.
func sleep(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

type scaled struct {
	factor float64
	start  time.Time
	began  time.Duration                      // on the process's pace
	passed func(wall time.Time) time.Duration // that pace
}

func (c scaled) Now() time.Time {
	return c.start.Add(time.Duration(float64(c.passed(time.Now())-c.began) * c.factor))
}

// nap is the shortest sleep while the clock holds back. It stands still then, and whoever asked it all the time would
// keep the machine busy, which holds it back further.
const nap = 200 * time.Microsecond

func (c scaled) Sleep(ctx context.Context, d time.Duration) error {
	due, pause := c.Now().Add(d), c.onWall(d)

	for {
		if err := sleep(ctx, pause); err != nil {
			return err
		}

		left := due.Sub(c.Now())
		if left <= 0 {
			return nil
		}

		pause = max(c.onWall(left), nap)
	}
}

// onWall is how long so much of this clock's time takes at least.
func (c scaled) onWall(d time.Duration) time.Duration { return time.Duration(float64(d) / c.factor) }

func (c scaled) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return c.withTimeout(ctx, d)
}
