package machine

import (
	"context"
	"errors"
	"slices"
)

// takeovers lists, for a running sequence, those that may end it without force.
// Source: Talos internal/app/machined/pkg/runtime/sequencer.go.
var takeovers = map[string][]string{
	seqInitialize: {SeqReboot},
	seqBoot:       {SeqReboot, SeqReset, SeqUpgrade},
	SeqReboot:     {SeqReboot},
	SeqReset:      {SeqReboot},
}

// errLocked is why a sequence does not start while another runs.
var errLocked = errors.New("locked")

// sequence is a running one.
type sequence struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{}
}

// lock makes a sequence the running one. It ends the one that runs if it may, or is forced to, and waits for
// its end. The context is done as soon as another one takes over.
func (s *sequencer) lock(ctx context.Context, name string, force bool) (context.Context, *sequence, error) {
	ctx, cancel := context.WithCancel(ctx)
	mine := &sequence{name: name, cancel: cancel, done: make(chan struct{})}

	for {
		s.boot.mu.Lock()
		running := s.running

		if running == nil {
			s.running = mine
			s.boot.mu.Unlock()

			return ctx, mine, nil
		}
		s.boot.mu.Unlock()

		if !force && !slices.Contains(takeovers[running.name], name) {
			cancel()

			return nil, nil, errLocked
		}

		running.cancel()

		select {
		case <-running.done:
		case <-ctx.Done():
			cancel()

			return nil, nil, context.Cause(ctx)
		}
	}
}

func (s *sequencer) unlock(mine *sequence) {
	s.boot.mu.Lock()
	if s.running == mine {
		s.running = nil
	}
	s.boot.mu.Unlock()

	mine.cancel()
	close(mine.done)
}
