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
	// Story tells each step by a heading with its counts, and only what needs attention under it, for a person who sees
	// Out and Err on one terminal.
	Story bool
	// ASCII is set where the locale has no other characters.
	ASCII bool
	// Workflow, if set, puts each step into a group of GitHub Actions' log, and its findings beside the lines of files.
	Workflow *Workflow
	// LogFormat and LogLevel are those of NewLogger. JSON lines are for programs, so there are no live lines between them.
	LogFormat, LogLevel string
	// Brief leaves out findings that are ok, for runs of many steps; they are still counted.
	Brief bool
	// Verbose folds nothing, and names the ids of the checks that were not run.
	Verbose bool
	// Now is the run's clock, by which nodes wait, and Wall people's, by which steps last; by default time.Now, and Now.
	Now, Wall func() time.Time
	// Emulated is set when the run's clock is faster than people's.
	Emulated bool
}

func (o ConsoleOptions) look() look {
	return look{color: o.Color, ascii: o.ASCII, emulated: o.Emulated}
}

// width is how wide what goes to Out may be; 0 is any.
func (o ConsoleOptions) width() int {
	if !o.Story {
		return 0
	}

	return Width(o.Out)
}

// Terminals completes options for two files, usually os.Stdout and os.Stderr: colours and live lines where the file is
// a terminal. Without colours if noColor is set.
func Terminals(out, err *os.File, noColor bool) ConsoleOptions {
	capable := func(file *os.File) bool {
		return term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb" && understandsCodes(file)
	}
	return ConsoleOptions{
		Out: out, Err: err,
		Color:    capable(out) && !noColor,
		ErrColor: capable(err) && !noColor,
		Terminal: capable(err),
		Story:    capable(out) && capable(err),
		ASCII:    hasOnlyASCII(os.Getenv),
	}
}

// Console is the sink for people. Results of a step are written when the step ends, in the order of the nodes it
// started with, so that what comes out doesn't depend on which node was faster; Close writes the final table if more
// than one step had results.
type Console struct {
	options ConsoleOptions
	log     zerolog.Logger

	// mu guards all that follows: log lines come from any goroutine, and live lines are drawn by one of their own.
	mu     sync.Mutex
	live   *area // nil where nothing live is shown
	still  *stillLines
	view   *view
	order  []string // the nodes of all steps
	said   told
	all    []Result
	err    error
	closed bool

	stop  chan struct{}
	signs sync.WaitGroup
}

// NewConsole opens a console. It must be closed, or a terminal may be left with live lines.
func NewConsole(options ConsoleOptions) *Console {
	if options.Now == nil {
		options.Now = time.Now
	}

	if options.Wall == nil {
		options.Wall = options.Now
	}

	terminal := options.liveTerminal()
	options.Story = options.Story && options.LogFormat != "json"

	c := &Console{options: options, stop: make(chan struct{}), said: told{}, view: newView("", nil, time.Time{})}
	c.log = c.newLogger()
	c.still = newStillLines(options.Now)

	if terminal != nil {
		c.live = &area{terminal: terminal}
		c.signs.Go(func() { c.each(drawEvery, func(time.Time) { c.draw() }) })
	} else {
		c.signs.Go(func() { c.each(time.Second, c.saySigned) })
	}

	return c
}

func (c *Console) newLogger() zerolog.Logger {
	if c.options.Story && !c.options.Verbose {
		return lineLogger(c.LogWriter(), c.storyLine, c.options.LogLevel, time.Now)
	}

	return NewLogger(c.LogWriter(), c.options.LogFormat, c.options.LogLevel, c.options.ErrColor)
}

// Logger writes log lines to Err, above the live lines if there are any.
func (c *Console) Logger() zerolog.Logger { return c.log }

// Echo is where log lines go that say what results and live lines say, too: nowhere if a person sees those.
func (c *Console) Echo() zerolog.Logger {
	if c.options.Story && !c.options.Verbose {
		return zerolog.Nop()
	}

	return c.log
}

// LogWriter is Err for whole lines of other loggers: it keeps them above the live lines. Safe for concurrent use.
func (c *Console) LogWriter() io.Writer { return consoleLines{c} }

// consoleLines writes lines to the console's Err.
type consoleLines struct{ console *Console }

// Write takes whole lines.
func (w consoleLines) Write(lines []byte) (int, error) {
	c := w.console

	c.mu.Lock()
	defer c.mu.Unlock()

	if err := c.above(c.options.Err, string(lines)); err != nil {
		return 0, err
	}

	return len(lines), nil
}

