package discover

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/talos-mage/talos-mage/internal/discover/scan"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// Search says where to look for machines, and how.
type Search struct {
	// Networks are the addresses to ask.
	Networks Networks
	// Dialer reaches them, and reads what answers.
	Dialer *talos.Dialer
	// Width is how many addresses are asked at once, Rate how many a second at the most, Timeout how long each may take to
	// answer; the usual ones when zero.
	Width, Rate int
	Timeout     time.Duration
	// Progress is told how far the search is, after every address, if set. Its calls come one at a time.
	Progress func(Progress)
}

// Progress is how far a search is.
type Progress = scan.Progress

// How a search asks if nobody says otherwise. On a network that this computer is part of, each silent address is a
// neighbour that it asks for three seconds: at this pace they are less than half of the 1,024 that Linux remembers.
const (
	usualWidth = 256
	usualRate  = 500
	// usualTimeout lets a second packet be answered, which goes out after one second.
	usualTimeout = 1500 * time.Millisecond
)

// readers is how many machines are read at once.
const readers = 16

// Machines asks all addresses of the networks, and gives the machines that answer, each once, by address. It ends
// early, with the reason, when the context does.
func (s Search) Machines(ctx context.Context) ([]Machine, error) {
	var (
		answers = make(chan netip.Addr)
		reading sync.WaitGroup
		mu      sync.Mutex
		found   []Machine
		last    Progress
	)

	for range readers {
		reading.Go(func() {
			for address := range answers {
				machine := read(ctx, s.Dialer, address)

				mu.Lock()
				found = append(found, machine)
				mu.Unlock()
			}
		})
	}

	err := s.scan(&last).Addresses(ctx, s.Networks.Addresses(), s.Networks.Size(), func(address netip.Addr) {
		answers <- address
	})

	close(answers)
	reading.Wait()

	switch {
	case err != nil:
		return nil, err
	case ctx.Err() != nil:
		return nil, fmt.Errorf("read machines: %w", context.Cause(ctx))
	case last.Total > 0 && last.Unasked == last.Total:
		return nil, fmt.Errorf("ask %d addresses: %w", last.Total, last.Why)
	}

	return merged(found), nil
}

// scan is how the addresses are asked; it leaves how far it came in last.
func (s Search) scan(last *Progress) scan.Scan {
	knocker := *s.Dialer
	knocker.Timeout = cmp.Or(s.Timeout, usualTimeout)

	return scan.Scan{
		Knock: knocker.Knock,
		Width: cmp.Or(s.Width, usualWidth), Rate: cmp.Or(s.Rate, usualRate),
		Progress: func(progress Progress) {
			*last = progress

			if s.Progress != nil {
				s.Progress(progress)
			}
		},
	}
}
