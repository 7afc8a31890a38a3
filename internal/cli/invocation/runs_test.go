package invocation_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cli/invocation"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// records are the folders of the runs that were recorded.
func records(t *testing.T, made invocation.Invocation) []string {
	t.Helper()

	found, err := filepath.Glob(filepath.Join(made.Workdir, "talos", ".talos-mage", "runs", "*"))
	require.NoError(t, err)

	return found
}

func TestARunIsRecordedAndShownAgain(t *testing.T) {
	t.Parallel()

	made, out, errs := call(t)

	failure := made.Execute(t.Context(), "preflight", nil, preflight)
	require.Equal(t, diagnosis.ExitPreflight, failure.Code, failure.Message)

	live := out.String()
	folder := records(t, made)[0]

	for _, name := range []string{"events.jsonl", "report.html", "junit.xml", "summary.json"} {
		require.FileExists(t, filepath.Join(folder, name))
	}

	ignored, err := os.ReadFile(filepath.Join(made.Workdir, "talos", ".talos-mage", ".gitignore"))
	require.NoError(t, err)
	require.Equal(t, "*\n", string(ignored))

	out.Reset()
	require.Nil(t, made.Report(t.Context(), nil))
	require.Contains(t, out.String(), live, "it is shown as it was")
	require.Contains(t, out.String(), "failed, code 3\n"+failure.Message)
	require.Contains(t, out.String(), "page: "+filepath.Join(folder, "report.html"))

	out.Reset()
	require.Nil(t, made.Runs(t.Context(), nil))
	require.Contains(t, out.String(), filepath.Base(folder)+"  preflight")
	require.Contains(t, out.String(), "failed, code 3")
	require.Regexp(t, `preflight +warning +6 +1 +TM090 `, out.String(), "six nodes, in one run, for one cause")

	// A line that is damaged, and what a kill leaves.
	path := filepath.Join(folder, "events.jsonl")
	events, err := os.ReadFile(path)
	require.NoError(t, err)

	lines := strings.SplitAfter(string(events), "\n")
	damaged := strings.Join(append([]string{lines[0], "damaged\n"}, lines[1:len(lines)-2]...), "")
	require.NoError(t, os.WriteFile(path, []byte(damaged), 0o600))

	for _, show := range []func() *invocation.Failure{
		func() *invocation.Failure { return made.Runs(t.Context(), nil) },
		func() *invocation.Failure { return made.Report(t.Context(), nil) },
	} {
		out.Reset()
		errs.Reset()
		require.Nil(t, show())
		require.Contains(t, errs.String(), path+":2: it is no JSON object of an event")
		require.Contains(t, out.String(), "unfinished")
	}

	page, err := os.ReadFile(filepath.Join(folder, "report.html"))
	require.NoError(t, err)
	require.Contains(t, string(page), "unfinished", "it is made anew")
}

// A document that a kill cut short never gets its name.
func TestDocumentsThatAKilledRunLacksAreMadeAnew(t *testing.T) {
	t.Parallel()

	made, _, _ := call(t)
	made.Execute(t.Context(), "preflight", nil, preflight)

	folder := records(t, made)[0]
	whole, err := os.ReadFile(filepath.Join(folder, "junit.xml"))
	require.NoError(t, err)

	require.NoError(t, os.Remove(filepath.Join(folder, "junit.xml")))
	require.NoError(t, os.WriteFile(filepath.Join(folder, ".junit.xml.talos-mage-tmp"), whole[:9], 0o600))

	require.Nil(t, made.Report(t.Context(), nil))

	again, err := os.ReadFile(filepath.Join(folder, "junit.xml"))
	require.NoError(t, err)
	require.Equal(t, string(whole), string(again))

	left, err := filepath.Glob(filepath.Join(folder, ".*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestBadInputIsRecordedToo(t *testing.T) {
	t.Parallel()

	made, _, _ := call(t)
	require.NoError(t, os.WriteFile(filepath.Join(made.Workdir, "talos", "talconfig.yaml"), []byte("nodes: {"), 0o600))

	failure := made.Execute(t.Context(), "preflight", nil, preflight)
	require.Equal(t, diagnosis.ExitBadInput, failure.Code)

	summary, err := os.ReadFile(filepath.Join(records(t, made)[0], "summary.json"))
	require.NoError(t, err)
	require.Contains(t, string(summary), `"code": 2`)
}

func TestWhatIsNotRecorded(t *testing.T) {
	t.Parallel()

	made, out, _ := call(t, "KEEP_RUNS=0")
	made.Execute(t.Context(), "preflight", nil, preflight)
	require.Empty(t, records(t, made))

	require.Nil(t, made.Runs(t.Context(), nil))
	require.Contains(t, out.String(), "no run is recorded in ")

	failure := made.Report(t.Context(), settings.Overrides{"run": "2026"})
	require.Equal(t, diagnosis.ExitBadInput, failure.Code)
	require.Contains(t, failure.Message, `begins with "2026"`)

	made, _, _ = call(t)
	made.Status(t.Context(), nil)
	require.Empty(t, records(t, made), "a table is no run")
}

func TestACollectorGetsARunsTrace(t *testing.T) {
	t.Parallel()

	var asked atomic.Pointer[string]

	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		asked.Store(&request.URL.Path)
	}))
	t.Cleanup(collector.Close)

	made, _, errs := call(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL)
	made.Execute(t.Context(), "preflight", nil, preflight)
	require.NotNil(t, asked.Load(), errs.String())
	require.Equal(t, "/v1/traces", *asked.Load())

	made, _, errs = call(t, "OTEL_EXPORTER_OTLP_ENDPOINT=nowhere")
	made.Execute(t.Context(), "preflight", nil, preflight)
	require.Contains(t, errs.String(), "WARN the run goes on without its trace")
}

func TestARunWithoutAWritableFolderGoesOn(t *testing.T) {
	t.Parallel()

	made, out, errs := call(t)
	require.NoError(t, os.Mkdir(filepath.Join(made.Workdir, "talos", ".talos-mage"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(made.Workdir, "talos", ".talos-mage", "runs"), nil, 0o600))

	failure := made.Execute(t.Context(), "preflight", nil, preflight)
	require.Equal(t, diagnosis.ExitPreflight, failure.Code)
	require.Contains(t, out.String(), "TM090")
	require.Equal(t, 1, strings.Count(errs.String(), "WARN the run goes on, but is not recorded as it should be"))
}
