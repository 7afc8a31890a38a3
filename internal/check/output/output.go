// Package output shows what came of the checks: as a table for people, as JSON and as SARIF; and explains one.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Write writes a result as "table", "json" or "sarif". The table names the ids of checks that were not run only when it
// is to be verbose.
func Write(r check.Result, w io.Writer, format string, verbose bool) error {
	switch format {
	case "json":
		return encode(w, asDocument(r))
	case "sarif":
		return encode(w, sarif(r))
	default:
		_, err := io.WriteString(w, text(r, verbose))

		return err
	}
}

func encode(w io.Writer, document any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)

	if err := encoder.Encode(document); err != nil {
		return fmt.Errorf("write findings: %w", err)
	}

	return nil
}

// text is the table for people: each finding with its place, its line and what to do, then what was not run, then the
// sums.
func text(r check.Result, verbose bool) string {
	var text strings.Builder

	writeAreas(r, &text)

	for _, finding := range append(r.Trouble(), r.Suggestions()...) {
		writeFinding(&text, finding)
	}

	writeNotRun(r, &text, verbose)

	trouble := r.Trouble()
	failures := 0

	for _, finding := range trouble {
		if finding.Severity == diagnosis.Failure {
			failures++
		}
	}

	fmt.Fprintf(&text, "%s, %s; %d checks passed, %d not run\n",
		check.Count(failures, "failure"), check.Count(len(trouble)-failures, "warning"), len(r.Passed), len(notRunIDs(r)))

	return text.String()
}

func writeFinding(text *strings.Builder, finding diagnosis.Finding) {
	severity := finding.Severity.String()
	if finding.Severity == diagnosis.OK {
		severity = check.Suggestion
	}

	if finding.Skipped {
		severity += " (skipped)"
	}

	fmt.Fprintf(text, "%s  %s  %s\n", severity, finding.ID, check.Headline(finding))

	if finding.At.Path != "" {
		fmt.Fprintf(text, "    at    %s\n", finding.At)
	}

	if finding.At.Text != "" {
		fmt.Fprintf(text, "          %s\n", strings.TrimSpace(finding.At.Text))
	}

	if finding.At.From != nil {
		fmt.Fprintf(text, "    from  %s\n", finding.At.From)
	}

	if finding.Next != "" {
		fmt.Fprintf(text, "    next  %s\n", finding.Next)
	}

	if _, table, several := strings.Cut(finding.Cause, "\n"); several {
		text.WriteString(table + "\n")
	}

	text.WriteString("\n")
}

// notRunIDs are the checks that were run for no node at all.
func notRunIDs(r check.Result) []diagnosis.ID {
	var ids []diagnosis.ID

	for _, check := range r.NotRun {
		if check.Node == "" && !slices.Contains(ids, check.ID) {
			ids = append(ids, check.ID)
		}
	}

	return ids
}

// writeNotRun has one line a reason.
func writeNotRun(r check.Result, text *strings.Builder, verbose bool) {
	type reason struct{ node, why string }

	var reasons []reason

	ids := map[reason][]diagnosis.ID{}

	for _, check := range r.NotRun {
		because := reason{check.Node, check.Why}
		if ids[because] == nil {
			reasons = append(reasons, because)
		}

		ids[because] = append(ids[because], check.ID)
	}

	for _, because := range reasons {
		fmt.Fprintf(text, "not run  %s\n", diagnosis.NotRunLine(ids[because], because.node, because.why, verbose))
	}

	if len(reasons) > 0 {
		text.WriteString("\n")
	}
}

// document is the JSON form of a result.
type document struct {
	Areas    []check.AreaResult `json:"areas,omitempty"`
	Findings []jsonFinding      `json:"findings"`
	NotRun   []jsonNotRun       `json:"notRun"`
	Passed   []diagnosis.ID     `json:"passed"`
	ExitCode int                `json:"exitCode"`
}

type jsonFinding struct {
	ID       diagnosis.ID `json:"id"`
	Severity string       `json:"severity"`
	Skipped  bool         `json:"skipped,omitempty"`
	Title    string       `json:"title"`
	Node     string       `json:"node,omitempty"`
	Cause    string       `json:"cause"`
	Next     string       `json:"next,omitempty"`
	Path     string       `json:"path,omitempty"`
	Line     int          `json:"line,omitempty"`
	Column   int          `json:"column,omitempty"`
	// Unwritten is set for a file that is only in memory yet.
	Unwritten bool   `json:"unwritten,omitempty"`
	Text      string `json:"text,omitempty"`
	From      string `json:"from,omitempty"`
}

type jsonNotRun struct {
	ID   diagnosis.ID `json:"id"`
	Node string       `json:"node,omitempty"`
	Why  string       `json:"why"`
}

func asDocument(r check.Result) document {
	made := document{Findings: []jsonFinding{}, NotRun: []jsonNotRun{}, Passed: []diagnosis.ID{},
		ExitCode: int(r.ExitCode())}
	made.Passed = append(made.Passed, r.Passed...)

	made.Areas = r.Areas

	for _, finding := range append(r.Trouble(), r.Suggestions()...) {
		entry, _ := diagnosis.Lookup(finding.ID)

		severity := finding.Severity.String()
		if finding.Severity == diagnosis.OK {
			severity = check.Suggestion
		}

		from := ""
		if finding.At.From != nil {
			from = finding.At.From.String()
		}

		made.Findings = append(made.Findings, jsonFinding{
			ID: finding.ID, Severity: severity, Skipped: finding.Skipped, Title: entry.Title, Node: finding.Node,
			Cause: finding.Cause, Next: finding.Next, Path: finding.At.Path, Line: finding.At.Line, Column: finding.At.Column,
			Unwritten: finding.At.Unwritten, Text: finding.At.Text, From: from,
		})
	}

	for _, check := range r.NotRun {
		made.NotRun = append(made.NotRun, jsonNotRun{ID: check.ID, Node: check.Node, Why: check.Why})
	}

	return made
}

// writeAreas writes the profile's table, and what it comes to.
func writeAreas(r check.Result, text *strings.Builder) {
	if r.Areas == nil {
		return
	}

	var wide, status int

	sums := map[string]int{}

	for _, row := range r.Areas {
		wide, status = max(wide, len(row.Area)), max(status, len(row.Status))
		sums[row.Status]++
	}

	fmt.Fprintf(text, "%-*s  %-*s  %s\n", wide, "Area", status, "Status", "Finding")

	for _, row := range r.Areas {
		fmt.Fprintf(text, "%-*s  %-*s  %s\n", wide, row.Area, status, row.Status, row.Finding)
	}

	var parts []string

	for _, name := range []string{check.Compliant, check.Enhancement, check.NotCompliant, check.AreaNotRun} {
		if sums[name] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", sums[name], strings.ToLower(name)))
		}
	}

	fmt.Fprintf(text, "\n%d areas: %s\n\n", len(r.Areas), strings.Join(parts, ", "))
}
