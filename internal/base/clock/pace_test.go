package clock

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestThePaceHoldsBackWhileTheProcessCanNotRun(t *testing.T) {
	t.Parallel()

	const beat = shortestBeat

	start := time.Date(2026, 1, 4, 17, 40, 0, 0, time.UTC)

	for name, tt := range map[string]struct {
		beats []time.Duration // when they come
		read  time.Duration   // when it is asked
		want  time.Duration
	}{
		"in time": {beats: []time.Duration{beat, 2 * beat}, read: 2*beat + time.Millisecond,
			want: 2*beat + time.Millisecond},
		"a late beat counts in part": {beats: []time.Duration{beat, time.Second}, read: time.Second,
			want: beat + allowance*beat},
		"a beat that is still to come": {beats: []time.Duration{beat}, read: time.Minute, want: beat + allowance*beat},
		"after a late one it goes on": {beats: []time.Duration{time.Second, time.Second + beat}, read: time.Second + beat,
			want: allowance*beat + beat},
		"a clock that went back":        {beats: []time.Duration{beat, 0}, read: 0, want: beat},
		"nothing has passed at a start": {read: 0, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			p := pace{beat: beat}

			p.hit(start)

			for _, at := range tt.beats {
				p.hit(start.Add(at))
			}

			require.Equal(t, tt.want, p.read(start.Add(tt.read)))
		})
	}
}

// A slow clock needs few beats, and each costs the process a little.
func TestTheBeatFollowsTheClock(t *testing.T) {
	t.Parallel()

	for factor, want := range map[float64]time.Duration{
		0.1: longestBeat, 2: 50 * time.Millisecond, 4: 25 * time.Millisecond, 20: shortestBeat, 100_000: shortestBeat,
	} {
		require.Equal(t, want, beatFor(factor), "%g times as fast", factor)
	}
}

func TestAClockThatHoldsBackIsNotAskedAllTheTime(t *testing.T) {
	t.Parallel()

	const held = 20 * time.Millisecond

	asked := 0
	clock := scaled{factor: 1000, passed: func(time.Time) time.Duration {
		asked++

		return 0
	}}

	ctx, cancel := context.WithTimeout(t.Context(), held)
	defer cancel()

	require.ErrorIs(t, clock.Sleep(ctx, time.Millisecond), context.DeadlineExceeded)
	require.LessOrEqual(t, asked, int(held/nap)+2)
}
