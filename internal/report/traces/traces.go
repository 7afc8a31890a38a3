// Package traces tells an OpenTelemetry collector of a run: it is a trace, and steps, nodes and their attempts are its
// spans.
package traces

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
)

const (
	// Variable is where a collector is named, by the address of its OTLP over HTTP.
	Variable = "OTEL_EXPORTER_OTLP_ENDPOINT"
	// patience is how long a run waits for its collector at the end, and for one batch before.
	patience = 3 * time.Second
	// queued is how many spans wait for the next batch; there is one a node, attempt and step.
	queued = 1 << 16
)

// Sink makes spans of events.
type Sink struct {
	provider *sdk.TracerProvider
	exporter *exporter
	warn     func(error)

	run, step span
	stepBegan time.Time
	nodes     map[string]*node
}

// span is one that has begun; its context is that of its children.
type span struct {
	trace.Span

	ctx context.Context //nolint:containedctx // it is what makes another span its child
}

// node is what a node does within a step.
type node struct {
	span

	// attempt is the one that goes on; nil while the next one is waited for.
	attempt  *span
	attempts int
	text     string
}

// New sends to the collector at an address. What can't be sent is warned of at the end: a run goes on without a trace.
func New(ctx context.Context, address string, warn func(error)) (*Sink, error) {
	endpoint, err := url.Parse(address)
	if err != nil || endpoint.Host == "" {
		return nil, fmt.Errorf("%s is no URL with a host", Variable)
	}

	client, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(endpoint.JoinPath("v1", "traces").String()),
		otlptracehttp.WithTimeout(patience), otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}))
	if err != nil {
		return nil, fmt.Errorf("prepare traces: %w", err)
	}

	watched := &exporter{SpanExporter: client}

	return &Sink{
		exporter: watched,
		warn:     warn,
		provider: sdk.NewTracerProvider(sdk.WithBatcher(watched, sdk.WithMaxQueueSize(queued)),
			sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", "talos-mage")))),
	}, nil
}

// exporter keeps the first error, which the SDK would print.
type exporter struct {
	sdk.SpanExporter

	mu  sync.Mutex
	err error
}

// ExportSpans sends spans.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)

	e.mu.Lock()
	defer e.mu.Unlock()

	if e.err == nil {
		e.err = err
	}

	return nil
}

// Handle makes spans begin and end.
func (s *Sink) Handle(event report.Event) {
	line, told := report.LineOf(event)
	if !told {
		return
	}

	switch line.Event {
	case report.KindRun:
		s.run = s.begin(context.Background(), "mage "+line.Target, line.Time,
			attribute.String("talos_mage.target", line.Target), attribute.String("talos_mage.version", line.Version))
	case report.KindStarted:
		s.step = s.begin(s.run.ctx, line.Step, line.Time, attribute.Int("talos_mage.nodes", len(line.Nodes)))
		s.stepBegan, s.nodes = line.Time, map[string]*node{}
	case report.KindProgress:
		s.progress(line)
	case report.KindFinding:
		s.finding(line)
	case report.KindResult:
		s.result(line)
	case report.KindFinished:
		s.finish(line)
	case report.KindOutcome:
		s.run.SetAttributes(attribute.Int("talos_mage.exit_code", int(*line.Code)))

		if *line.Code != diagnosis.ExitOK && *line.Code != diagnosis.ExitDryRun {
			s.run.SetStatus(codes.Error, line.Message)
		}

		s.run.End(trace.WithTimestamp(line.Time))
	}
}

func (s *Sink) begin(within context.Context, name string, at time.Time, about ...attribute.KeyValue) span {
	tracer := s.provider.Tracer("talos-mage")
	ctx, begun := tracer.Start(within, name, trace.WithTimestamp(at), trace.WithAttributes(about...))

	return span{begun, ctx}
}

// doing is a node's span within the step, which begins when something is first told of it.
func (s *Sink) doing(name string, began time.Time) *node {
	of, known := s.nodes[name]
	if !known {
		subject := diagnosis.Finding{Node: name}.Subject()
		of = &node{span: s.begin(s.step.ctx, subject, began, attribute.String("talos_mage.node", name))}
		s.nodes[name] = of
	}

	return of
}

// try has the node's next attempt begin, if none goes on.
func (s *Sink) try(of *node, at time.Time) {
	if of.attempt == nil {
		of.attempts++
		begun := s.begin(of.ctx, fmt.Sprintf("attempt %d", of.attempts), at)
		of.attempt = &begun
	}
}

func (s *Sink) progress(line report.Line) {
	of := s.doing(line.Node, line.Time)

	if line.Failed != "" {
		s.try(of, line.Time)
		of.attempt.SetStatus(codes.Error, line.Failed)
		of.attempt.End(trace.WithTimestamp(line.Time))
		of.attempt = nil
	} else {
		s.try(of, line.Time)
	}

	if line.Text != of.text {
		of.text = line.Text
		of.AddEvent(line.Text, trace.WithTimestamp(line.Time))
	}
}

func (s *Sink) finding(line report.Line) {
	if line.Severity == diagnosis.OK.String() {
		return
	}

	s.step.AddEvent(line.Severity, trace.WithTimestamp(line.Time), trace.WithAttributes(problem(line)...))
}

func problem(line report.Line) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("talos_mage.node", line.Node), attribute.String("talos_mage.id", line.ID),
		attribute.String("talos_mage.cause", line.Cause), attribute.String("talos_mage.next", line.Next),
	}
}

func (s *Sink) result(line report.Line) {
	// A rehearsal's nodes have a faster clock.
	began := line.Time.Add(-time.Duration(line.Seconds * float64(time.Second)))
	if began.Before(s.stepBegan) {
		began = s.stepBegan
	}

	of := s.doing(line.Node, began)
	of.SetAttributes(attribute.String("talos_mage.status", string(line.Status)),
		attribute.Int("talos_mage.attempts", line.Attempts))

	if line.Status.Bad() {
		of.SetAttributes(problem(line)...)
		of.fail(line.Error)
	}

	of.end(line.Time)
	delete(s.nodes, line.Node)
}

// fail says why the node's span, and its attempt, did not end well.
func (n *node) fail(why string) {
	n.SetStatus(codes.Error, why)

	if n.attempt != nil {
		n.attempt.SetStatus(codes.Error, why)
	}
}

func (n *node) end(at time.Time) {
	if n.attempt != nil {
		n.attempt.End(trace.WithTimestamp(at))
	}

	n.End(trace.WithTimestamp(at))
}

func (s *Sink) finish(line report.Line) {
	for _, of := range s.nodes {
		of.end(line.Time)
	}

	s.nodes = nil

	if line.Error != "" {
		s.step.SetStatus(codes.Error, line.Error)
	}

	s.step.End(trace.WithTimestamp(line.Time))
}

// Close sends what is left. It warns of what went wrong; the run itself did not.
func (s *Sink) Close() error {
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()

	err := s.provider.Shutdown(ctx)

	s.exporter.mu.Lock()
	defer s.exporter.mu.Unlock()

	if s.exporter.err != nil {
		err = s.exporter.err
	}

	if err != nil {
		s.warn(fmt.Errorf("send the trace: %w", err))
	}

	return nil
}
