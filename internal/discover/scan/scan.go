// Package scan finds out which of many addresses take a connection: many are asked at once, at a bounded pace, and each
// for a bounded time.
package scan

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"github.com/talos-mage/talos-mage/internal/talos"
)

// Scan says how addresses are asked.
type Scan struct {
	// Knock finds out in which way an address is silent, if it is. How long it waits for that is its own to say.
	Knock func(ctx context.Context, address string) (talos.Silence, error)
	// Width is how many addresses are asked at once, Rate how many a second at the most.
	Width, Rate int
	// Progress is told how far the scan is, after every address, if set. Its calls come one at a time.
	Progress func(Progress)
}

// Progress is how far a scan is.
type Progress struct {
	// Asked are the addresses that are done with, of Total; Answers took the connection, Refused are machines that are up
	// and do not.
	Asked, Total, Answers, Refused int
	// Unasked are those that could not be asked from here; Why is what went wrong with the first of them.
	Unasked int
	Why     error
	// Left is how long the rest takes, if it goes on as it did so far.
	Left time.Duration
}

// Addresses asks so many addresses and passes those on that take the connection, from any goroutine. It ends early,
// with the reason, when the context does.
func (s Scan) Addresses(ctx context.Context, addresses iter.Seq[netip.Addr], total int, found func(netip.Addr)) error {
	tally := tally{scan: s, started: time.Now(), progress: Progress{Total: total}}

	err := s.each(ctx, addresses, total, func(address netip.Addr, silence talos.Silence, err error) {
		tally.add(address, silence, err)

		if silence == talos.Answered {
			found(address)
		}
	})
	if err != nil {
		return err
	}

	// A machine that was still booting may have opened the port since.
	refused := tally.refused

	return s.each(ctx, slices.Values(refused), len(refused), func(address netip.Addr, silence talos.Silence, _ error) {
		if silence == talos.Answered {
			tally.opened()
			found(address)
		}
	})
}

// each asks every address, and passes on what came of it.
func (s Scan) each(ctx context.Context, addresses iter.Seq[netip.Addr], total int,
	told func(netip.Addr, talos.Silence, error)) error {
	var (
		queue   = make(chan netip.Addr)
		workers sync.WaitGroup
	)

	for range min(s.Width, total) {
		workers.Go(func() {
			for address := range queue {
				silence, err := s.ask(ctx, address)
				if ctx.Err() != nil {
					return
				}

				told(address, silence, err)
			}
		})
	}

	err := s.feed(ctx, addresses, queue)

	close(queue)
	workers.Wait()

	return err
}

// feed hands out the addresses at the scan's pace.
func (s Scan) feed(ctx context.Context, addresses iter.Seq[netip.Addr], queue chan<- netip.Addr) error {
	pace := rate.NewLimiter(rate.Limit(s.Rate), 1)

	for address := range addresses {
		if err := pace.Wait(ctx); err != nil {
			return fmt.Errorf("scan: %w", context.Cause(ctx))
		}

		select {
		case queue <- address:
		case <-ctx.Done():
			return fmt.Errorf("scan: %w", context.Cause(ctx))
		}
	}

	return nil
}

// Attempts to ask while this computer is short of something, and the pause between them.
const (
	attempts = 5
	pause    = 200 * time.Millisecond
)

// ask asks one address, again while it is this computer that can't: as when a large network fills its table of
// neighbours.
func (s Scan) ask(ctx context.Context, address netip.Addr) (silence talos.Silence, err error) {
	for range attempts {
		silence, err = s.Knock(ctx, address.String())
		if silence != talos.Broken || !short(err) {
			return silence, err
		}

		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return silence, context.Cause(ctx)
		}
	}

	return silence, err
}

// short reports whether this computer lacks something for the moment.
func short(err error) bool {
	for _, lack := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL} {
		if errors.Is(err, lack) {
			return true
		}
	}

	return false
}

// tally counts what came of the addresses.
type tally struct {
	scan    Scan
	started time.Time

	mu       sync.Mutex
	progress Progress
	refused  []netip.Addr
}

func (t *tally) add(address netip.Addr, silence talos.Silence, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()

	p := &t.progress
	p.Asked++

	switch silence {
	case talos.Answered:
		p.Answers++
	case talos.Refused:
		p.Refused++
		t.refused = append(t.refused, address)
	case talos.Broken:
		p.Unasked++

		if p.Why == nil {
			p.Why = err
		}
	case talos.NoAnswer:
	}

	p.Left = time.Since(t.started) / time.Duration(p.Asked) * time.Duration(p.Total-p.Asked)
	t.tell()
}

// opened counts an address that refused and now answers.
func (t *tally) opened() {
	t.mu.Lock()
	defer t.mu.Unlock()

	t.progress.Refused--
	t.progress.Answers++
	t.tell()
}

func (t *tally) tell() {
	if t.scan.Progress != nil {
		t.scan.Progress(t.progress)
	}
}
