package report

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/term"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// ConsoleOptions say where the console writes and how.
type ConsoleOptions struct {
	// Out gets the results and nothing else: findings, how each step ended for each node, counts, the final table.
	Out io.Writer
	// Err gets the log lines and signs of life.
	Err io.Writer
	// Color colours what goes to Out, ErrColor what goes to Err.
	Color, ErrColor bool
	// Terminal shows live lines on Err, one a node; otherwise a log line says every ten seconds what a node that waits is
	// still doing. It takes effect only if Err is an *os.File that is a terminal.
	Terminal bool
	// LogFormat and LogLevel are those of NewLogger. JSON lines are for programs, so there are no live lines between them.
	LogFormat, LogLevel string
	// Brief leaves out findings that are ok, for runs of many steps; they are still counted.
	Brief bool
	// Verbose names the ids of the checks that were not run.
	Verbose bool
	// Now is the source of time for durations that are still running: the run's clock; default time.Now.
	Now func() time.Time
}

// Terminals completes options for two files, usually os.Stdout and os.Stderr: colours and live lines where the file is
// a terminal. Without colours if noColor is set.
func Terminals(out, err *os.File, noColor bool) ConsoleOptions {
	capable := func(file *os.File) bool { return term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb" }
	return ConsoleOptions{
		Out: out, Err: err,
		Color:    capable(out) && !noColor,
		ErrColor: capable(err) && !noColor,
		Terminal: capable(err),
	}
}

// Console is the sink for people. Results of a step are written when the step ends, in the order of the nodes it
// started with, so that what comes out doesn't depend on which node was faster; Close writes the final table if more
// than one step had results.
type Console struct {
	options ConsoleOptions
	log     zerolog.Logger

	// mu guards Err and what is shown there: log lines come from any goroutine.
	mu    sync.Mutex
	live  *liveLines
	still *stillLines
	stop  chan struct{}
	signs sync.WaitGroup

	// The rest is only used by Handle and Close, which come one at a time.
	step     string
	nodes    []string // of the step, in order
	order    []string // of all steps, in order
	findings []diagnosis.Finding
	results  []Result
	said     told
	all      []Result
	err      error
	closed   bool
}

// NewConsole opens a console. It must be closed, or a terminal may be left with live lines.
func NewConsole(options ConsoleOptions) *Console {
	if options.Now == nil {
		options.Now = time.Now
	}

	c := &Console{options: options, stop: make(chan struct{}), said: told{}}
	c.log = NewLogger(c.LogWriter(), options.LogFormat, options.LogLevel, options.ErrColor)
	c.still = newStillLines(options.Now)
	if c.liveTerminal() == nil {
		c.signs.Go(c.saySigns)
	}

	return c
}

// Logger writes log lines to Err, above the live lines if there are any.
func (c *Console) Logger() zerolog.Logger { return c.log }

// LogWriter is Err for whole lines of other loggers: it keeps them above the live lines. Safe for concurrent use.
func (c *Console) LogWriter() io.Writer { return consoleLines{c} }

// consoleLines writes lines to the console's Err.
type consoleLines struct{ console *Console }

// Write takes whole lines.
func (w consoleLines) Write(lines []byte) (int, error) {
	c := w.console

	c.mu.Lock()
	defer c.mu.Unlock()

	if c.live != nil {
		return c.live.Write(lines)
	}

	return c.options.Err.Write(lines)
}

// liveTerminal is where live lines are shown; nil for nowhere.
func (c *Console) liveTerminal() *os.File {
	file, isFile := c.options.Err.(*os.File)
	if !c.options.Terminal || c.options.LogFormat == "json" || !isFile || !term.IsTerminal(int(file.Fd())) {
		return nil
	}

	return file
}

// saySigns looks at what waits once a second until the console closes.
func (c *Console) saySigns() {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()

	for {
		select {
		case <-c.stop:
			return
		case now := <-ticker.C:
			c.saySigned(now)
		}
	}
}

// saySigned logs the nodes of which nothing was said for long.
func (c *Console) saySigned(now time.Time) {
	c.mu.Lock()
	signs := c.still.due(now)
	c.mu.Unlock()

	for _, sign := range signs {
		event := c.log.Info().Str("step", sign.step)

		if sign.node != "" {
			event.Str("node", sign.node)
		}

		if sign.lasts > 0 {
			event.Str("for", short(sign.lasts))
		}

		if sign.left > 0 {
			event.Str("left", short(sign.left))
		}

		event.Msg("still " + sign.text)
	}
}

// Handle shows the event.
func (c *Console) Handle(event Event) {
	switch {
	case event.Started != nil:
		c.start(event.Step, event.Started.Nodes)
	case event.Progress != nil:
		c.progress(event.Step, *event.Progress)
	case event.Finding != nil:
		c.findings = append(c.findings, *event.Finding)
	case event.Result != nil:
		c.result(*event.Result)
	case event.Finished != nil:
		c.finish(event.Step, *event.Finished)
	}
}

func (c *Console) start(step string, nodes []string) {
	c.settle()
	c.nodes = nodes
	for _, node := range nodes {
		if !slices.Contains(c.order, node) {
			c.order = append(c.order, node)
		}
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	c.still.clear()

	c.step = step
	c.goLive()
}

// goLive shows live lines for the step, where they can be shown.
func (c *Console) goLive() {
	if terminal := c.liveTerminal(); terminal != nil {
		c.live = newLiveLines(terminal, c.step, c.nodes, c.options.Now)
	}
}

func (c *Console) progress(step string, progress Progress) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if progress.Text == "" {
		c.idle(progress.Node)
		return
	}

	progress.Text = Scrub(progress.Text)
	c.still.update(step, progress, time.Now())

	if c.live != nil {
		c.live.update(progress)
	}
}

// idle takes a node's line away.
func (c *Console) idle(node string) {
	c.still.done(node)

	if c.live != nil {
		c.live.idle(node)
	}
}

func (c *Console) result(result Result) {
	// What came out later of a node counts.
	if i := slices.IndexFunc(c.results, func(earlier Result) bool {
		return result.Node != "" && earlier.Node == result.Node && earlier.Step == result.Step
	}); i >= 0 {
		c.results = slices.Delete(c.results, i, i+1)
	}

	c.results = append(c.results, result)
	c.all = append(c.all, result)

	c.mu.Lock()
	defer c.mu.Unlock()

	c.idle(result.Node)

	if c.live != nil {
		c.live.done(result.Node)
	}
}

// settle takes the live lines off the terminal.
func (c *Console) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.still.clear()

	if c.live != nil {
		c.live.close()
		c.live = nil
	}
}

