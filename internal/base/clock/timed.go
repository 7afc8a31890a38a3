package clock

import (
	"context"
	"sync"
	"time"
)

// timed is a context that ends at a time of a scaled clock. The standard library's go by the wall.
type timed struct {
	context.Context //nolint:containedctx // it is a context, of this parent

	done chan struct{}
	mu   sync.Mutex
	err  error
}

// withTimeout is context.WithTimeout on a scaled clock. It has no Deadline, which would be one of the wall.
func (c scaled) withTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx := &timed{Context: parent, done: make(chan struct{})}
	release := context.AfterFunc(parent, func() { ctx.end(parent.Err()) })
	expire, stop := context.WithCancel(context.Background())

	go func() {
		if c.Sleep(expire, d) == nil {
			ctx.end(context.DeadlineExceeded)
		}
	}()

	return ctx, func() {
		release()
		stop()
		ctx.end(context.Canceled)
	}
}

func (t *timed) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.err == nil {
		t.err = err
		close(t.done)
	}
}

func (t *timed) Deadline() (time.Time, bool) { return t.Context.Deadline() }

func (t *timed) Done() <-chan struct{} { return t.done }

func (t *timed) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()

	return t.err
}
