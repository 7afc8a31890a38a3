package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// story is a step that has ended, as a person reads it on a terminal: a heading with its counts and time, then those
// nodes and findings alone that need attention. What the failures are about, and what to do, is told once, at the end
// of the run.
type story struct {
	look
	*view
	said told
	// brief leaves out checks that were not run, verbose nothing.
	brief, verbose bool
}

// stepColumn is how wide the names of steps are.
const stepColumn = 15

// lines are the story, a text each. What goes on below its first line is further in.
func (s story) lines(finished Finished) []string {
	lines := []string{s.headingLine(finished)}
	lines = append(lines, s.foldedLines()...)
	lines = append(lines, s.findingLines()...)

	return append(lines, s.resultLines()...)
}

func (s story) headingLine(finished Finished) string {
	return s.paintedMark(fmt.Sprintf("%s %-*s  %s (%s)", s.mark(s.outcome(finished)), stepColumn, s.step,
		s.summary(finished), short(finished.Duration)))
}

// outcome is the worst that a step came to.
func (s story) outcome(finished Finished) Status {
	seen := map[Status]bool{}
	for _, result := range s.results {
		seen[result.Status] = true
	}

	for _, finding := range s.findings {
		seen[statusOf(finding.Severity)] = seen[statusOf(finding.Severity)] || finding.Severity > diagnosis.OK
	}

	if failure(finished.Err) {
		return Failed
	}

	for _, status := range []Status{Failed, Refused, Planned, Warned, Drifted, Joining, Applied, OK} {
		if seen[status] {
			return status
		}
	}

	if len(s.results) > 0 {
		return Skipped
	}

	return OK
}

// summary is "5 of 6 nodes applied, 1 failed; 2 warnings", or, when all came to the same, "6 nodes: running".
func (s story) summary(finished Finished) string {
	parts := []string{countResults(s.results), countFindings(s.findings)}

	switch groups := s.folds(); {
	case s.needsAttention():
	case len(groups) == 1:
		parts[0] = groups[0].text()
	case len(groups) > 1 && !slices.ContainsFunc(groups, func(one *fold) bool { return one.status != Skipped }):
		parts[0] = plural(len(s.results), "node") + " need nothing"
	}

	if only := s.only(); only != nil {
		parts[0] = only.Detail
		if only.Err != nil {
			cause, _ := explain(only.Err)
			parts[0] = string(only.Status) + ": " + cause
		}
	}

	parts = slices.DeleteFunc(parts, func(part string) bool { return part == "" })
	if len(parts) == 0 {
		return ending(finished.Err)
	}

	return strings.Join(parts, "; ")
}

// only is the step's one result if that is the cluster's, and goes on one line.
func (s story) only() *Result {
	if len(s.results) != 1 || s.results[0].Node != "" || s.results[0].Status == Planned ||
		strings.Contains(s.results[0].Detail, "\n") {
		return nil
	}

	return &s.results[0]
}

// needsAttention reports whether any node's result is listed.
func (s story) needsAttention() bool {
	return slices.ContainsFunc(s.results, func(result Result) bool { return result.Node != "" && !s.quiet(result) })
}

// quiet results need no attention.
func (s story) quiet(result Result) bool {
	switch result.Status {
	case OK, Applied, Skipped:
		return !s.verbose && result.Err == nil && result.Node != "" && !strings.Contains(result.Detail, "\n")
	default:
		return false
	}
}

// fold is what several nodes came to alike.
type fold struct {
	status Status
	detail string
	nodes  []string
	tried  int // nodes that took more than one attempt
}

// folds puts together the nodes that need no attention, in the order of the first of each.
func (s story) folds() []*fold {
	var all []*fold
	for _, result := range inOrder(s.results, s.nodes) {
		if !s.quiet(result) {
			continue
		}

		i := slices.IndexFunc(all, func(one *fold) bool { return one.status == result.Status && one.detail == result.Detail })
		if i < 0 {
			i = len(all)
			all = append(all, &fold{status: result.Status, detail: result.Detail})
		}

		all[i].nodes = append(all[i].nodes, result.Node)
		if result.Attempts > 1 {
			all[i].tried++
		}
	}

	return all
}