// above writes whole lines, above the live ones if those are on the same terminal.
func (c *Console) above(out io.Writer, lines string) error {
	if c.live != nil && (out == c.options.Err || c.options.Story) {
		return c.live.above(out, lines)
	}

	_, err := io.WriteString(out, lines)

	return err //nolint:wrapcheck // the caller says what was written
}

// liveTerminal is where live lines are shown; nil for nowhere.
func (o ConsoleOptions) liveTerminal() *os.File {
	file, isFile := o.Err.(*os.File)
	if !o.Terminal || o.LogFormat == "json" || !isFile || !term.IsTerminal(int(file.Fd())) {
		return nil
	}

	return file
}

// drawEvery is how often live lines are drawn again.
const drawEvery = 100 * time.Millisecond

// draw shows what the step's nodes are doing now.
func (c *Console) draw() {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.drawNow()
}

func (c *Console) drawNow() {
	if c.live == nil || c.view.began.IsZero() {
		return
	}

	shown := page{look: c.options.look(), now: c.options.Now(), wall: c.options.Wall()}
	shown.color = c.options.ErrColor
	shown.width, shown.height = c.live.size()
	c.live.draw(shown.lines(c.view))
}

// each calls a function again and again until the console closes.
func (c *Console) each(interval time.Duration, do func(now time.Time)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()

	for {
		select {
		case <-c.stop:
			return
		case now := <-ticker.C:
			do(now)
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
			event.Str("for", short(sign.lasts)+c.options.look().emulatedTime())
		}

		if sign.left > 0 {
			event.Str("left", short(sign.left)+c.options.look().emulatedTime())
		}

		event.Msg("still " + sign.text)
	}
}

// Handle shows the event.
func (c *Console) Handle(event Event) {
	c.mu.Lock()
	defer c.mu.Unlock()

	switch {
	case event.Started != nil:
		c.start(event.Step, event.Started.Nodes)
	case event.Progress != nil:
		c.progress(event.Step, *event.Progress)
	case event.Finding != nil:
		c.view.findings = append(c.view.findings, *event.Finding)
	case event.Result != nil:
		c.still.done(event.Result.Node)
		c.view.result(*event.Result)
		c.all = append(c.all, *event.Result)
	case event.Finished != nil:
		c.finish(*event.Finished)
	}
}

func (c *Console) start(step string, nodes []string) {
	c.settle()
	c.view = newView(step, nodes, c.options.Wall())

	for _, node := range nodes {
		if !slices.Contains(c.order, node) {
			c.order = append(c.order, node)
		}
	}

	if c.options.Workflow != nil {
		c.print("::group::" + step)
	}

	// Results that go through a pipe, such as tee's, may still be on their way to the terminal.
	if c.options.Story {
		c.drawNow()
	}
}

func (c *Console) progress(step string, progress Progress) {
	c.view.progress(progress, c.options.Now())

	if progress.Text == "" {
		c.still.done(progress.Node)
		return
	}

	progress.Text = Scrub(progress.Text)
	c.still.update(step, progress, time.Now())
}

// settle takes the live lines off the terminal.
func (c *Console) settle() {
	c.still.clear()

	if c.live != nil {
		c.live.clear()
	}
}

func (c *Console) finish(finished Finished) {
	c.settle()

	switch {
	case c.options.Story:
		c.tellStory(finished)
	default:
		c.flush()
		c.endGroup()
		c.printCounts(finished)
	}

	c.view, c.said = newView("", nil, time.Time{}), told{}
}

// tellStory writes the step as one who watches it reads it.
func (c *Console) tellStory(finished Finished) {
	told := story{look: c.options.look(), view: c.view, said: c.said, brief: c.options.Brief, verbose: c.options.Verbose}
	for _, line := range told.lines(finished) {
		c.print(line)
	}
}

// printCounts writes what the step came to for nodes, and found. What it came to for the cluster as a whole, its result
// has said.
func (c *Console) printCounts(finished Finished) {
	counts := c.counts()
	if counts == "" && len(c.view.results) > 0 {
		return
	}

	line := fmt.Sprintf("%s: %s (%s)", c.view.step, cmp.Or(counts, ending(finished.Err)), short(finished.Duration))
	if failure(finished.Err) {
		line = paint(c.options.Color, red, line)
	}

	c.print(line)
}

