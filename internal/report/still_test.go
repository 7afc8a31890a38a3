package report

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/test/fakeclock"
)

// On a pipe, what waits is spoken of once in ten seconds of the wall clock, with times of the run's clock.
func TestSignsOfLifeWithoutATerminal(t *testing.T) {
	t.Parallel()

	var out bytes.Buffer

	clk := fakeclock.New(at())
	console := NewConsole(ConsoleOptions{Out: &bytes.Buffer{}, Err: &out, Now: clk.Now})
	// Lines of a known time; the console's own goroutine says nothing within the test's first ten seconds.
	console.log = newLogger(console.LogWriter(), "text", "info", false, at)
	recorder := NewRecorder(clk.Now, console)

	recorder.Start("verify", "cp1", "cp2")
	recorder.Progress("verify", Progress{Node: "cp2", Text: "installing", Since: clk.Now(), Left: 30 * time.Minute})
	recorder.Progress("verify", Progress{Node: "cp1", Text: "no answer"})
	recorder.Progress("verify", Progress{Text: "waiting for the Kubernetes API", Since: clk.Now()})

	wall := time.Now()
	console.saySigned(wall.Add(9 * time.Second))
	require.Empty(t, out.String())

	clk.Advance(time.Minute)
	console.saySigned(wall.Add(11 * time.Second))
	require.Equal(t, ""+
		"2026-01-04T17:40:35Z INFO still waiting for the Kubernetes API step=\"verify\" for=\"1m00s\"\n"+
		"2026-01-04T17:40:35Z INFO still no answer step=\"verify\" node=\"cp1\"\n"+
		"2026-01-04T17:40:35Z INFO still installing step=\"verify\" node=\"cp2\" for=\"1m00s\" left=\"29m00s\"\n",
		out.String())

	out.Reset()

	recorder.Progress("verify", Progress{Node: "cp2", Text: "rebooting", Since: clk.Now()})
	recorder.Result(Result{Node: "cp1", Step: "verify", Status: OK})
	console.saySigned(wall.Add(20 * time.Second))
	require.Empty(t, out.String(), "something was said nine seconds ago")

	console.saySigned(wall.Add(21 * time.Second))
	require.Contains(t, out.String(), "still rebooting")
	require.NotContains(t, out.String(), "cp1", "it is done")

	out.Reset()

	clk.Advance(time.Minute)

	console.options.Emulated = true
	console.saySigned(wall.Add(31 * time.Second))
	require.Contains(t, out.String(), `still rebooting step="verify" node="cp2" for="1m00s emulated"`)
	out.Reset()

	recorder.Finish("verify", time.Minute, nil)
	console.saySigned(wall.Add(time.Hour))
	require.Empty(t, out.String())
	require.NoError(t, recorder.Close())
}