func (c *Console) finish(step string, finished Finished) {
	c.settle()
	c.flush()

	// What a step came to for the cluster as a whole, its result has said.
	if counts := c.counts(); counts != "" || len(c.results) == 0 {
		line := fmt.Sprintf("%s: %s (%s)", step, cmp.Or(counts, ending(finished.Err)), short(finished.Duration))
		if failure(finished.Err) {
			line = paint(c.options.Color, red, line)
		}

		c.print(line)
	}

	c.findings, c.results, c.said = nil, nil, told{}
}

// flush writes the step's findings and results: those of the nodes in order, then those of the cluster.
func (c *Console) flush() {
	slices.SortStableFunc(c.findings,
		func(a, b diagnosis.Finding) int { return place(a.Node, c.nodes) - place(b.Node, c.nodes) })

	for i, finding := range c.findings {
		// An ok finding with advice is there to be read.
		if c.options.Brief && finding.Severity <= diagnosis.OK && finding.Next == "" || saidBefore(c.findings[:i], finding) {
			continue
		}

		c.said.add(finding)
		c.print(c.findingLine(finding))
		c.printNext(finding.Next)
	}

	for _, result := range inOrder(c.results, c.nodes) {
		line, next := c.resultLine(result)
		c.print(line)
		c.printNext(next)
	}
}

// sameReason tells of two checks that the same reason kept from being run.
func sameReason(a, b diagnosis.Finding) bool {
	return a.Severity == diagnosis.NotRun && b.Severity == diagnosis.NotRun && a.Node == b.Node && a.Cause == b.Cause
}

// saidBefore reports whether a finding stands in the line of an earlier one: a check that was not run for the same
// reason, or a cause that several nodes have.
func saidBefore(earlier []diagnosis.Finding, finding diagnosis.Finding) bool {
	// Of many nodes there are many findings, and next to all of them are ok.
	return finding.Severity != diagnosis.OK &&
		slices.ContainsFunc(earlier, func(other diagnosis.Finding) bool {
			return sameReason(other, finding) || sharesCause(other, finding)
		})
}

// subjects are all that a finding is about.
func (c *Console) subjects(finding diagnosis.Finding) string {
	var subjects []string
	for _, other := range c.findings {
		if sharesCause(other, finding) {
			subjects = append(subjects, other.Subject())
		}
	}

	if len(subjects) == 0 {
		return finding.Subject()
	}

	return strings.Join(subjects, ", ")
}

