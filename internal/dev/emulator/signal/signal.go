// Package signal wakes everyone who waits for a change.
package signal

import (
	"context"
	"sync"
)

// Signal wakes everyone who waits for a change.
type Signal struct {
	mu sync.Mutex
	ch chan struct{}
}

// Wait is closed at the next raise. Take it before looking at what may change.
func (s *Signal) Wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.ch == nil {
		s.ch = make(chan struct{})
	}

	return s.ch
}

// Raise wakes them.
func (s *Signal) Raise() {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}

// Until waits until done says so; it looks again after every raise. It returns the context's cause if that ends first.
func (s *Signal) Until(ctx context.Context, done func() bool) error {
	for {
		changed := s.Wait()

		if done() {
			return nil
		}

		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}
