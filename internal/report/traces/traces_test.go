package traces_test

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/report/traces"
	"github.com/talos-mage/talos-mage/internal/test/fakeclock"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

const secret = "AGE-SECRET-KEY-1PLANTEDPLANTEDPLANTEDPLANTED"

// collecting is a collector that keeps the spans it is sent.
type collecting struct {
	mu    sync.Mutex
	paths []string
	spans []*otlp.Span
}

func (c *collecting) ServeHTTP(_ http.ResponseWriter, request *http.Request) {
	body, _ := io.ReadAll(request.Body) //nolint:errcheck // what is cut short does not decode

	var sent collector.ExportTraceServiceRequest

	c.mu.Lock()
	defer c.mu.Unlock()

	c.paths = append(c.paths, request.URL.Path)

	if proto.Unmarshal(body, &sent) != nil {
		return
	}

	for _, resource := range sent.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
}

// tree is a span with all below it, each with its times, its status and its attributes.
func (c *collecting) tree(parent *otlp.Span, indent string) string {
	var text strings.Builder

	children := slices.DeleteFunc(slices.Clone(c.spans), func(span *otlp.Span) bool {
		return string(span.GetParentSpanId()) != string(parent.GetSpanId())
	})
	slices.SortFunc(children, func(a, b *otlp.Span) int {
		return cmp.Or(cmp.Compare(a.GetStartTimeUnixNano(), b.GetStartTimeUnixNano()),
			cmp.Compare(a.GetName(), b.GetName()))
	})

	for _, span := range children {
		fmt.Fprintf(&text, "%s%s, %s to %s %s\n", indent, span.GetName(), clockTime(span.GetStartTimeUnixNano()),
			clockTime(span.GetEndTimeUnixNano()), span.GetStatus().GetMessage())

		for _, attribute := range span.GetAttributes() {
			value := attribute.GetValue().GetStringValue()
			if number := attribute.GetValue().GetIntValue(); number != 0 {
				value = strconv.FormatInt(number, 10)
			}

			fmt.Fprintf(&text, "%s    %s=%s\n", indent, attribute.GetKey(), value)
		}

		for _, event := range span.GetEvents() {
			fmt.Fprintf(&text, "%s    at %s: %s\n", indent, clockTime(event.GetTimeUnixNano()), event.GetName())
		}

		text.WriteString(c.tree(span, indent+"  "))
	}

	return text.String()
}

func clockTime(nanoseconds uint64) string {
	return time.Unix(0, int64(nanoseconds)).UTC().Format("15:04:05") //nolint:gosec // it is of this century
}

// play is a run in which worker1 fails at its second attempt.
func play(t *testing.T, sink report.Sink) {
	t.Helper()

	clk := fakeclock.New(time.Date(2026, 1, 4, 17, 40, 0, 0, time.UTC))
	recorder := report.NewRecorder(clk.Now, sink)

	recorder.Begin(report.Began{Target: "talos", Version: "v1.2.3"})
	recorder.Start("apply", "cp1", "worker1")
	recorder.Finding("apply", diagnosis.Finding{ID: "TM054", Severity: diagnosis.Warning, Node: "cp1", Cause: secret})
	recorder.Progress("apply", report.Progress{Node: "worker1", Text: "applying"})
	clk.Advance(10 * time.Second)
	recorder.Progress("apply", report.Progress{Node: "worker1", Text: "waits after failed attempt 1",
		Failed: "refused " + secret})
	clk.Advance(5 * time.Second)
	recorder.Progress("apply", report.Progress{Node: "worker1", Text: "applying"})
	recorder.Result(report.Result{Node: "cp1", Step: "apply", Status: report.Applied, Attempts: 1,
		Duration: 2 * time.Second})
	clk.Advance(5 * time.Second)
	recorder.Result(report.Result{Node: "worker1", Step: "apply", Status: report.Failed, Attempts: 2,
		Err: diagnosis.NewProblem("TM060", "no answer", "mage status").In("apply")})
	recorder.Finish("apply", 20*time.Second, errors.New("worker1 failed"))
	recorder.End(report.Ended{Code: diagnosis.ExitApply, Message: "worker1: apply: no answer"})
	require.NoError(t, recorder.Close())
}

func TestARunIsATrace(t *testing.T) {
	t.Parallel()

	kept := &collecting{}
	server := httptest.NewServer(kept)
	t.Cleanup(server.Close)

	sink, err := traces.New(t.Context(), server.URL, func(err error) { t.Error("a warning:", err) })
	require.NoError(t, err)
	play(t, sink)

	require.Equal(t, []string{"/v1/traces"}, kept.paths)

	tree := kept.tree(nil, "")
	require.NotContains(t, tree, "PLANTED")
	golden.Assert(t, filepath.Join("testdata", "trace.golden"), tree)

	for _, span := range kept.spans {
		require.Equal(t, kept.spans[0].GetTraceId(), span.GetTraceId(), "it is one trace")
	}
}

func TestARunWithoutItsCollectorGoesOn(t *testing.T) {
	t.Parallel()

	server := httptest.NewServer(nil)
	server.Close()

	var warnings []error

	sink, err := traces.New(t.Context(), server.URL, func(err error) { warnings = append(warnings, err) })
	require.NoError(t, err)
	play(t, sink)
	require.Len(t, warnings, 1)
	require.ErrorContains(t, warnings[0], "send the trace: ")

	_, err = traces.New(t.Context(), "collector", nil)
	require.ErrorContains(t, err, "OTEL_EXPORTER_OTLP_ENDPOINT is no URL with a host")
}
