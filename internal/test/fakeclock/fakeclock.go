// Package fakeclock is a clock for tests that need not wait.
package fakeclock

import (
	"context"
	"sync"
	"time"
)

// Clock is a clock whose time moves only when somebody sleeps on it or calls Advance: a Sleep returns at once, and the
// time has passed. The zero value starts at the zero time. Safe for concurrent use.
type Clock struct {
	mu     sync.Mutex
	now    time.Time
	sleeps []time.Duration
}

// New starts one at the given time.
func New(start time.Time) *Clock { return &Clock{now: start} }

// Now is the fake time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.now
}

// Advance moves the time on.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.now = c.now.Add(d)
}

// Sleep records d and moves the time on by it, unless the context is done.
func (c *Clock) Sleep(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	c.now = c.now.Add(d)
	c.sleeps = append(c.sleeps, d)

	return nil
}

// WithTimeout never expires on its own: in fake time a call takes no time.
func (c *Clock) WithTimeout(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

// Sleeps are the waits asked for so far, in order.
func (c *Clock) Sleeps() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()

	return append([]time.Duration(nil), c.sleeps...)
}