// notRunLine stands for all checks that the same reason kept from being run.
func (c *Console) notRunLine(finding diagnosis.Finding) string {
	var ids []diagnosis.ID
	for _, other := range c.findings {
		if sameReason(other, finding) {
			ids = append(ids, other.ID)
		}
	}

	return diagnosis.NotRunLine(ids, finding.Node, finding.Cause, c.options.Verbose)
}

func (c *Console) findingLine(finding diagnosis.Finding) string {
	severity := paint(c.options.Color, severityColor(finding.Severity), fmt.Sprintf("%-7s", finding.Severity))
	if finding.Severity == diagnosis.NotRun {
		return severity + "  " + indented(c.notRunLine(finding))
	}

	cause := finding.Cause

	if finding.Skipped {
		cause += " (a failure, were it not skipped)"
	}

	if finding.At.Line > 0 {
		cause += "\nat " + finding.At.String()

		if text := strings.TrimSpace(finding.At.Text); text != "" {
			cause += ": " + text
		}

		if finding.At.From != nil {
			cause += ", from " + finding.At.From.String()
		}
	}

	return fmt.Sprintf("%s  %s  %s  %s", severity, finding.ID, c.subjects(finding), indented(cause))
}

func (c *Console) resultLine(result Result) (line, next string) {
	status := paint(c.options.Color, statusColor(result.Status), fmt.Sprintf("%-7s", result.Status))
	text := result.Detail

	if result.Err != nil {
		text, next = c.said.explain(result.Err)
	}

	if text != "" {
		text = "  " + indented(text)
	}

	took := short(result.Duration)
	if result.Attempts > 1 {
		took = fmt.Sprintf("%d attempts, %s", result.Attempts, took)
	}

	return fmt.Sprintf("%s  %s  %s%s  (%s)", status, result.Step, result.Subject(), text, took), next
}

// counts sums up what a step did for nodes, and found: "5 of 6 nodes applied, 1 failed; 2 warnings".
func (c *Console) counts() string {
	parts := []string{countResults(c.results), countFindings(c.findings)}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), "; ")
}

// ending is how a step ended that had nothing to count.
func ending(err error) string {
	if err == nil {
		return "done"
	}

	cause, _ := explain(err)
	if failure(err) {
		return "failed: " + cause
	}

	return cause
}

// countResults is "5 of 6 nodes applied, 1 failed"; the cluster's own results don't count.
func countResults(results []Result) string {
	counts := map[Status]int{}
	total := 0
	for _, result := range results {
		if result.Node != "" {
			counts[result.Status]++
			total++
		}
	}

	var parts []string
	for _, status := range []Status{Applied, OK, Planned, Skipped, Warned, Drifted, Joining, Failed} {
		switch count := counts[status]; {
		case count == 0:
		case len(parts) == 0:
			parts = append(parts, fmt.Sprintf("%d of %s %s", count, plural(total, "node"), status))
		default:
			parts = append(parts, fmt.Sprintf("%d %s", count, status))
		}
	}

	return strings.Join(parts, ", ")
}

// countFindings is "24 checks ok, 2 warnings, 1 failure".
func countFindings(findings []diagnosis.Finding) string {
	counts := map[diagnosis.Severity]int{}
	for _, finding := range findings {
		counts[finding.Severity]++
	}

	var parts []string

	if count := counts[diagnosis.OK]; count > 0 {
		parts = append(parts, plural(count, "check")+" ok")
	}

	for _, severity := range []diagnosis.Severity{diagnosis.Warning, diagnosis.Failure} {
		if count := counts[severity]; count > 0 {
			parts = append(parts, plural(count, severity.String()))
		}
	}

	if count := counts[diagnosis.NotRun]; count > 0 {
		parts = append(parts, plural(count, "check")+" not run")
	}

	return strings.Join(parts, ", ")
}

// print writes a result with secrets masked.
func (c *Console) print(line string) {
	if _, err := io.WriteString(c.options.Out, scrubPainted(line, c.options.Color)+"\n"); err != nil && c.err == nil {
		c.err = fmt.Errorf("write results: %w", err)
	}
}

func (c *Console) printNext(next string) {
	if next != "" {
		c.print("    next: " + indented(next))
	}
}

// Close takes the live lines away and writes what is pending: results of a step that didn't end, and the final table.
func (c *Console) Close() error {
	if c.closed {
		return c.err
	}

	c.closed = true

	c.settle()
	close(c.stop)
	c.signs.Wait()
	c.flush()

	_, steps := axes(c.all)
	if len(steps) > 1 {
		c.print("")

		if err := writeTable(c.options.Out, c.all, c.order, c.options.Color); err != nil {
			c.err = errors.Join(c.err, err)
		}
	}

	return c.err
}
