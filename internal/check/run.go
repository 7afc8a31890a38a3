package check

import (
	"cmp"
	"context"
	"slices"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Result is what came of the checks.
type Result struct {
	// Findings are in the order of the table; those of severity OK say what a check saw that passed.
	Findings []diagnosis.Finding
	// Passed are the checks that ran and found nothing.
	Passed []diagnosis.ID
	// NotRun are the checks whose input is missing.
	NotRun []NotRun
	// Areas are the rows of the interoperability profile's table; none without the profile.
	Areas []AreaResult
}

// NotRun is a check that could not be run, for all nodes or for one.
type NotRun struct {
	ID diagnosis.ID
	// Node is empty when the check was run for no node.
	Node string
	Why  string

	asksNodes bool
}

// Run runs the checks of a table whose needs are met, on files.
func Run(ctx context.Context, table []Check, in *Input) Result {
	chosen := in.Options.Profile.choose(table)

	result := runTable(ctx, chosen, in)
	if in.Options.Profile == InteropProfile {
		result.Areas = areaResults(table, result)
	}

	return result
}

// RunNode runs the checks of a table that judge a node that answered, in the table's order. Without a machine config
// what needs it is left out: the missing file is another finding.
func RunNode(ctx context.Context, table []Check, node *Node) []diagnosis.Finding {
	report := &Report{answers: node}
	done := map[*look]bool{}

	for _, check := range table {
		if check.look.node == nil || done[check.look] || check.Needs.Has(diagnosis.NeedsConfig) && node.Config == nil {
			continue
		}

		done[check.look] = true
		check.look.node(ctx, report.As(check.ID), node)
	}

	return skip(report.findings, node.Settings.SkipChecks)
}

// skip turns failures with one of the ids into warnings that say that they were skipped. Identity and certificate
// authority can't be skipped.
func skip(findings []diagnosis.Finding, ids []diagnosis.ID) []diagnosis.Finding {
	for i := range findings {
		finding := &findings[i]

		if finding.Severity != diagnosis.Failure || !slices.Contains(ids, finding.ID) {
			continue
		}

		if entry, ok := diagnosis.Lookup(finding.ID); ok && !entry.Unskippable {
			finding.Severity, finding.Skipped = diagnosis.Warning, true
		}
	}

	return findings
}

// runTable runs the rows of a table; a function that several rows share runs once.
func runTable(ctx context.Context, table []Check, in *Input) Result {
	var result Result

	ran := map[*look]bool{}
	failed := map[diagnosis.ID]bool{}

	for _, check := range table {
		if why := in.unmet(check.Needs); why != "" {
			result.NotRun = append(result.NotRun,
				NotRun{ID: check.ID, Why: why, asksNodes: check.Needs.Has(diagnosis.NeedsFacts)})

			continue
		}

		if !ran[check.look] {
			ran[check.look] = true
			report := &Report{In: in, id: check.ID}
			check.look.files(ctx, report, in)
			report.findings = slices.DeleteFunc(report.findings, in.unmetFindings(table, check.look))

			for _, finding := range report.findings {
				failed[finding.ID] = failed[finding.ID] || finding.Severity != diagnosis.OK
			}

			result.Findings = append(result.Findings, report.findings...)
		}

		result.NotRun = append(result.NotRun, check.notJudged(in, failed[check.ID])...)
	}

	// What the user lets pass may keep machine configs from being made all the same.
	result.Findings = skip(result.Findings, in.Options.Checks.SkipChecks)

	told := slices.Clone(result.Findings)

	for _, finding := range skip(slices.Clone(in.ungenerable), in.Options.Checks.SkipChecks) {
		if !slices.ContainsFunc(told, tellsOf(finding)) {
			result.Findings = append(result.Findings, finding)
			failed[finding.ID] = true
		}
	}

	completeColumns(result.Findings)

	notRun := map[diagnosis.ID]bool{}
	for _, check := range result.NotRun {
		notRun[check.ID] = notRun[check.ID] || check.Node == ""
	}

	for _, check := range table {
		if !failed[check.ID] && !notRun[check.ID] && !slices.Contains(result.Passed, check.ID) {
			result.Passed = append(result.Passed, check.ID)
		}
	}

	result.Findings = withoutConsequences(result.Findings)

	return result
}

// withoutConsequences leaves out what was found about a line with a variable that has no value: it follows from that.
func withoutConsequences(findings []diagnosis.Finding) []diagnosis.Finding {
	type line struct {
		path   string
		number int
	}

	unset := map[line]bool{}

	for _, finding := range findings {
		if finding.ID == diagnosis.FileVariable {
			unset[line{finding.At.Path, finding.At.Line}] = true
		}
	}

	return slices.DeleteFunc(findings, func(finding diagnosis.Finding) bool {
		return finding.ID != diagnosis.FileVariable && finding.At.Line > 0 && unset[line{finding.At.Path, finding.At.Line}]
	})
}

// unmetFindings reports whether a finding is of a row that is not run: a function that several rows share finds for
// all of them.
func (in *Input) unmetFindings(table []Check, shared *look) func(diagnosis.Finding) bool {
	return func(finding diagnosis.Finding) bool {
		return slices.ContainsFunc(table, func(check Check) bool {
			return check.look == shared && check.ID == finding.ID && in.unmet(check.Needs) != ""
		})
	}
}

// notJudged is what a check that was run could not look at, for some nodes or for all.
func (c Check) notJudged(in *Input, failed bool) []NotRun {
	var rows []NotRun

	if c.unknown != nil {
		rows = append(rows, c.unknown(in)...)
	}

	if c.idle != nil && !failed {
		if why := c.idle(in); why != "" {
			rows = append(rows, NotRun{ID: c.ID, Why: why})
		}
	}

	if c.Needs.Has(diagnosis.NeedsConfig) {
		for _, name := range in.Missing {
			rows = append(rows, NotRun{ID: c.ID, Node: name, Why: in.None("its machine config can't be read")})
		}
	}

	return rows
}

// tellsOf reports whether a check has told of a mistake already: it found something as bad on the same line.
func tellsOf(mistake diagnosis.Finding) func(diagnosis.Finding) bool {
	return func(other diagnosis.Finding) bool {
		return other.Severity >= mistake.Severity && other.At.Path == mistake.At.Path && other.At.Line == mistake.At.Line
	}
}

// Trouble are the findings that are no good news, failures first, each kind in the order of files and lines.
func (r Result) Trouble() []diagnosis.Finding {
	trouble := slices.DeleteFunc(slices.Clone(r.Findings),
		func(finding diagnosis.Finding) bool { return finding.Severity == diagnosis.OK })

	slices.SortStableFunc(trouble, func(a, b diagnosis.Finding) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), cmp.Compare(a.At.Path, b.At.Path),
			cmp.Compare(a.At.Line, b.At.Line))
	})

	return trouble
}

// ExitCode is 0 without failures; of several codes bad input goes first, as it does in a step.
func (r Result) ExitCode() diagnosis.ExitCode {
	code := diagnosis.ExitOK

	for _, finding := range r.Findings {
		if finding.Severity != diagnosis.Failure {
			continue
		}

		if found := finding.ExitCode(); code == diagnosis.ExitOK || found == diagnosis.ExitBadInput {
			code = found
		}
	}

	return code
}

// NotRunOfFiles are findings of severity NotRun about the checks of files and network that were not run for any node:
// for a run that asks the nodes afterwards.
func (r Result) NotRunOfFiles() []diagnosis.Finding {
	var findings []diagnosis.Finding

	for _, check := range r.NotRun {
		if check.Node == "" && !check.asksNodes {
			findings = append(findings, diagnosis.Finding{ID: check.ID, Severity: diagnosis.NotRun, Cause: check.Why})
		}
	}

	return findings
}
