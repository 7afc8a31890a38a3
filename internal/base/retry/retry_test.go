package retry_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/clock"
	"github.com/talos-mage/talos-mage/internal/base/retry"
	"github.com/talos-mage/talos-mage/internal/test/fakeclock"
)

var (
	errRefused = errors.New("connection refused")
	errFinal   = errors.New("invalid config")
)

// defaults are those of the settings, without jitter.
func defaults() retry.Policy {
	return retry.Policy{Retries: 5, Initial: 3 * time.Second, Max: time.Minute, Multiplier: 2}
}

func always(error) bool { return true }

func seconds(numbers ...float64) []time.Duration {
	var waits []time.Duration
	for _, n := range numbers {
		waits = append(waits, time.Duration(n*float64(time.Second)))
	}

	return waits
}

func TestPauses(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		change func(*retry.Policy)
		want   []time.Duration
	}{
		"the defaults":               {func(*retry.Policy) {}, seconds(3, 6, 12, 24, 48)},
		"capped":                     {func(p *retry.Policy) { p.Retries = 8 }, seconds(3, 6, 12, 24, 48, 60, 60, 60)},
		"capped from the start":      {func(p *retry.Policy) { p.Max = 2 * time.Second }, seconds(2, 2, 2, 2, 2)},
		"another multiplier":         {func(p *retry.Policy) { p.Multiplier = 1.5 }, seconds(3, 4.5, 6.75, 10.125, 15.1875)},
		"a constant pause":           {func(p *retry.Policy) { p.Multiplier = 1 }, seconds(3, 3, 3, 3, 3)},
		"a multiplier never shrinks": {func(p *retry.Policy) { p.Multiplier = 0.5 }, seconds(3, 3, 3, 3, 3)},
		"no cap": {func(p *retry.Policy) { p.Max = 0; p.Retries = 7 },
			seconds(3, 6, 12, 24, 48, 96, 192)},
		"no pause":   {func(p *retry.Policy) { p.Initial = 0; p.Retries = 2 }, seconds(0, 0)},
		"no retries": {func(p *retry.Policy) { p.Retries = 0 }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			clk := fakeclock.New(time.Time{})
			policy := defaults()
			tt.change(&policy)

			attempts, err := retry.Do(t.Context(), clk, policy, func(context.Context, int) error { return errRefused }, always)

			require.ErrorIs(t, err, errRefused)
			require.Equal(t, policy.Retries+1, attempts)
			require.Equal(t, tt.want, clk.Sleeps())
		})
	}
}

func TestJitterOnlyLengthensAPauseAndByATenthAtMost(t *testing.T) {
	t.Parallel()

	policy := defaults()
	policy.Jitter = 0.1

	different := map[time.Duration]bool{}

	for range 200 {
		clk := fakeclock.New(time.Time{})

		_, err := retry.Do(t.Context(), clk, policy, func(context.Context, int) error { return errRefused }, always)
		require.Error(t, err)

		for i, shortest := range seconds(3, 6, 12, 24, 48) {
			pause := clk.Sleeps()[i]
			require.GreaterOrEqual(t, pause, shortest)
			require.LessOrEqual(t, pause, shortest+shortest/10)

			different[pause] = true
		}
	}

	require.Greater(t, len(different), 100)
}

func TestDoStopsAtSuccess(t *testing.T) {
	t.Parallel()

	clk := fakeclock.New(time.Time{})

	var numbers []int

	attempts, err := retry.Do(t.Context(), clk, defaults(), func(_ context.Context, n int) error {
		numbers = append(numbers, n)

		if n < 3 {
			return errRefused
		}

		return nil
	}, always)

	require.NoError(t, err)
	require.Equal(t, 3, attempts)
	require.Equal(t, []int{1, 2, 3}, numbers)
	require.Equal(t, seconds(3, 6), clk.Sleeps())
}

