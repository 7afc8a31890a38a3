// Package retry tries something again after growing pauses: up to a number of attempts, stopped at once by its
// context, and never without keeping the last real cause. What is worth another attempt is the caller's to say, for
// calls to Talos package talos (Classify); an error is final by default.
package retry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/talos-mage/talos-mage/internal/base/clock"
)

// Policy bounds the attempts.
type Policy struct {
	// Retries is how many attempts may follow the first one.
	Retries int
	// Initial is the pause before the first retry; each further one is Multiplier times as long (below 1 counts as 1), up
	// to Max (0: no bound).
	Initial    time.Duration
	Max        time.Duration
	Multiplier float64
	// Jitter lengthens each pause by a random share of it, up to this one (0.1: up to a tenth), so that many nodes don't
	// retry in step.
	Jitter float64
	// Waiting, if set, is told before each pause which attempt failed, how long the pause is and why there is one.
	Waiting func(attempt int, pause time.Duration, cause error)
}

// Do calls attempt, with 1 for the first time, until it succeeds, fails with an error that again doesn't want to retry,
// or the policy or the context ends it. It gives the number of attempts begun.
//
// The error of a single or final attempt comes back as it is. Otherwise it says why there was no further attempt, and
// errors.Is finds the last cause and, if the context ended it, the context's cause. A last attempt that only ran into
// its deadline doesn't hide the cause of the attempt before it.
func Do(
	ctx context.Context, clk clock.Clock, p Policy, attempt func(ctx context.Context, n int) error, again func(error) bool,
) (attempts int, err error) {
	var (
		causes causes
		pauses = p.pauses()
	)

	for {
		if ctx.Err() != nil {
			return attempts, causes.stopped(context.Cause(ctx), attempts)
		}

		attempts++

		err := attempt(ctx, attempts)
		if err == nil {
			return attempts, nil
		}

		causes.add(err)

		if ctx.Err() != nil {
			return attempts, causes.stopped(context.Cause(ctx), attempts)
		}

		if !again(err) {
			return attempts, causes.last()
		}

		if attempts > p.Retries {
			return attempts, causes.exhausted(attempts)
		}

		pause := pauses()
		if p.Waiting != nil {
			p.Waiting(attempts, pause, err)
		}

		if err := clk.Sleep(ctx, pause); err != nil {
			return attempts, causes.stopped(err, attempts)
		}
	}
}

// pauses gives the pauses of the policy, one a call.
func (p Policy) pauses() func() time.Duration {
	// Its own randomness goes both ways around the pause; ours only lengthens it, so that the documented pauses are the
	// shortest.
	exponential := &backoff.ExponentialBackOff{
		InitialInterval: p.Initial,
		Multiplier:      max(1, p.Multiplier),
		MaxInterval:     p.Max,
	}

	if p.Max <= 0 {
		exponential.MaxInterval = 1<<63 - 1
	}

	exponential.Reset()

	return func() time.Duration {
		pause := min(exponential.NextBackOff(), exponential.MaxInterval)
		return pause + time.Duration(rand.Float64()*p.Jitter*float64(pause)) //nolint:gosec // spreads load, guards nothing
	}
}

// causes keeps the errors worth telling: the newest, and the newest that is more than a deadline.
type causes struct{ newest, real error }

func (c *causes) add(err error) {
	c.newest = err

	if !errors.Is(err, context.DeadlineExceeded) {
		c.real = err
	}
}

// last is the newest error, together with the real cause if it is a mere deadline; nil before the first one.
func (c *causes) last() error {
	switch {
	case c.real == nil || errors.Is(c.newest, c.real):
		return c.newest
	case errors.Is(c.newest, context.DeadlineExceeded):
		return fmt.Errorf("%w, after %w", c.newest, c.real)
	default:
		return c.newest
	}
}

// exhausted is the error when no retry is left.
func (c *causes) exhausted(attempts int) error {
	if attempts == 1 {
		return c.last()
	}

	return fmt.Errorf("gave up after %d attempts: %w", attempts, c.last())
}

// stopped is the error when the context ended the attempts.
func (c *causes) stopped(why error, attempts int) error {
	last := c.last()
	switch {
	case last == nil:
		return why
	case errors.Is(last, why):
		return last
	case attempts == 1:
		return fmt.Errorf("%w after 1 attempt: %w", why, last)
	default:
		return fmt.Errorf("%w after %d attempts: %w", why, attempts, last)
	}
}
