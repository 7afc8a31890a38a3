// Package evidence finds out what a node's own texts point to: its events, its services, its kernel's log and what it
// has found wrong with itself. It asks nobody. The rules are one table.
package evidence

import (
	"cmp"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Kind is where a line comes from, as people read it.
type Kind string

// Kinds of lines.
const (
	Status     Kind = "status"     // the node's stage, and what it waits for
	Service    Kind = "service"    // a service that does not run, and its last events
	Event      Kind = "event"      // the node's event log
	Kernel     Kind = "dmesg"      // the console
	Log        Kind = "log"        // a service's log
	Diagnostic Kind = "diagnostic" // what the node has found by itself
	Volume     Kind = "volume"     // a volume that can't be used
	Clock      Kind = "time"       // the node's clock, its time server's and this computer's
	Way        Kind = "way"        // how this computer reaches the node
	Etcd       Kind = "etcd"
	// Certificate is how long certificates are good for.
	Certificate Kind = "certificate"
)

// Line is one thing that was seen.
type Line struct {
	Kind Kind   `json:"from"`
	Text string `json:"text"`
}

// Cause is a likely cause, with the lines that point to it.
type Cause struct {
	diagnosis.Finding
	Lines []Line
}

// mostLines is how many lines are shown of each cause; of many alike the last ones tell most.
const mostLines = 4

// Subject is the node that lines are of.
type Subject struct {
	Name, Address string
	// Well is set of a node that waits for nothing: what its logs tell of is over.
	Well bool
}

// Explain gives the likely causes, best first: those that others have judged, with the lines that speak for them, and
// those that lines point to by themselves.
func Explain(of Subject, judged []diagnosis.Finding, lines []Line) []Cause {
	causes := Supported(judged, lines)

	left := lines // a line proves one cause at most: that of the first rule that it fits
	for _, rule := range rules {
		found, rest := rule.judge(of, left)
		left = rest

		if found != nil && !slices.ContainsFunc(causes, found.sameAs) {
			causes = append(causes, *found)
		}
	}

	slices.SortStableFunc(causes, func(a, b Cause) int { return cmp.Compare(rank(a.ID), rank(b.ID)) })

	return causes
}

// Supported are causes that others have judged, with the lines that speak for each. What is well is none.
func Supported(judged []diagnosis.Finding, lines []Line) []Cause {
	var causes []Cause
	for _, finding := range judged {
		if finding.Severity >= diagnosis.Warning {
			causes = append(causes, Cause{finding, supporting(finding.ID, lines)})
		}
	}

	return causes
}

func (c Cause) sameAs(other Cause) bool { return c.ID == other.ID }

// supporting are the lines that a rule knows to go with a cause.
func supporting(id diagnosis.ID, lines []Line) []Line {
	var all []Line
	for _, line := range lines {
		if slices.ContainsFunc(rules, func(rule rule) bool { return rule.ID == id && rule.fits(line) }) {
			all = append(all, line)
		}
	}

	return last(all)
}

// last are the last lines of those that say something else than another one.
func last(lines []Line) []Line {
	var kept []Line
	for _, line := range slices.Backward(lines) {
		if len(kept) < mostLines && !slices.ContainsFunc(kept, line.repeats) {
			kept = append(kept, line)
		}
	}

	slices.Reverse(kept)

	return kept
}

// repeats reports whether a line says the same as another at another time.
func (l Line) repeats(other Line) bool {
	return l.Kind == other.Kind && withoutTime(l.Text) == withoutTime(other.Text)
}

// withoutTime is a line of a log without the time in brackets that it begins with.
func withoutTime(text string) string {
	if _, after, found := strings.Cut(text, "Z]: "); found {
		return after
	}

	return text
}

// Best is the most likely of the causes of several nodes that are no mere warnings.
func Best(causes []Cause) (Cause, bool) {
	failures := slices.DeleteFunc(slices.Clone(causes),
		func(cause Cause) bool { return cause.Severity < diagnosis.Failure })
	if len(failures) == 0 {
		return Cause{}, false
	}

	return slices.MinFunc(failures, func(a, b Cause) int { return cmp.Compare(rank(a.ID), rank(b.ID)) }), true
}

// rank puts causes before what follows from them: the order of the table. What it does not know is a detail.
func rank(id diagnosis.ID) int {
	for i, rule := range rules {
		if rule.ID == id {
			return i
		}
	}

	return len(rules)
}
