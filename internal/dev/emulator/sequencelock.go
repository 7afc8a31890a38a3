package emulator

import (
	"context"
	"errors"
	"slices"
)

// takeovers lists, for a running sequence, those that may end it without force.
// Source: Talos internal/app/machined/pkg/runtime/sequencer.go.
var takeovers = map[string][]string{
	seqInitialize: {seqReboot},
	seqBoot:       {seqReboot, seqReset, seqUpgrade},
	seqReboot:     {seqReboot},
	seqReset:      {seqReboot},
}

// errLocked is why a sequence does not start while another runs.
var errLocked = errors.New("locked")

// sequence is a running one.
type sequence struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{}
}

// lockSequence makes a sequence the running one. It ends the one that runs if it may, or is forced to, and waits for
// its end. The context is done as soon as another one takes over.
func (b *boot) lockSequence(ctx context.Context, name string, force bool) (context.Context, *sequence, error) {
	ctx, cancel := context.WithCancel(ctx)
	mine := &sequence{name: name, cancel: cancel, done: make(chan struct{})}

	for {
		b.mu.Lock()
		running := b.sequence

		if running == nil {
			b.sequence = mine
			b.mu.Unlock()

			return ctx, mine, nil
		}
		b.mu.Unlock()

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

func (b *boot) unlockSequence(mine *sequence) {
	b.mu.Lock()
	if b.sequence == mine {
		b.sequence = nil
	}
	b.mu.Unlock()

	mine.cancel()
	close(mine.done)
}
