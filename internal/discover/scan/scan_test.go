package scan_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/discover/scan"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// network is a /22 in which nobody answers but whom it is told of: the others drop what is sent.
type network struct {
	timeout time.Duration
	answer  map[string]func() (talos.Silence, error)

	mu          sync.Mutex
	asked       []time.Duration // when each address was asked, from the start
	atOnce, now int
	started     time.Time
}

const size = 1022

func (n *network) addresses(yield func(netip.Addr) bool) {
	address := netip.MustParseAddr("10.0.0.1")
	for range size {
		if !yield(address) {
			return
		}

		address = address.Next()
	}
}

func (n *network) knock(ctx context.Context, address string) (talos.Silence, error) {
	n.mu.Lock()
	n.asked = append(n.asked, time.Since(n.started))
	n.now++
	n.atOnce = max(n.atOnce, n.now)
	answer := n.answer[address]
	n.mu.Unlock()

	defer func() {
		n.mu.Lock()
		n.now--
		n.mu.Unlock()
	}()

	if answer != nil {
		return answer()
	}

	select {
	case <-time.After(n.timeout):
		return talos.NoAnswer, errors.New("no answer")
	case <-ctx.Done():
		return talos.NoAnswer, context.Cause(ctx)
	}
}

func answers() (talos.Silence, error) { return talos.Answered, nil }

// scanned asks all of the network.
func (n *network) scanned(ctx context.Context, width, pace int) (found []string, last scan.Progress, err error) {
	n.started = time.Now()

	var mu sync.Mutex

	err = scan.Scan{Knock: n.knock, Width: width, Rate: pace, Progress: func(p scan.Progress) { last = p }}.Addresses(ctx,
		n.addresses, size, func(address netip.Addr) {
			mu.Lock()
			defer mu.Unlock()

			found = append(found, address.String())
		})

	slices.Sort(found)

	return found, last, err
}

// fourNodes are all that answers in a network.
func fourNodes(timeout time.Duration) *network {
	nodes := map[string]func() (talos.Silence, error){}
	for _, address := range []string{"10.0.0.1", "10.0.1.17", "10.0.2.200", "10.0.3.254"} {
		nodes[address] = answers
	}

	return &network{timeout: timeout, answer: nodes}
}

// ideal is how long a scan takes at least.
func ideal(width int, timeout time.Duration) time.Duration {
	return time.Duration((size+width-1)/width) * timeout
}

// The time is the bubble's own, so it does not depend on the machine.
func TestASilentNetworkTakesLittleLongerThanItMust(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		const (
			width   = 256
			timeout = 1500 * time.Millisecond
		)

		n := fourNodes(timeout)
		found, last, err := n.scanned(t.Context(), width, 500)
		took := time.Since(n.started)

		require.NoError(t, err)
		require.Equal(t, []string{"10.0.0.1", "10.0.1.17", "10.0.2.200", "10.0.3.254"}, found)
		require.Equal(t, scan.Progress{Asked: size, Total: size, Answers: 4}, last)
		require.LessOrEqual(t, took.Seconds()/ideal(width, timeout).Seconds(), 1.3)
	})
}

func TestNoMoreAreAskedAtOnceOrInASecondThanIsAllowed(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		const width, pace = 32, 100

		n := fourNodes(100 * time.Millisecond)
		_, _, err := n.scanned(t.Context(), width, pace)
		require.NoError(t, err)
		require.LessOrEqual(t, n.atOnce, width)

		for i := pace + 1; i < len(n.asked); i++ {
			require.GreaterOrEqual(t, n.asked[i]-n.asked[i-pace-1], time.Second)
		}
	})
}

func TestRefusalIsToldFromSilence(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		var knocks atomic.Int32

		n := fourNodes(time.Second)
		n.answer["10.0.0.9"] = func() (talos.Silence, error) { return talos.Refused, syscall.ECONNREFUSED }
		n.answer["10.0.0.10"] = func() (talos.Silence, error) { return talos.Broken, syscall.ENETUNREACH }
		// It boots: by the end of the scan it has opened the port.
		n.answer["10.0.0.11"] = func() (talos.Silence, error) {
			if knocks.Add(1) == 1 {
				return talos.Refused, syscall.ECONNREFUSED
			}

			return talos.Answered, nil
		}

		found, last, err := n.scanned(t.Context(), 256, 500)
		require.NoError(t, err)
		require.Contains(t, found, "10.0.0.11")
		require.Equal(t, scan.Progress{Asked: size, Total: size, Answers: 5, Refused: 1, Unasked: 1,
			Why: syscall.ENETUNREACH}, last)
	})
}

// A table of neighbours that is full, or too many open files, say nothing about the machine.
func TestAComputerThatIsShortOfSomethingAsksAgain(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		for knocks, want := range map[int32]talos.Silence{3: talos.Answered, 1000: talos.Broken} {
			var asked atomic.Int32

			n := fourNodes(time.Second)
			n.answer["10.0.0.9"] = func() (talos.Silence, error) {
				if asked.Add(1) < knocks {
					return talos.Broken, fmt.Errorf("dial: %w", syscall.ENOBUFS)
				}

				return talos.Answered, nil
			}

			_, last, err := n.scanned(t.Context(), 256, 500)
			require.NoError(t, err)
			require.Equal(t, want == talos.Broken, last.Unasked == 1)
		}
	})
}

func TestAnInterruptIsHeardAtOnce(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		stopped := errors.New("stopped")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(2*time.Second, func() { cancel(stopped) })

		n := fourNodes(time.Minute)
		_, _, err := n.scanned(ctx, 16, 500)
		require.ErrorIs(t, err, stopped)
		require.Equal(t, 2*time.Second, time.Since(n.started))
	})
}

// BenchmarkASilentNetwork reports how much longer a scan takes than it must at its width and with its timeout.
func BenchmarkASilentNetwork(b *testing.B) {
	const (
		width   = 256
		timeout = 1500 * time.Millisecond
	)

	var took time.Duration

	for b.Loop() {
		n := fourNodes(timeout)
		if _, _, err := n.scanned(b.Context(), width, 500); err != nil {
			b.Fatal(err)
		}

		took += time.Since(n.started)
	}

	b.ReportMetric(took.Seconds()/float64(b.N)/ideal(width, timeout).Seconds(), "times-the-ideal")
}
