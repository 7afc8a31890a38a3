package wait_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/wait"
	"github.com/talos-mage/talos-mage/internal/test/fakeclock"
)

// told are the progresses of a run, as "cp1: booting".
type told []string

func (t *told) Handle(event report.Event) {
	*t = append(*t, event.Progress.Node+": "+event.Progress.Text)
}

func (*told) Close() error { return nil }

func TestWhatIsNoLongerSoIsTakenBack(t *testing.T) {
	t.Parallel()

	clk := fakeclock.New(time.Date(2026, 1, 4, 0, 0, 0, 0, time.UTC))
	said := &told{}
	states := []wait.State{
		{Lines: []wait.Line{{Node: "cp1", Text: "booting"}, {Node: "cp2", Text: "booting"}}},
		{Node: "cp2", Limit: wait.Limit{For: "joining"}},
		{Done: true},
	}
	waiter := wait.Waiter{Step: "verify", Clock: clk, Report: report.NewRecorder(clk.Now, said),
		Interrupted: func(context.Context) *diagnosis.Problem { return nil }}

	require.Nil(t, waiter.Until(t.Context(), func(context.Context) wait.State {
		state := states[0]
		states = states[1:]

		return state
	}))
	require.Equal(t, told{"cp1: booting", "cp2: booting", "cp1: ", "cp2: joining", "cp2: "}, *said)
}
