package clock

import (
	"context"
	"sync"
	"time"
)

// Fake is a clock whose time moves only when somebody sleeps on it or calls Advance: a Sleep returns at once, and the
// time has passed. The zero value starts at the zero time. Safe for concurrent use.
type Fake struct {
	mu     sync.Mutex
	now    time.Time
	sleeps []time.Duration
}

// NewFake starts a fake clock at the given time.
func NewFake(start time.Time) *Fake { return &Fake{now: start} }

// Now is the fake time.
func (f *Fake) Now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.now
}

// Advance moves the time on.
func (f *Fake) Advance(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.now = f.now.Add(d)
}

// Sleep records d and moves the time on by it, unless the context is done.
func (f *Fake) Sleep(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	f.mu.Lock()
	defer f.mu.Unlock()

	f.now = f.now.Add(d)
	f.sleeps = append(f.sleeps, d)

	return nil
}

// WithTimeout never expires on its own: in fake time a call takes no time.
func (f *Fake) WithTimeout(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

// Sleeps are the waits asked for so far, in order.
func (f *Fake) Sleeps() []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()

	return append([]time.Duration(nil), f.sleeps...)
}
