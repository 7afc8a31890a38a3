package record

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
)

//go:embed report.html.tmpl
var pageText string

// The page is parsed when one is written, and not when the program starts.
func parsePage() (*template.Template, error) {
	return template.New(PageFile).Parse(pageText) //nolint:wrapcheck // it names the template
}

// page is what the template shows.
type page struct {
	*Run
	Headline string
	// Outcome is a word with the code, and Colour that of a mark that means the same.
	Outcome, Colour    string
	BeganISO, BeganUTC string
	Lasted             string
	Message            string
	// Scale is how much faster than the wall clock the nodes were; empty for real ones.
	Scale      string
	Legend     []legendEntry
	MarkLegend []string
	Ticks      []tick
	Rows       []row
	Columns    []string
	Table      []tableRow
	Problems   []problem
	NotRun     []reason
	Passed     int
	Given      []report.Setting
	Default    []report.Setting
}

type legendEntry struct {
	Kind int
	Text string
}

// tick is a time on the axis; Left is its place in percent of the whole, as that of everything drawn.
type tick struct {
	Left  string
	Label string
}

// row is a node's part of the timeline.
type row struct {
	ID, Name string
	// Kind is that of a mark that means how the node ended.
	Kind    string
	Summary string
	Bars    []bar
	Marks   []mark
	Events  []happening
}

type bar struct {
	Left, Width string
	Kind        int
	Label       string
}

type mark struct {
	Left  string
	Kind  string
	Label string
}

// happening is a line of what a node did, for whoever reads instead of looking.
type happening struct {
	At, Step, What, Took string

	when time.Time
}

type tableRow struct {
	Name  string
	Cells []cell
}

type cell struct{ Status, Text string }

// reason is why checks were not run.
type reason struct {
	Text   string
	Checks []string
}

// problem is a cause, with all whom it concerns.
type problem struct {
	ID, Title, Severity, Step string
	Subjects                  []string
	Cause, Evidence           string
	At, AtText                string
	Next                      string
}

// WriteHTML writes the run as one page that needs nothing else.
func (r *Run) WriteHTML(out io.Writer) error {
	tmpl, err := parsePage()
	if err != nil {
		return err
	}

	return tmpl.Execute(out, r.page()) //nolint:wrapcheck // it names the template
}

func (r *Run) page() page {
	stages := r.stages()
	made := page{Run: r, Headline: strings.TrimSpace("mage " + r.Target), Outcome: r.Word(), Colour: r.colour(),
		BeganISO: r.Began.UTC().Format(time.RFC3339), BeganUTC: r.Began.UTC().Format(time.DateTime) + " UTC",
		Lasted: report.Short(r.Took()), Legend: stages.legend(), MarkLegend: slices.Clone(markKinds), Ticks: r.ticks(),
		Rows: r.rows(stages), Columns: r.stepNames(), Problems: r.problems(), NotRun: r.notRun()}
	made.Table = r.table(made.Columns)

	if r.Outcome != nil {
		made.Message = r.Outcome.Message
	}

	if r.Outcome != nil && r.Outcome.Code != diagnosis.ExitOK {
		made.Outcome = fmt.Sprintf("%s, code %d", made.Outcome, r.Outcome.Code)
	}

	for _, setting := range r.Settings {
		if setting.Name == "CLOCK_SCALE" && setting.Value != "1" {
			made.Scale = setting.Value
		}

		if setting.Given {
			made.Given = append(made.Given, setting)
		} else {
			made.Default = append(made.Default, setting)
		}
	}

	for _, finding := range r.Findings {
		if finding.Severity == diagnosis.OK.String() {
			made.Passed++
		}
	}

	return made
}

// colour is that of a mark that means what the run's outcome does.
func (r *Run) colour() string {
	switch r.Word() {
	case "done":
		return "ok"
	case "failed":
		return "failed"
	default:
		return "warning"
	}
}

func (r *Run) stepNames() []string {
	var names []string
	for _, step := range r.Steps {
		if !slices.Contains(names, step.Name) {
			names = append(names, step.Name)
		}
	}

	return names
}

// colours are how many the page has for stages: ten, and the same ones hatched.
const colours = 20

// stages are what nodes were doing, in the order in which it was first said.
type stages []string

