package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Trouble is one cause that a run failed for, with all whom it concerns.
type Trouble struct {
	Subjects []string
	Step     string
	// Cause is said in one line; Evidence is what points to it, a table perhaps.
	Cause, Evidence string
	// Next is the command to type, or the change to make.
	Next string
}

// TroubleOf is a problem's, for those that have it; results say how often it was tried.
func TroubleOf(problem *diagnosis.Problem, subjects []string, results []Result) Trouble {
	cause, next := explain(problem)
	_, more, _ := strings.Cut(problem.Cause, "\n")

	evidence := []string{more, placeText(problem.At)}
	for _, result := range results {
		if result.Node == problem.Node && result.Step == problem.Step && result.Attempts > 1 {
			evidence = append(evidence, took(result))
		}
	}

	return Trouble{Subjects: subjects, Step: problem.Step, Cause: cause, Evidence: joinedLines(evidence), Next: next}
}

func joinedLines(texts []string) string {
	var kept []string
	for _, text := range texts {
		if text = strings.TrimRight(text, "\n"); text != "" {
			kept = append(kept, text)
		}
	}

	return strings.Join(kept, "\n")
}

// ruleLimit is how wide the lines may be that set troubles off.
const ruleLimit = 100

// ShowTroubles writes what a run failed for so that it stands out, as the last that a person reads of it.
func ShowTroubles(w io.Writer, options ConsoleOptions, troubles []Trouble) {
	look, width := options.look(), options.width()
	look.color = options.ErrColor

	rule := func(title string) string {
		line := look.glyph("━", "=")
		text := strings.Repeat(line, 2) + title

		return paint(look.color, red, text+strings.Repeat(line, max(2, min(width, ruleLimit)-breadth(text)-1)))
	}

	var text strings.Builder

	text.WriteString("\n" + rule(" FAILED ") + "\n")

	for i, trouble := range troubles {
		if i > 0 {
			text.WriteString("\n")
		}

		for _, row := range trouble.rows() {
			if row.value != "" {
				text.WriteString(row.text(look, width) + "\n")
			}
		}
	}

	if look.emulated {
		text.WriteString("  (how long something lasted is told in emulated time, which runs faster)\n")
	}

	text.WriteString(rule("") + "\n")
	_, _ = io.WriteString(w, scrubPainted(text.String(), look.color)) // a terminal that went away reads nothing
}

// troubleRow is one line of what a trouble is.
type troubleRow struct{ name, value string }

// rowColumn is where the values begin.
const rowColumn = 12

func (t Trouble) rows() []troubleRow {
	name := "node"
	if len(t.Subjects) > 1 {
		name = "nodes"
	}

	return []troubleRow{{name, strings.Join(t.Subjects, ", ")}, {"step", t.Step}, {"cause", t.Cause},
		{"evidence", t.Evidence}, {"next", t.Next}}
}

// text is the row with its value beside its name, and what does not fit there under it.
func (r troubleRow) text(look look, width int) string {
	value := strings.ReplaceAll(r.value, "\n", "\n"+strings.Repeat(" ", rowColumn))
	first, more, several := strings.Cut(fmt.Sprintf("  %-*s%s", rowColumn-2, r.name, value), "\n")
	text := WrapHanging(first, width, rowColumn-2)

	if several {
		text += "\n" + WrapHanging(more, width, 0)
	}

	if r.name == "next" {
		text = boldCommands(look, text)
	}

	return text
}

// boldCommands has what is to be typed stand out.
func boldCommands(look look, text string) string {
	spans := commandsIn(text)
	for i := len(spans) - 1; i >= 0; i-- {
		from, to := spans[i][0], spans[i][1]
		text = text[:from] + paint(look.color, bold, text[from:to]) + text[to:]
	}

	return text
}
