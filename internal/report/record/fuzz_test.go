package record_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/report/record"
	"github.com/talos-mage/talos-mage/internal/test/fuzztest"
)

// Whatever stands in a file of events: each line is shown or named, and the documents can be made of what is shown.
func FuzzAnyEventsAreShownOrNamed(f *testing.F) {
	f.Add("")
	f.Add("{}\n")
	f.Add(`{"time":"2026-01-04T17:40:35Z","event":"result","node":"a","status":"failed","seconds":1e300,"cause":"x"}`)
	f.Add(`{"time":"2026-01-04T17:40:35Z","event":"progress","node":"a","text":"b"}` + "\n" +
		`{"time":"1926-01-04T17:40:35Z","event":"finished","step":"never began"}` + "\n")
	f.Add(`{"time":"2026-01-04T17:40:35Z","event":"outcome"}` + "\n" + `{"time":"0001-01-01T00:00:00Z","event":"run"}`)

	f.Fuzz(func(t *testing.T, events string) {
		folder := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(folder, "events.jsonl"), []byte(events), 0o600))

		lines := strings.Count(events, "\n")
		if !strings.HasSuffix(events, "\n") && events != "" {
			lines++
		}

		fuzztest.Bounded(t, func() {
			shown := 0
			mistakes, err := record.Each(folder, func(report.Line) { shown++ })
			require.NoError(t, err)
			require.Equal(t, lines, shown+len(mistakes))

			run, _, err := record.Read(folder)
			require.NoError(t, err)
			require.NoError(t, run.Write(folder))
			require.NotEmpty(t, record.Rows([]*record.Run{run}))
			record.Sums([]*record.Run{run})
		})
	})
}
