package report

import "github.com/talos-mage/talos-mage/internal/diagnosis"

// told are the causes that were said, with what to do about them: one that several nodes have, or a finding and the
// result that follows from it, is said once.
type told map[cause]bool

type cause struct {
	id         diagnosis.ID
	text, next string
}

func causeOf(finding diagnosis.Finding) cause { return cause{finding.ID, finding.Cause, finding.Next} }

// add notes that a finding's cause is said.
func (t told) add(finding diagnosis.Finding) { t[causeOf(finding)] = true }

// has reports whether it was.
func (t told) has(finding diagnosis.Finding) bool { return t[causeOf(finding)] }

// explain is an error as people get it, whose cause is said only if it was not: of a problem the first line of its
// cause with its id, and the next command.
func (t told) explain(err error) (text, next string) {
	problem, ok := diagnosis.AsProblem(err)
	switch {
	case !ok:
		return err.Error(), ""
	case t.has(problem.Finding):
		return "told above [" + string(problem.ID) + "]", ""
	default:
		t.add(problem.Finding)
		return explain(err)
	}
}

// sharesCause reports whether two findings that are no good news say the same of different nodes.
func sharesCause(a, b diagnosis.Finding) bool {
	return a.Severity > diagnosis.OK && a.Severity == b.Severity && causeOf(a) == causeOf(b) && a.Skipped == b.Skipped &&
		a.At.String() == b.At.String()
}