func (r *Run) stages() stages {
	var found stages
	for _, span := range r.Spans {
		if stage := stageOf(span.Text); !slices.Contains(found, stage) {
			found = append(found, stage)
		}
	}

	return found
}

// kind is the colour of a text's stage.
func (s stages) kind(text string) int { return slices.Index(s, stageOf(text)) % colours }

func (s stages) legend() []legendEntry {
	entries := make([]legendEntry, 0, len(s))
	for i, stage := range s {
		entries = append(entries, legendEntry{Kind: i % colours, Text: stage})
	}

	return entries
}

// stageOf is a text without what is of one node or one time.
func stageOf(text string) string {
	if at := strings.IndexAny(text, ":,("); at > 0 {
		text = text[:at]
	}

	numbered := func(word string) bool { return strings.ContainsAny(word, "0123456789") }

	return strings.Join(slices.DeleteFunc(strings.Fields(text), numbered), " ")
}

// place is where on the axis a time is, in percent.
func (r *Run) place(at time.Time) string { return r.share(at.Sub(r.Began)) }

func (r *Run) share(d time.Duration) string {
	const all = 100

	whole := r.Took()
	if whole <= 0 {
		return "0%"
	}

	return fmt.Sprintf("%.3f%%", min(all, max(0, all*float64(d)/float64(whole))))
}

// ticks are some six round times.
func (r *Run) ticks() []tick {
	const wanted = 6

	steps := []time.Duration{
		100 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
		time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour,
	}

	every := steps[len(steps)-1]
	for _, step := range slices.Backward(steps) {
		if r.Took()/step <= wanted {
			every = step
		}
	}

	var ticks []tick
	for at := time.Duration(0); at <= r.Took() && len(ticks) < 4*wanted; at += every {
		ticks = append(ticks, tick{Left: r.share(at), Label: report.Short(at)})
	}

	return ticks
}

// rows are the nodes, and the cluster as a whole if anything happened there.
func (r *Run) rows(stages stages) []row {
	made := make([]row, 0, len(r.Nodes)+1)
	at := map[string]int{}

	for _, node := range append(slices.Clone(r.Nodes), "") {
		at[node] = len(made)
		made = append(made, row{ID: fmt.Sprintf("node-%d", len(made)+1), Name: subject(report.Line{Node: node})})
	}

	for _, span := range r.Spans {
		took := report.Short(span.To.Sub(span.From))
		one := &made[at[span.Node]]
		one.Bars = append(one.Bars, bar{Left: r.place(span.From), Width: r.share(span.To.Sub(span.From)),
			Kind:  stages.kind(span.Text),
			Label: fmt.Sprintf("%s: %s, for %s from %s", span.Step, span.Text, took, r.since(span.From))})
		one.Events = append(one.Events, happening{r.since(span.From), span.Step, span.Text, took, span.From})
	}

	for _, happened := range r.Marks {
		one := &made[at[happened.Node]]
		what := happening{r.since(happened.At), happened.Step, happened.words(), "", happened.At}
		one.Events = append(one.Events, what)
		one.Marks = append(one.Marks, mark{Left: r.place(happened.At), Kind: happened.kind(),
			Label: fmt.Sprintf("%s: %s, at %s", what.Step, what.What, what.At)})
		one.end(happened)
	}

	made = slices.DeleteFunc(made, func(one row) bool { return len(one.Events) == 0 })
	for i := range made {
		made[i].sum()
	}

	return made
}

// since is a time as it stands on the axis.
func (r *Run) since(at time.Time) string { return report.Short(at.Sub(r.Began)) }

// words is what happened.
func (m Mark) words() string {
	switch {
	case m.Status == "":
		return "an attempt failed: " + m.Text
	case m.Text == "":
		return string(m.Status)
	default:
		return string(m.Status) + ": " + m.Text
	}
}

// kind is how the mark is drawn.
func (m Mark) kind() string {
	switch m.Status {
	case "":
		return "retry"
	case report.Failed, report.Refused:
		return "failed"
	case report.Warned, report.Drifted, report.Joining, report.Planned:
		return "warning"
	default:
		return "ok"
	}
}

// end has the row say how the node ended: well only if nothing failed.
func (o *row) end(happened Mark) {
	if kind := happened.kind(); o.Kind != "failed" && kind != "retry" {
		o.Kind = kind
	}
}

