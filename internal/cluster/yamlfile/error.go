package yamlfile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Error is one mistake in one of the user's files.
type Error struct {
	// ID is the catalogue's entry.
	ID diagnosis.ID
	// Path is as it is shown to people.
	Path string
	// Line and Column count from 1; 0 when the mistake has no place, as with a missing file.
	Line, Column int
	Message      string
	// Field is the dotted path of what stands there, as in nodes[0].hostname; it may be empty.
	Field string
	// Key is one that is not known; empty for other mistakes.
	Key string
	// Suggestion is what was probably meant; it may be empty.
	Suggestion string
	// Next is what to do; it may be empty.
	Next string
	// Err is what it comes from, for errors.Is; it may be nil.
	Err error
}

// Error is path:line:column: message (field), did you mean "suggestion"?
func (e *Error) Error() string {
	return diagnosis.Place(e.Path, e.Line, e.Column) + ": " + e.Cause()
}

// Cause is what is wrong, without the place.
func (e *Error) Cause() string {
	text := e.Message

	if e.Field != "" {
		text += " (" + e.Field + ")"
	}

	if e.Suggestion != "" {
		text += fmt.Sprintf(", did you mean %q?", e.Suggestion)
	}

	return text
}

// Unwrap gives the error that it comes from, if there is one.
func (e *Error) Unwrap() error { return e.Err }

// ExitCode is 2: files alone decide it.
func (e *Error) ExitCode() diagnosis.ExitCode { return diagnosis.ExitBadInput }

// Finding is the error as a finding about the whole cluster.
func (e *Error) Finding() diagnosis.Finding {
	return diagnosis.Finding{ID: e.ID, Severity: diagnosis.Failure, Cause: e.Cause(), Next: e.Next,
		Exit: diagnosis.ExitBadInput, At: diagnosis.Location{Path: e.Path, Line: e.Line, Column: e.Column}}
}

// Errors lists the mistakes in an error that Mistakes.Err made, in the order of files and lines.
func Errors(err error) []*Error {
	var (
		many *multierror.Error
		one  *Error
	)

	switch {
	case errors.As(err, &many):
		var list []*Error
		for _, inner := range many.Errors {
			list = append(list, Errors(inner)...)
		}

		return list
	case errors.As(err, &one):
		return []*Error{one}
	default:
		return nil
	}
}

// Mistakes collects the mistakes of one run over the files. The zero value is empty and ready.
type Mistakes struct {
	List []*Error
	// Warnings are no mistakes, but may be meant otherwise.
	Warnings []*Error
}

// Add takes one more mistake.
func (m *Mistakes) Add(mistake *Error) { m.List = append(m.List, mistake) }

// Warn takes one more that does no harm.
func (m *Mistakes) Warn(mistake *Error) { m.Warnings = append(m.Warnings, mistake) }

// Err is a multierror of all mistakes, sorted by place; nil if there are none. What follows from an earlier mistake
// about the same value is left out, as that a variable without a value is no address.
func (m *Mistakes) Err() error {
	slices.SortStableFunc(m.List, func(a, b *Error) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})

	all := &multierror.Error{ErrorFormat: diagnosis.Lines}

	for i, mistake := range m.List {
		if i == 0 || !mistake.follows(m.List[i-1]) {
			all.Errors = append(all.Errors, mistake)
		}
	}

	return all.ErrorOrNil()
}

// follows reports whether a mistake says no more than the one before it: the same, or what comes of a value that has no
// meaning.
func (e *Error) follows(before *Error) bool {
	samePlace := e.Path == before.Path && e.Line == before.Line && e.Column == before.Column && e.Column > 0
	meaningless := before.ID == diagnosis.FileVariable || before.ID == diagnosis.FileType

	return e.Error() == before.Error() || samePlace && meaningless && e.ID != diagnosis.FileVariable
}
