package report_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/test/fuzztest"
)

func TestAReportHasWholeLinesWhateverBecameOfTheRunBefore(t *testing.T) {
	t.Parallel()

	const event = `{"time":"2026-01-04T17:40:35Z","event":"finished","step":"verify"}` + "\n"

	for name, tt := range map[string]struct{ before, kept string }{
		"no file":             {"", ""},
		"whole lines":         {event + event, event + event},
		"half an event":       {event + event[:40], event},
		"a few bytes of one":  {event + `{"t`, event},
		"nothing but half":    {event[:40], ""},
		"somebody else's end": {event + "a remark", event + "a remark\n"},
		"a very long line":    {strings.Repeat("x", 1<<17), strings.Repeat("x", 1<<17) + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			path := filepath.Join(t.TempDir(), "report.jsonl")
			if tt.before != "" {
				require.NoError(t, os.WriteFile(path, []byte(tt.before), 0o600))
			}

			lines, err := report.AppendJSONLines(path)
			require.NoError(t, err)
			lines.Handle(report.Event{Step: "verify", Finished: &report.Finished{}})
			require.NoError(t, lines.Close())

			data, err := os.ReadFile(path)
			require.NoError(t, err)

			added, found := strings.CutPrefix(string(data), tt.kept)
			require.True(t, found, "%q", data)
			require.Equal(t, `{"time":"0001-01-01T00:00:00Z","event":"finished","step":"verify"}`+"\n", added)
		})
	}
}

func TestAReportNeedsAFolder(t *testing.T) {
	t.Parallel()

	_, err := report.AppendJSONLines(filepath.Join(t.TempDir(), "missing", "report.jsonl"))
	require.ErrorIs(t, err, os.ErrNotExist)

	_, err = report.AppendJSONLines(t.TempDir())
	require.Error(t, err)
}

// FuzzReportFile appends an event to any file: what was there stays, the beginning of an event at its end aside, and
// the event has a line of its own.
func FuzzReportFile(f *testing.F) {
	f.Add([]byte(`{"time":"2026-01-04T17:40:35Z","event":"finished","step":"verify"}` + "\n" + `{"ti`))
	f.Add([]byte("a remark"))

	for _, data := range fuzztest.Seeds(f, ".golden", ".json", ".yaml") {
		f.Add(data)
	}

	f.Fuzz(func(t *testing.T, before []byte) {
		const added = `{"time":"0001-01-01T00:00:00Z","event":"finished","step":"verify"}` + "\n"

		path := filepath.Join(t.TempDir(), "report.jsonl")
		require.NoError(t, os.WriteFile(path, before, 0o600))

		fuzztest.Bounded(t, func() {
			lines, err := report.AppendJSONLines(path)
			require.NoError(t, err)
			lines.Handle(report.Event{Step: "verify", Finished: &report.Finished{}})
			require.NoError(t, lines.Close())

			data, err := os.ReadFile(path)
			require.NoError(t, err)

			kept, found := strings.CutSuffix(string(data), added)
			require.True(t, found, "%q", data)
			require.True(t, kept == "" || strings.HasSuffix(kept, "\n"), "%q", kept)

			whole := string(before[:bytes.LastIndexByte(before, '\n')+1])
			require.True(t, kept == whole || kept == string(before)+"\n" || kept == string(before), "%q", kept)
		})
	})
}