// markKinds are how marks are drawn, from good to bad.
var markKinds = []string{"ok", "retry", "warning", "failed"}

// sum counts what a row shows, and puts its events in order.
func (o *row) sum() {
	counts := map[string]int{}
	for _, mark := range o.Marks {
		counts[mark.Kind]++
	}

	slices.SortStableFunc(o.Events, func(a, b happening) int { return a.when.Compare(b.when) })

	stages := "1 stage"
	if len(o.Bars) != 1 {
		stages = fmt.Sprintf("%d stages", len(o.Bars))
	}

	parts := []string{stages}
	for _, kind := range slices.Backward(markKinds) {
		if counts[kind] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[kind], kind))
		}
	}

	o.Summary = strings.Join(parts, ", ")
}

func (r *Run) table(steps []string) []tableRow {
	var rows []tableRow
	for _, node := range append(slices.Clone(r.Nodes), "") {
		made, concerned := tableRow{Name: subject(report.Line{Node: node})}, false

		for _, step := range steps {
			at, there := r.resultAt[[2]string{step, node}]
			if !there {
				made.Cells = append(made.Cells, cell{Text: "–"})
				continue
			}

			concerned = true
			made.Cells = append(made.Cells, cellOf(r.Results[at]))
		}

		if concerned {
			rows = append(rows, made)
		}
	}

	return rows
}

func cellOf(line report.Line) cell {
	text := string(line.Status)
	if line.Attempts > 1 {
		text += fmt.Sprintf(" ×%d", line.Attempts)
	}

	return cell{Status: Mark{Status: line.Status}.kind(),
		Text: text + " " + report.Short(time.Duration(line.Seconds*float64(time.Second)))}
}

// problems are all that was found wrong, and what ended a step for a node; the same of several nodes is one.
func (r *Run) problems() []problem {
	var made []problem

	for _, line := range slices.Concat(r.Findings, r.Results) {
		if said(line) == "" || line.Status != "" && !line.Status.Bad() && line.ID == "" ||
			line.Severity == diagnosis.OK.String() || line.Severity == diagnosis.NotRun.String() {
			continue
		}

		one := problemOf(line)

		index := slices.IndexFunc(made, func(other problem) bool { return other.same(one) })
		if index < 0 {
			made = append(made, one)
			continue
		}

		if !slices.Contains(made[index].Subjects, one.Subjects[0]) {
			made[index].Subjects = append(made[index].Subjects, one.Subjects[0])
		}
	}

	order := []string{diagnosis.Failure.String(), diagnosis.Warning.String()}
	slices.SortStableFunc(made, func(a, b problem) int {
		return slices.Index(order, a.Severity) - slices.Index(order, b.Severity)
	})

	return made
}

// notRun are the checks that were not run, by the reason.
func (r *Run) notRun() []reason {
	var reasons []reason

	for _, line := range r.Findings {
		if line.Severity != diagnosis.NotRun.String() {
			continue
		}

		index := slices.IndexFunc(reasons, func(one reason) bool { return one.Text == line.Cause })
		if index < 0 {
			index = len(reasons)
			reasons = append(reasons, reason{Text: line.Cause})
		}

		check := line.ID
		if line.Node != "" {
			check += " of " + line.Node
		}

		reasons[index].Checks = append(reasons[index].Checks, check)
	}

	return reasons
}

func problemOf(line report.Line) problem {
	entry, _ := diagnosis.Lookup(diagnosis.ID(line.ID))
	cause, evidence, _ := strings.Cut(said(line), "\n")
	made := problem{ID: line.ID, Title: entry.Title, Severity: line.Severity, Step: line.Step,
		Subjects: []string{subject(line)}, Cause: cause, Evidence: strings.TrimRight(evidence, "\n"), Next: line.Next}

	if made.Severity == "" {
		made.Severity = diagnosis.Failure.String()
	}

	if line.At != nil {
		made.At, made.AtText = diagnosis.Place(line.At.Path, line.At.Line, line.At.Column), strings.TrimSpace(line.At.Text)
	}

	return made
}

func (p problem) same(other problem) bool {
	return p.ID == other.ID && p.Severity == other.Severity && p.Cause == other.Cause && p.Evidence == other.Evidence &&
		p.Next == other.Next && p.At == other.At
}
