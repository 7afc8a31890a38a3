package report

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/talos-mage/talos-mage/internal/base/secrettext"
)

// Scrub masks secrets in text that people or files get. What a terminal would obey instead of showing it is written as
// in Go: \x1b.
func Scrub(text string) string { return visible(secrettext.Mask(text)) }

// scrubPainted is Scrub for a text with this package's own colours in it, if there may be any.
func scrubPainted(text string, color bool) string {
	if !color {
		return Scrub(text)
	}

	var scrubbed strings.Builder

	last := 0
	for _, paint := range painting.FindAllStringIndex(text, -1) {
		scrubbed.WriteString(Scrub(text[last:paint[0]]) + text[paint[0]:paint[1]])
		last = paint[1]
	}

	return scrubbed.String() + Scrub(text[last:])
}

// visible writes out what is no printable character, line break or tab.
func visible(text string) string {
	if !strings.ContainsFunc(text, hidden) {
		return text
	}

	var shown strings.Builder

	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if hidden(r) {
			quoted := strconv.Quote(text[:size])
			shown.WriteString(quoted[1 : len(quoted)-1])
		} else {
			shown.WriteString(text[:size])
		}

		text = text[size:]
	}

	return shown.String()
}

// hidden also holds for bytes that are no UTF-8, which the terminal may take for the beginning of a command.
func hidden(r rune) bool {
	return r == utf8.RuneError || !unicode.IsPrint(r) && r != '\n' && r != '\t' && r != '\u00a0'
}
