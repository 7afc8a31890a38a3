package report

import (
	"github.com/rs/zerolog"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// LogSink turns events into log lines: steps and results of nodes at info, failures at error, what nodes are doing at
// debug.
type LogSink struct {
	log zerolog.Logger
	// doing is the newest text of each node, so that only changes are logged.
	doing map[string]string
	// said are the causes of the step that were logged.
	said told
}

// NewLogSink logs to log.
func NewLogSink(log zerolog.Logger) *LogSink {
	return &LogSink{log: log, doing: map[string]string{}, said: told{}}
}

// Handle logs the event.
func (s *LogSink) Handle(event Event) {
	switch {
	case event.Started != nil:
		clear(s.doing)
		clear(s.said)
		s.started(event.Step, len(event.Started.Nodes))
	case event.Progress != nil:
		if text := event.Progress.Text; text != "" && text != s.doing[event.Progress.Node] {
			s.doing[event.Progress.Node] = text
			s.line(zerolog.DebugLevel, event.Step, event.Progress.Node, "").Msg(text)
		}
	case event.Finding != nil:
		s.finding(event.Step, *event.Finding)
	case event.Result != nil:
		s.result(*event.Result)
	case event.Finished != nil:
		s.finished(event.Step, *event.Finished)
	}
}

// Close has nothing to flush.
func (s *LogSink) Close() error { return nil }

func (s *LogSink) line(level zerolog.Level, step, node, address string) *zerolog.Event {
	event := s.log.WithLevel(level).Str("step", step)

	if node != "" {
		event.Str("node", node)
	}

	if address != "" {
		event.Str("address", address)
	}

	return event
}

func (s *LogSink) started(step string, nodes int) {
	event := s.log.Info()

	if nodes > 0 {
		event.Int("nodes", nodes)
	}

	event.Msg(step + " started")
}

// finding logs failures for all to see; the results on stdout show every finding.
func (s *LogSink) finding(step string, finding diagnosis.Finding) {
	level := zerolog.DebugLevel
	if finding.Severity == diagnosis.Failure {
		level = zerolog.ErrorLevel

		s.said.add(finding)
	}

	event := s.line(level, step, finding.Node, finding.Address).Str("id", string(finding.ID))

	if finding.Next != "" {
		event.Str("next", finding.Next)
	}

	event.Msg(finding.Headline())
}

func (s *LogSink) result(result Result) {
	level := zerolog.InfoLevel

	switch result.Status {
	case Failed, Refused:
		level = zerolog.ErrorLevel
	case Warned, Drifted:
		level = zerolog.WarnLevel
	case OK, Applied, Skipped, Joining, Planned:
	}

	event := s.line(level, result.Step, result.Node, result.Address)

	if result.Attempts > 0 {
		event.Int("attempts", result.Attempts)
	}

	event.Str("duration", short(result.Duration))

	if result.Detail != "" {
		event.Str("detail", result.Detail)
	}

	if result.Err != nil {
		cause, next := s.said.explain(result.Err)
		event.Str("cause", cause)

		if next != "" {
			event.Str("next", next)
		}
	}

	event.Msg(string(result.Status))
}

func (s *LogSink) finished(step string, finished Finished) {
	level, end := zerolog.InfoLevel, " finished"

	if failure(finished.Err) {
		level, end = zerolog.ErrorLevel, " failed"
	}

	s.log.WithLevel(level).Str("duration", short(finished.Duration)).Msg(step + end)
}

// failure reports whether a step's error is one: the answer of a dry run, "changes would be made", isn't.
func failure(err error) bool {
	problem, ok := diagnosis.AsProblem(err)
	return err != nil && (!ok || problem.ExitCode() != diagnosis.ExitDryRun)
}

// explain is an error as people get it: of a problem the first line of its cause with its id, and the next command.
func explain(err error) (cause, next string) {
	if problem, ok := diagnosis.AsProblem(err); ok {
		cause = problem.Placed()

		if problem.ID != "" {
			cause += " [" + string(problem.ID) + "]"
		}

		return cause, problem.Next
	}

	return err.Error(), ""
}
