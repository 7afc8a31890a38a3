package clock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/clock"
	"github.com/talos-mage/talos-mage/internal/test/fakeclock"
)

func TestAScaledClockRunsFaster(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		factor float64
		least  time.Duration // of the clock's time while 2 ms pass on the wall
	}{
		"as fast as the wall":   {1, 2 * time.Millisecond},
		"a thousand times":      {1000, 2 * time.Second},
		"slower is not offered": {0.001, 2 * time.Millisecond},
		"nor standing still":    {0, 2 * time.Millisecond},
		"nor running back":      {-5, 2 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			clk := clock.Scaled(tt.factor)
			before := clk.Now()

			require.NoError(t, clock.Scaled(1).Sleep(t.Context(), 2*time.Millisecond))
			require.GreaterOrEqual(t, clk.Now().Sub(before), tt.least)
		})
	}
}

func TestSleepOfAScaledClockLastsItsOwnTime(t *testing.T) {
	t.Parallel()

	clk := clock.Scaled(100_000)
	before := clk.Now()

	require.NoError(t, clk.Sleep(t.Context(), 10*time.Minute)) // 6 ms
	require.GreaterOrEqual(t, clk.Now().Sub(before), 10*time.Minute)
}

func TestSleepEndsWithItsContext(t *testing.T) {
	t.Parallel()

	stopped := errors.New("stopped by a signal")

	for name, clk := range map[string]clock.Clock{"real": clock.Scaled(1), "scaled": clock.Scaled(2),
		"fake": fakeclock.New(time.Time{})} {
		t.Run(name+", done before", func(t *testing.T) {
			t.Parallel()

			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(stopped)

			require.ErrorIs(t, clk.Sleep(ctx, time.Hour), stopped)
		})
	}

	t.Run("done while it sleeps", func(t *testing.T) {
		t.Parallel()

		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Millisecond, func() { cancel(stopped) })

		require.ErrorIs(t, clock.Scaled(1).Sleep(ctx, time.Hour), stopped)
	})
}

func TestTimeoutsAreInTheClocksTime(t *testing.T) {
	t.Parallel()

	ctx, cancel := clock.Scaled(1_000_000).WithTimeout(t.Context(), time.Hour) // 3.6 ms
	defer cancel()

	<-ctx.Done()
	require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
}

func TestATimeoutEndsWithItsParentAndPassesOnToItsChildren(t *testing.T) {
	t.Parallel()

	stopped := errors.New("stopped by a signal")

	for name, clk := range map[string]clock.Clock{"real": clock.Scaled(1), "scaled": clock.Scaled(2)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			parent, stop := context.WithCancelCause(t.Context())
			ctx, cancel := clk.WithTimeout(parent, time.Hour)
			defer cancel()

			child, cancelChild := context.WithCancel(ctx)
			defer cancelChild()

			require.NoError(t, child.Err())
			stop(stopped)
			<-child.Done()
			require.ErrorIs(t, ctx.Err(), context.Canceled)
			require.ErrorIs(t, child.Err(), context.Canceled)
			require.ErrorIs(t, context.Cause(ctx), stopped)

			brief, cancelBrief := clk.WithTimeout(t.Context(), time.Millisecond)
			defer cancelBrief()

			child, cancelChild = context.WithCancel(brief)
			defer cancelChild()

			<-child.Done()
			require.ErrorIs(t, child.Err(), context.DeadlineExceeded)

			over, cancelOver := clk.WithTimeout(t.Context(), time.Hour)
			cancelOver()
			<-over.Done()
			require.ErrorIs(t, over.Err(), context.Canceled)
		})
	}
}

func TestAFakeClockMovesOnlyWhenAsked(t *testing.T) {
	t.Parallel()

	start := time.Date(2026, 1, 4, 17, 40, 35, 0, time.UTC)
	clk := fakeclock.New(start)

	require.Equal(t, start, clk.Now())

	clk.Advance(time.Minute)
	require.NoError(t, clk.Sleep(t.Context(), 3*time.Second))
	require.NoError(t, clk.Sleep(t.Context(), 6*time.Second))

	require.Equal(t, start.Add(time.Minute+9*time.Second), clk.Now())
	require.Equal(t, []time.Duration{3 * time.Second, 6 * time.Second}, clk.Sleeps())

	ctx, cancel := clk.WithTimeout(t.Context(), time.Nanosecond)
	require.NoError(t, ctx.Err(), "in fake time a call takes no time")
	cancel()
	require.ErrorIs(t, ctx.Err(), context.Canceled)
}