// text is "6 nodes already have their config", "3 nodes: running", "cp1 applied: config sent".
func (f fold) text() string {
	if len(f.nodes) == 1 {
		return strings.TrimSuffix(fmt.Sprintf("%s %s: %s", f.nodes[0], f.status, f.detail), ": ") + f.tries()
	}

	text := plural(len(f.nodes), "node")

	switch what, has := strings.CutPrefix(f.detail, "has its "); {
	case has && f.status == Skipped:
		text += " already have their " + what
	case f.detail == "" || f.status == Applied:
		text = strings.TrimSuffix(fmt.Sprintf("%s %s: %s", text, f.status, f.detail), ": ")
	default:
		text += ": " + f.detail
	}

	return text + f.tries()
}

func (f fold) tries() string {
	if f.tried == 0 {
		return ""
	}

	return fmt.Sprintf(", %d after several attempts", f.tried)
}

// foldedLines are lines for the nodes that need no attention, where the heading does not say it. Those that have each
// their own remark are counted there, and no more is said of them.
func (s story) foldedLines() []string {
	groups := s.folds()
	if len(groups) == 1 && !s.needsAttention() || len(groups) > 1 && len(groups) == len(s.results) {
		return nil
	}

	var lines []string
	for _, group := range groups {
		if group.detail != "" {
			lines = append(lines, s.paintedMark("  "+s.mark(group.status)+" "+group.text()))
		}
	}

	return lines
}

// findingLines are the findings that are no good news, or come with advice.
func (s story) findingLines() []string {
	findings := slices.Clone(s.findings)
	slices.SortStableFunc(findings,
		func(a, b diagnosis.Finding) int { return place(a.Node, s.nodes) - place(b.Node, s.nodes) })

	var lines []string
	for i, finding := range findings {
		if !s.tells(finding) || saidBefore(findings[:i], finding) {
			continue
		}

		s.said.add(finding)
		lines = append(lines, s.findingLine(findings, finding))
	}

	return lines
}

func (s story) tells(finding diagnosis.Finding) bool {
	switch finding.Severity {
	case diagnosis.OK:
		return s.verbose || finding.Next != ""
	case diagnosis.NotRun:
		return s.verbose || !s.brief
	default:
		return true
	}
}

func (s story) findingLine(all []diagnosis.Finding, finding diagnosis.Finding) string {
	line := s.paintedMark("  " + s.mark(statusOf(finding.Severity)) + " " + finding.Severity.String() + "  ")
	if finding.Severity == diagnosis.NotRun {
		return line + notRunLine(all, finding, s.verbose)
	}

	line += string(finding.ID) + "  "
	if finding.Node != "" {
		line += subjects(all, finding) + "  "
	}

	if finding.Severity == diagnosis.Failure {
		return line + finding.Placed()
	}

	line += indented(causeText(finding))
	if finding.Next != "" {
		line += "\n      next: " + indented(finding.Next)
	}

	return line
}

// listed are nodes that came to the same, and need attention.
type listed struct {
	Result
	nodes      []string
	text, next string
}

// resultLines are the results that the heading does not tell. A failure's next command comes at the end of the run.
func (s story) resultLines() []string {
	if s.only() != nil {
		return nil
	}

	var all []*listed
	for _, result := range inOrder(s.results, s.nodes) {
		if s.quiet(result) {
			continue
		}

		text, next := s.explain(result)
		same := func(one *listed) bool { return one.Status == result.Status && one.text == text }

		i := slices.IndexFunc(all, same)
		if i < 0 || s.verbose {
			i = len(all)
			all = append(all, &listed{Result: result, text: text, next: next})
		}

		all[i].nodes = append(all[i].nodes, Result{Node: result.Node}.Subject())
	}

	lines := make([]string, 0, len(all))
	for _, one := range all {
		lines = append(lines, s.listedLine(one))
	}

	return lines
}

func (s story) explain(result Result) (text, next string) {
	problem, ok := diagnosis.AsProblem(result.Err)
	switch {
	case result.Err == nil:
		return indented(result.Detail), ""
	case ok && s.said.has(problem.Finding):
		return "as told above [" + string(problem.ID) + "]", ""
	case ok && result.Status.Bad():
		text, _ = explain(problem)
		return text, ""
	default:
		return explain(result.Err)
	}
}

func (s story) listedLine(one *listed) string {
	line := "  " + s.mark(one.Status) + " " + string(one.Status) + "  "

	if len(one.nodes) > 1 {
		line += strings.Join(one.nodes, ", ")
	} else {
		line += one.Subject()
	}

	if one.text != "" {
		line += "  " + one.text
	}

	if len(one.nodes) == 1 {
		line += "  (" + took(one.Result) + ")"
	}

	if one.next != "" {
		line += "\n      next: " + indented(one.next)
	}

	return s.paintedMark(line)
}
