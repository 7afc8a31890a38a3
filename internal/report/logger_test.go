package report

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/secrettext"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/test/fakeclock"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

// at is 17:40:35 UTC, told in another zone.
func at() time.Time {
	return time.Date(2026, 1, 4, 18, 40, 35, 123, time.FixedZone("CET", 3600))
}

func TestLogLinesHaveTheScriptsLook(t *testing.T) {
	t.Parallel()

	var out bytes.Buffer

	log := newLogger(&out, "text", "debug", false, at)
	log.Debug().Msg("looking")
	log.Info().Str("zone", "a").Str("node", `cp1 "first"`).Int("attempt", 2).Bool("ours", true).Msg("config sent")
	log.Warn().Strs("nodes", []string{"cp1", "cp2"}).Msg("two\nlines")
	log.Error().Str("cause", "a\nb").Msg("")

	require.Equal(t, ""+
		"2026-01-04T17:40:35Z DEBUG looking\n"+
		"2026-01-04T17:40:35Z INFO config sent zone=\"a\" node=\"cp1 \\\"first\\\"\" attempt=\"2\" ours=\"true\"\n"+
		"2026-01-04T17:40:35Z WARN two lines nodes=\"[\\\"cp1\\\",\\\"cp2\\\"]\"\n"+
		"2026-01-04T17:40:35Z ERROR cause=\"a\\nb\"\n", out.String())
}

func TestLogLinesCanBeColoured(t *testing.T) {
	t.Parallel()

	var out bytes.Buffer

	log := newLogger(&out, "text", "info", true, at)
	log.Error().Msg("no")

	require.Equal(t, "2026-01-04T17:40:35Z \x1b[31mERROR\x1b[0m no\n", out.String())
}

func TestLogLinesAsJSON(t *testing.T) {
	t.Parallel()

	var out bytes.Buffer

	log := newLogger(&out, "json", "info", true, at)
	log.Info().Str("node", "cp1 <a>").Int("attempt", 2).Interface("more",
		map[string]any{"token": "abcdef.0123456789abcdef"}).Msg("sent")
	log.Info().Float64("left", 1.5).Msg("")

	require.Equal(t, ""+
		`{"level":"info","node":"cp1 <a>","attempt":2,"more":{"token":"(masked)"},"time":"2026-01-04T17:40:35Z","message":"sent"}`+"\n"+
		`{"level":"info","left":1.5,"time":"2026-01-04T17:40:35Z"}`+"\n", out.String())
}

func TestTheLeastLevelOfLogLines(t *testing.T) {
	t.Parallel()

	for level, want := range map[string]int{"debug": 4, "info": 3, "warn": 2, "error": 1, "": 3, "loud": 3} {
		var out bytes.Buffer

		log := NewLogger(&out, "text", level, false)
		log.Debug().Msg("x")
		log.Info().Msg("x")
		log.Warn().Msg("x")
		log.Error().Msg("x")

		require.Equal(t, want, bytes.Count(out.Bytes(), []byte("\n")), level)
	}
}

func TestLogLinesMaskSecrets(t *testing.T) {
	t.Parallel()

	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer

		log := newLogger(&out, format, "info", false, at)
		log.Info().Str("cause", "a\nabcdef.0123456789abcdef\nb").Strs("keys", []string{pemKey(t)}).Msg("key " + pemKey(t))

		require.NotContains(t, out.String(), "abcdef.0123456789abcdef")
		require.NotContains(t, out.String(), "BEGIN")
		require.Contains(t, out.String(), secrettext.Masked)
	}
}

// someEvents are one of each kind.
func someEvents(clk *fakeclock.Clock, recorder *Recorder) {
	recorder.Start("apply", "cp1", "cp2")
	recorder.Progress("apply",
		Progress{Node: "cp1", Text: "installing", Since: clk.Now().Add(-time.Minute), Left: 29 * time.Minute})
	recorder.Progress("apply",
		Progress{Node: "cp1", Text: "installing", Since: clk.Now().Add(-time.Minute), Left: 28 * time.Minute})
	recorder.Finding("apply", diagnosis.Finding{ID: "TM044", Node: "cp1", Cause: "runs v1.13.9"})
	recorder.Finding("apply", diagnosis.Finding{
		ID: "TM054", Severity: diagnosis.Failure, Node: "cp2", Address: "192.0.2.12", Cause: "no link ens19",
		Next:    "mage preflight -node=cp2",
		Skipped: true,
	})
	recorder.Result(Result{Node: "cp1", Address: "192.0.2.11", Step: "apply", Status: Applied, Attempts: 2,
		Duration: 1500 * time.Millisecond, Detail: "sent"})
	recorder.Result(Result{Node: "cp2", Step: "apply", Status: Failed, Err: &diagnosis.Problem{
		Step: "apply", Finding: diagnosis.Finding{ID: "TM080", Severity: diagnosis.Failure, Node: "cp2", Cause: "silent",
			Next: "mage verify"},
	}})
	recorder.Result(Result{Node: "cp3", Step: "apply", Status: Drifted})
	recorder.Finish("apply", 12*time.Second, recorder.Results()[1].Err)
	recorder.Start("kubeconfig")
	recorder.Finish("kubeconfig", time.Second, nil)
}

func TestEventsAsLogLines(t *testing.T) {
	t.Parallel()

	var out bytes.Buffer

	clk := fakeclock.New(at())
	recorder := NewRecorder(clk.Now, NewLogSink(newLogger(&out, "text", "debug", false, clk.Now)))
	someEvents(clk, recorder)
	require.NoError(t, recorder.Close())

	golden.Assert(t, filepath.Join("testdata", "log.golden"), out.String())
}

func TestEventsAsJSONLines(t *testing.T) {
	t.Parallel()

	var out bytes.Buffer

	clk := fakeclock.New(at())
	recorder := NewRecorder(clk.Now, NewJSONLines(&out))
	someEvents(clk, recorder)
	require.NoError(t, recorder.Close())

	for line := range bytes.Lines(out.Bytes()) {
		require.True(t, json.Valid(line), string(line))
	}

	golden.Assert(t, filepath.Join("testdata", "events.jsonl.golden"), out.String())
}

func TestShortDurations(t *testing.T) {
	t.Parallel()

	for want, d := range map[string]time.Duration{
		"0.0s": -time.Second, "0.4s": 400 * time.Millisecond, "9.9s": 9900 * time.Millisecond,
		"42s":   42*time.Second + 900*time.Millisecond,
		"3m05s": 185 * time.Second, "1h02m": 62*time.Minute + 59*time.Second, "30h00m": 30 * time.Hour,
	} {
		require.Equal(t, want, short(d))
	}
}
