package fanout_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/fanout"
)

// gauge measures how many calls run at once.
type gauge struct{ now, most atomic.Int64 }

func (g *gauge) enter() func() {
	now := g.now.Add(1)

	for {
		most := g.most.Load()
		if now <= most || g.most.CompareAndSwap(most, now) {
			break
		}
	}

	return func() { g.now.Add(-1) }
}

func broken(item int, err error) string { return fmt.Sprintf("%d: %v", item, err) }

func numbers(n int) []int {
	items := make([]int, n)
	for i := range items {
		items[i] = i
	}

	return items
}

func TestCollectGivesResultsInTheItemsOrderWithinTheLimit(t *testing.T) {
	t.Parallel()

	for _, limit := range []int{-1, 0, 1, 2, 7, 100} {
		t.Run(strconv.Itoa(limit), func(t *testing.T) {
			t.Parallel()

			var running gauge

			got := fanout.Collect(t.Context(), limit, numbers(20), func(_ context.Context, item int) string {
				defer running.enter()()

				runtime.Gosched()

				return strconv.Itoa(item)
			}, broken)

			for i, result := range got {
				require.Equal(t, strconv.Itoa(i), result)
			}

			require.Len(t, got, 20)
			require.LessOrEqual(t, running.most.Load(), int64(max(1, limit)))
		})
	}
}

func TestCollectReachesItsLimit(t *testing.T) {
	t.Parallel()

	// Each call waits until as many as the limit are running: this ends only if they really do at once.
	var together sync.WaitGroup

	together.Add(4)

	got := fanout.Collect(t.Context(), 4, numbers(4), func(_ context.Context, item int) int {
		together.Done()
		together.Wait()

		return item
	}, func(int, error) int { return -1 })

	require.Equal(t, numbers(4), got)
}

func TestCollectWithALimitOfOneGoesInOrder(t *testing.T) {
	t.Parallel()

	var order []int

	fanout.Collect(t.Context(), 1, numbers(50), func(_ context.Context, item int) int {
		order = append(order, item) // no lock: the race detector proves that calls don't overlap

		return item
	}, func(int, error) int { return -1 })

	require.Equal(t, numbers(50), order)
}

func TestCollectCallsEveryItemAfterTheContextIsDone(t *testing.T) {
	t.Parallel()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	got := fanout.Collect(ctx, 2, numbers(5), func(ctx context.Context, _ int) error { return ctx.Err() },
		func(_ int, err error) error { return err })

	require.Len(t, got, 5)

	for _, err := range got {
		require.ErrorIs(t, err, context.Canceled)
	}
}

func TestCollectOutlivesPanics(t *testing.T) {
	t.Parallel()

	cause := errors.New("the map was nil")

	var first error

	got := fanout.Collect(t.Context(), 2, numbers(4), func(_ context.Context, item int) string {
		switch item {
		case 1:
			panic(cause)
		case 2:
			panic("a sentence")
		default:
			return "done"
		}
	}, func(item int, err error) string {
		if item == 1 {
			first = err
		}

		return broken(item, err)
	})

	require.Equal(t, []string{
		"done", "1: unexpected error inside the program: the map was nil",
		"2: unexpected error inside the program: a sentence", "done",
	}, got)

	var panicked *fanout.PanicError

	require.ErrorAs(t, first, &panicked)
	require.ErrorIs(t, first, cause)
	require.NotEmpty(t, panicked.Stack)
}

func TestCollectOfNothing(t *testing.T) {
	t.Parallel()

	require.Empty(t, fanout.Collect(t.Context(), 3, nil, func(context.Context, int) string { return "" }, broken))
}

// BenchmarkCollect compares the fan-out with what its bound allows at best: with calls that take as long as one
// another, ceil(items/limit) rounds of one call each.
func BenchmarkCollect(b *testing.B) {
	const (
		items = 100
		limit = 10
		each  = 20 * time.Millisecond
	)

	ideal := time.Duration((items+limit-1)/limit) * each

	b.Logf("ideal = ceil(items/limit) × call = ceil(%d/%d) × %v = %v", items, limit, each, ideal)

	for b.Loop() {
		fanout.Collect(b.Context(), limit, numbers(items), func(context.Context, int) string {
			time.Sleep(each)

			return ""
		}, broken)
	}

	took := b.Elapsed() / time.Duration(b.N)
	b.ReportMetric(float64(took)/float64(ideal), "×ideal")
}