func TestAFinalErrorComesBackAtOnceAndAsItIs(t *testing.T) {
	t.Parallel()

	clk := fakeclock.New(time.Time{})

	attempts, err := retry.Do(t.Context(), clk, defaults(), func(_ context.Context, n int) error {
		if n == 1 {
			return errRefused
		}

		return errFinal
	}, func(err error) bool { return errors.Is(err, errRefused) })

	require.Equal(t, errFinal, err)
	require.Equal(t, 2, attempts)
	require.Equal(t, seconds(3), clk.Sleeps())
}

func TestTheErrorTellsHowManyAttemptsThereWere(t *testing.T) {
	t.Parallel()

	policy := defaults()

	_, err := retry.Do(t.Context(), fakeclock.New(time.Time{}), policy, func(_ context.Context, n int) error {
		return fmt.Errorf("attempt %d: %w", n, errRefused)
	}, always)
	require.EqualError(t, err, "gave up after 6 attempts: attempt 6: connection refused")

	policy.Retries = 0

	_, err = retry.Do(t.Context(), fakeclock.New(time.Time{}), policy,
		func(context.Context, int) error { return errRefused }, always)
	require.Equal(t, errRefused, err)
}

func TestADeadlineDoesNotHideTheCauseBeforeIt(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		retries int
		again   func(error) bool
	}{
		"when no retry is left":    {1, always},
		"when a deadline is final": {5, func(err error) bool { return !errors.Is(err, context.DeadlineExceeded) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			policy := defaults()
			policy.Retries = tt.retries

			attempts, err := retry.Do(t.Context(), fakeclock.New(time.Time{}), policy, func(_ context.Context, n int) error {
				if n == 1 {
					return errRefused
				}

				return context.DeadlineExceeded
			}, tt.again)

			require.Equal(t, 2, attempts)
			require.ErrorIs(t, err, errRefused)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Contains(t, err.Error(), "context deadline exceeded, after connection refused")
		})
	}
}

func TestDoIsCancelledAtOnce(t *testing.T) {
	t.Parallel()

	stopped := errors.New("stopped by a signal")

	t.Run("before the first attempt", func(t *testing.T) {
		t.Parallel()

		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(stopped)

		attempts, err := retry.Do(ctx, clock.Scaled(1), defaults(), func(context.Context, int) error { return errRefused },
			always)

		require.Zero(t, attempts)
		require.Equal(t, stopped, err)
	})

	t.Run("in an attempt", func(t *testing.T) {
		t.Parallel()

		ctx, cancel := context.WithCancelCause(t.Context())

		attempts, err := retry.Do(ctx, clock.Scaled(1), defaults(), func(context.Context, int) error {
			cancel(stopped)

			return errRefused
		}, always)

		require.Equal(t, 1, attempts)
		require.ErrorIs(t, err, stopped)
		require.ErrorIs(t, err, errRefused)
	})

	t.Run("in a pause of an hour", func(t *testing.T) {
		t.Parallel()

		ctx, cancel := context.WithCancelCause(t.Context())
		policy := defaults()
		policy.Initial, policy.Max = time.Hour, time.Hour
		policy.Waiting = func(int, time.Duration, error) { time.AfterFunc(time.Millisecond, func() { cancel(stopped) }) }

		attempts, err := retry.Do(ctx, clock.Scaled(1), policy, func(context.Context, int) error { return errRefused },
			always)

		require.Equal(t, 1, attempts)
		require.EqualError(t, err, "stopped by a signal after 1 attempt: connection refused")
		require.ErrorIs(t, err, errRefused)
	})
}

func TestWaitingIsToldOfEveryPause(t *testing.T) {
	t.Parallel()

	var told []string

	policy := defaults()
	policy.Retries = 2
	policy.Waiting = func(attempt int, pause time.Duration, cause error) {
		told = append(told, fmt.Sprintf("%d %v %v", attempt, pause, cause))
	}

	_, err := retry.Do(t.Context(), fakeclock.New(time.Time{}), policy,
		func(context.Context, int) error { return errRefused }, always)

	require.Error(t, err)
	require.Equal(t, []string{"1 3s connection refused", "2 6s connection refused"}, told)
}
