package invocation_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cli/invocation"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/steps"
)

// call is an invocation for a cluster whose machines are off.
func call(t *testing.T, environ ...string) (made invocation.Invocation, out, errs *bytes.Buffer) {
	t.Helper()

	root := t.TempDir()

	cluster, err := labcluster.New(filepath.Join(root, "talos"), labcluster.Options{Off: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })

	out, errs = &bytes.Buffer{}, &bytes.Buffer{}

	return invocation.Invocation{
		Environ: append(cluster.Environ(),
			append([]string{"ROOT_DIR=" + root, "NODE_REACHABILITY_RETRIES=1"}, environ...)...),
		Workdir: root,
		Out:     out,
		Err:     errs,
	}, out, errs
}

func preflight(*settings.Settings) []steps.Step { return []steps.Step{steps.Preflight{}} }

func TestReportFileGetsEveryEventAsALine(t *testing.T) {
	t.Parallel()

	made, _, _ := call(t, "REPORT_FILE=events.jsonl")
	path := filepath.Join(made.Workdir, "events.jsonl")
	require.NoError(t, os.WriteFile(path, []byte("{\"event\":\"of an earlier run\"}\n"), 0o600))

	failure := made.Execute(t.Context(), "preflight", nil, preflight)
	require.Equal(t, diagnosis.ExitPreflight, failure.Code, failure.Message)

	data, err := os.ReadFile(path)
	require.NoError(t, err)

	var kinds []string

	for line := range strings.Lines(string(data)) {
		var event struct{ Event string }

		require.NoError(t, json.Unmarshal([]byte(line), &event), line)
		kinds = append(kinds, event.Event)
	}

	require.Equal(t, "of an earlier run", kinds[0], "nothing that was there is overwritten")
	require.Equal(t, []string{"run", "started"}, kinds[1:3])
	require.Contains(t, kinds, "finding")
	require.Contains(t, kinds, "result")
	require.Equal(t, []string{"finished", "outcome"}, kinds[len(kinds)-2:])
}

func TestAReportFileThatCannotBeOpenedIsBadInput(t *testing.T) {
	t.Parallel()

	made, out, _ := call(t, "REPORT_FILE=no/such/folder/events.jsonl")

	failure := made.Execute(t.Context(), "preflight", nil, preflight)
	require.Equal(t, diagnosis.ExitBadInput, failure.Code)
	require.Contains(t, failure.Message, "REPORT_FILE")
	require.Empty(t, out.String())
}

func TestResultsAreOnStdoutAndLogsOnStderr(t *testing.T) {
	t.Parallel()

	made, out, errs := call(t)

	made.Execute(t.Context(), "preflight", nil, preflight)
	require.Contains(t, out.String(), "TM090")
	require.NotContains(t, out.String(), " INFO ")
	require.Contains(t, errs.String(), "INFO preflight started nodes=\"6\"")
}