// flush writes the step's findings and results: those of the nodes in order, then those of the cluster.
func (c *Console) flush() {
	findings := c.view.findings
	slices.SortStableFunc(findings,
		func(a, b diagnosis.Finding) int { return place(a.Node, c.view.nodes) - place(b.Node, c.view.nodes) })

	for i, finding := range findings {
		// An ok finding with advice is there to be read.
		if c.options.Brief && finding.Severity <= diagnosis.OK && finding.Next == "" || saidBefore(findings[:i], finding) {
			continue
		}

		c.said.add(finding)
		c.print(c.findingLine(finding))
		c.printNext(finding.Next)
	}

	for _, result := range inOrder(c.view.results, c.view.nodes) {
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

// subjects are all that a finding, of those of a step, is about.
func subjects(findings []diagnosis.Finding, finding diagnosis.Finding) string {
	var subjects []string
	for _, other := range findings {
		if sharesCause(other, finding) {
			subjects = append(subjects, other.Subject())
		}
	}

	if len(subjects) == 0 {
		return finding.Subject()
	}

	return strings.Join(subjects, ", ")
}

// notRunLine stands for all checks, of those of a step, that the same reason kept from being run.
func notRunLine(findings []diagnosis.Finding, finding diagnosis.Finding, verbose bool) string {
	var ids []diagnosis.ID
	for _, other := range findings {
		if sameReason(other, finding) {
			ids = append(ids, other.ID)
		}
	}

	return diagnosis.NotRunLine(ids, finding.Node, finding.Cause, verbose)
}

func (c *Console) findingLine(finding diagnosis.Finding) string {
	severity := paint(c.options.Color, severityColor(finding.Severity), fmt.Sprintf("%-7s", finding.Severity))
	if finding.Severity == diagnosis.NotRun {
		return severity + "  " + indented(notRunLine(c.view.findings, finding, c.options.Verbose))
	}

	return fmt.Sprintf("%s  %s  %s  %s", severity, finding.ID, subjects(c.view.findings, finding),
		indented(causeText(finding)))
}

// causeText is a finding's cause with the place in a file that it is about.
func causeText(finding diagnosis.Finding) string {
	cause := finding.Cause

	if finding.Skipped {
		cause += " (a failure, were it not skipped)"
	}

	if at := placeText(finding.At); at != "" {
		cause += "\n" + at
	}

	return cause
}

// placeText is "at talos/talconfig.yaml:12:5: installDisk: /dev/sda"; nothing if no line is known.
func placeText(at diagnosis.Location) string {
	if at.Line <= 0 {
		return ""
	}

	text := "at " + at.String()

	if line := strings.TrimSpace(at.Text); line != "" {
		text += ": " + line
	}

	if at.From != nil {
		text += ", from " + at.From.String()
	}

	return text
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

	return fmt.Sprintf("%s  %s  %s%s  (%s)", status, result.Step, result.Subject(), text, took(result)), next
}

// took is "6 attempts, 1m33s".
func took(result Result) string {
	if result.Attempts > 1 {
		return fmt.Sprintf("%d attempts, %s", result.Attempts, short(result.Duration))
	}

	return short(result.Duration)
}

// counts sums up what a step did for nodes, and found: "5 of 6 nodes applied, 1 failed; 2 warnings".
func (c *Console) counts() string {
	parts := []string{countResults(c.view.results), countFindings(c.view.findings)}
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
	for _, status := range []Status{Applied, OK, Planned, Skipped, Warned, Drifted, Joining, Refused, Failed} {
		switch count := counts[status]; {
		case count == 0:
		case len(parts) == 0:
			parts = append(parts, fmt.Sprintf("%d of %s %s", count, plural(total, "node"), counted(status)))
		default:
			parts = append(parts, fmt.Sprintf("%d %s", count, counted(status)))
		}
	}

	return strings.Join(parts, ", ")
}

// counted is what nodes of a status are, behind their number.
func counted(status Status) string {
	if status == Warned {
		return "with a warning"
	}

	return string(status)
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

// furtherIn is how much further in a line goes on that had to be broken.
const furtherIn = 4

// print writes a result with secrets masked.
func (c *Console) print(line string) {
	text := Wrap(scrubPainted(line, c.options.Color), c.options.width()) + "\n"
	if err := c.above(c.options.Out, text); err != nil && c.err == nil {
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
	c.mu.Lock()
	closed := c.closed
	c.closed = true
	c.mu.Unlock()

	if closed {
		return c.err
	}

	close(c.stop)
	c.signs.Wait()

	c.mu.Lock()
	defer c.mu.Unlock()

	c.settle()
	c.live = nil
	c.pending()

	_, steps := axes(c.all)
	if len(steps) > 1 && (!c.options.Story || c.options.Verbose) {
		c.print("")

		if err := writeTable(c.options.Out, c.all, c.order, c.options.Color); err != nil {
			c.err = errors.Join(c.err, err)
		}
	}

	return c.err
}

// pending writes the results of a step that did not end.
func (c *Console) pending() {
	switch {
	case c.view.began.IsZero():
	case c.options.Story:
		c.tellStory(Finished{Duration: c.options.Wall().Sub(c.view.began)})
	default:
		c.flush()
		c.endGroup()
	}
}
