// Package text puts together the small words that steps say in common.
package text

import (
	"fmt"
	"slices"
	"strings"
)

// List is "a, b and c"; "none" of nothing.
func List(words []string) string {
	switch last := len(words) - 1; last {
	case -1:
		return "none"
	case 0:
		return words[0]
	default:
		return strings.Join(words[:last], ", ") + " and " + words[last]
	}
}

// Counted is "1 member", "3 members".
func Counted(count int, what string) string {
	if count == 1 {
		return "1 " + what
	}

	return fmt.Sprintf("%d %ss", count, what)
}

// CountedOf is Counted for words with a plural of their own.
func CountedOf(count int, one, many string) string {
	if count == 1 {
		return "1 " + one
	}

	return fmt.Sprintf("%d %s", count, many)
}

// Because is a reason to put behind a statement; empty without one.
func Because(reason string) string {
	if reason == "" {
		return ""
	}

	return " (" + reason + ")"
}

// AppendNew appends a word that is not there yet.
func AppendNew(words []string, word string) []string {
	if slices.Contains(words, word) {
		return words
	}

	return append(words, word)
}
