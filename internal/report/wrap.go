package report

import (
	"strings"

	"github.com/mattn/go-runewidth"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
)

// commands finds what people copy from a text: a command in backticks, one of this program, a flag with a placeholder
// for its value, and the beginning of a command of another program.
var commands = pattern.New("`[^`\n]+`" +
	`|(?:\bgo tool )?[\w./~-]*\bmage [a-zA-Z][\w:]*(?: (?:-\w+(?:=(?:<[^>\n]+>|[^\s;,)]+))?|<[^>\n]+>))*` +
	`|-\w+=<[^>\n]+>` +
	`|\btask [\w-]+:[\w:-]+(?: --(?: -\S+)*)?` +
	`|\b(?:talosctl|kubectl) [^;,()\n]*`)

// prose are the words that a command of another program ends before.
var prose = []string{" and ", " or ", " then ", " to see ", ". "}

// commandsIn are where the commands in a text begin and end.
func commandsIn(text string) [][]int {
	found := commands.FindAllStringIndex(text, -1)
	for _, span := range found {
		for _, word := range prose {
			if before, _, cut := strings.Cut(text[span[0]:span[1]], word); cut && text[span[0]] != '`' {
				span[1] = span[0] + len(before)
			}
		}
	}

	return found
}

// breadth is how many columns of a terminal a text takes.
func breadth(text string) int { return runewidth.StringWidth(painting.ReplaceAllString(text, "")) }

// Wrap breaks the lines of a text that are wider than a terminal (0 is any) as the console does.
func Wrap(text string, width int) string { return WrapHanging(text, width, furtherIn) }

// WrapHanging breaks the lines of a text that are wider than a terminal (0 is any), between words; what follows stands
// so much further in than its line, if it fits there. No path and no command is broken: one that is longer than a line
// is left to the terminal, which gives it back whole to whoever copies it.
func WrapHanging(text string, width, further int) string {
	if width <= 0 {
		return text
	}

	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if breadth(line) > width {
			lines[i] = wrapLine(line, width, further)
		}
	}

	return strings.Join(lines, "\n")
}

func wrapLine(line string, width, further int) string {
	var wrapped strings.Builder

	text := strings.TrimLeft(line, " ")
	column := len(line) - len(text)
	indent := column + further
	wrapped.WriteString(line[:column])

	for i, piece := range pieces(text) {
		word := strings.TrimLeft(piece, " ")
		switch {
		case i == 0 || column+breadth(piece) <= width:
			wrapped.WriteString(piece)
			column += breadth(piece)
		default:
			begin := min(indent, max(0, width-breadth(word)))
			wrapped.WriteString("\n" + strings.Repeat(" ", begin) + word)
			column = begin + breadth(word)
		}
	}

	return wrapped.String()
}

// pieces are the words of a line, each with the space before it; a command is one word.
func pieces(line string) []string {
	spans := commandsIn(line)
	inCommand := func(at int) bool {
		for _, span := range spans {
			if span[0] <= at && at < span[1] {
				return true
			}
		}

		return false
	}

	var all []string

	begin, inGap := 0, true
	for i := range len(line) {
		space := line[i] == ' ' && !inCommand(i)
		if space && !inGap {
			all = append(all, line[begin:i])
			begin = i
		}

		inGap = space
	}

	return append(all, line[begin:])
}

// cut shortens a line to so many columns.
func (l look) cut(text string, width int) string {
	return runewidth.Truncate(text, max(1, width), l.glyph("…", "..."))
}
