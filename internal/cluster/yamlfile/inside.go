package yamlfile

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v4"
)

// Inside is where a line and a column of a scalar's text stand in the file that the scalar is part of. The text may be
// what came of the scalar when variables in it were filled. Column 0 means where the line's words begin. The place is
// the scalar's own if the text can't be followed into the file.
func Inside(data []byte, scalar *yaml.Node, text string, line, column int) (int, int) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))

	written := scalarAt(data, scalar.Line, scalar.Column)
	if written == nil {
		return scalar.Line, scalar.Column
	}

	line, column = Unfilled(written.Value, text, line, column)
	letters := lettersOf(data, written)
	offset := offsetOf(written.Value, line, column)

	if offset < 0 || offset >= len(letters) {
		return scalar.Line, scalar.Column
	}

	return letters[offset].line, letters[offset].column
}

// Unfilled is where a line and a column of a text stood before variables in it were filled; zeros if that made other
// lines of it.
func Unfilled(before, filled string, line, column int) (int, int) {
	was, is := strings.Split(before, "\n"), strings.Split(filled, "\n")
	if line < 1 || line > len(is) || len(was) != len(is) {
		return 0, 0
	}

	from, to := []rune(is[line-1]), []rune(was[line-1])

	same := 0
	for same < min(len(from), len(to)) && from[same] == to[same] {
		same++
	}

	switch behind := len(from) - column + 1; {
	case column <= same+1:
	case behind <= len(to) && string(from[len(from)-behind:]) == string(to[len(to)-behind:]):
		column = len(to) - behind + 1
	default:
		column = same + 1
	}

	return line, column
}

// offsetOf counts the letters before a line and a column; -1 for a line that is not there.
func offsetOf(text string, line, column int) int {
	lines := strings.SplitAfter(text, "\n")
	if line < 1 || line > len(lines) {
		return -1
	}

	if column == 0 {
		column = len(lines[line-1]) - len(strings.TrimLeft(lines[line-1], " \t")) + 1
	}

	return len([]rune(strings.Join(lines[:line-1], ""))) + column - 1
}

// scalarAt is the scalar at a place of a file, as it is written there.
func scalarAt(data []byte, line, column int) *yaml.Node {
	var document yaml.Node

	if decode(data, &document) != nil {
		return nil
	}

	var find func(*yaml.Node) *yaml.Node

	find = func(node *yaml.Node) *yaml.Node {
		if node.Kind == yaml.ScalarNode && node.Line == line && node.Column == column {
			return node
		}

		for _, child := range node.Content {
			if found := find(child); found != nil {
				return found
			}
		}

		return nil
	}

	return find(&document)
}

// letter is a letter of a scalar's text with its place in the file.
type letter struct {
	letter       rune
	line, column int
}

// lettersOf are the letters of a scalar as a file has it; none if they are not found to be its text.
func lettersOf(data []byte, scalar *yaml.Node) []letter {
	file := scalarReader{line: scalar.Line, column: scalar.Column}
	for line := range strings.Lines(string(data)) {
		file.lines = append(file.lines, []rune(strings.TrimRight(line, "\r\n")))
	}

	file.skipProperties()

	var letters []letter

	switch {
	case scalar.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return file.block(scalar.Value, scalar.Style&yaml.LiteralStyle != 0)
	case scalar.Style&yaml.DoubleQuotedStyle != 0:
		file.column++
		letters = file.flow(scalar.Value, file.doubleQuoted)
	case scalar.Style&yaml.SingleQuotedStyle != 0:
		file.column++
		letters = file.flow(scalar.Value, file.singleQuoted)
	default:
		letters = file.flow(scalar.Value, file.plain)
	}

	if textOf(letters) != scalar.Value {
		return nil
	}

	return letters
}

func textOf(letters []letter) string {
	var text strings.Builder
	for _, one := range letters {
		text.WriteRune(one.letter)
	}

	return text.String()
}

// scalarReader reads a scalar from the lines of a file; line and column are where it is.
type scalarReader struct {
	lines        [][]rune
	line, column int
}

// rest is what is left of the line.
func (r *scalarReader) rest() []rune {
	if r.line > len(r.lines) || r.column > len(r.lines[r.line-1]) {
		return nil
	}

	return r.lines[r.line-1][r.column-1:]
}

// skipProperties goes past the anchor and the tag of a scalar.
func (r *scalarReader) skipProperties() {
	for {
		rest := string(r.rest())
		r.column += len([]rune(rest)) - len([]rune(strings.TrimLeft(rest, " \t")))

		rest = string(r.rest())
		if !strings.HasPrefix(rest, "&") && !strings.HasPrefix(rest, "!") {
			return
		}

		r.column += len([]rune(strings.FieldsFunc(rest, unicode.IsSpace)[0]))
	}
}

// flow reads as many letters as a text has; next takes one from the line, and none at the end of a line that goes on
// as if there were no end.
func (r *scalarReader) flow(text string, next func() (rune, bool)) []letter {
	var letters []letter

	for count := len([]rune(text)); len(letters) < count && r.line <= len(r.lines); {
		if strings.TrimSpace(string(r.rest())) == "" {
			letters = append(letters, r.fold()...)

			continue
		}

		line, column := r.line, r.column
		if one, taken := next(); taken {
			letters = append(letters, letter{one, line, column})
		}
	}

	return letters
}

// fold reads the ends of lines up to the next words: one stands for a space, and further ones for themselves.
func (r *scalarReader) fold() []letter {
	var ends []letter

	for r.line <= len(r.lines) && strings.TrimSpace(string(r.rest())) == "" {
		ends = append(ends, letter{'\n', r.line, r.column})
		r.line, r.column = r.line+1, 1
	}

	r.skipBlanks()

	if len(ends) == 1 {
		ends[0].letter = ' '

		return ends
	}

	return ends[1:]
}

func (r *scalarReader) skipBlanks() {
	for len(r.rest()) > 0 && (r.rest()[0] == ' ' || r.rest()[0] == '\t') {
		r.column++
	}
}

func (r *scalarReader) plain() (rune, bool) {
	one := r.rest()[0]
	r.column++

	return one, true
}

func (r *scalarReader) singleQuoted() (rune, bool) {
	if strings.HasPrefix(string(r.rest()), "''") {
		r.column++
	}

	return r.plain()
}

// escapes are the letters behind a backslash that stand for others, and lengths those that a number follows.
var (
	escapes = map[rune]rune{'0': 0, 'a': '\a', 'b': '\b', 't': '\t', 'n': '\n', 'v': '\v', 'f': '\f', 'r': '\r',
		'e': '\x1b', 'N': '\u0085', '_': '\u00a0', 'L': '\u2028', 'P': '\u2029'}
	escapeLengths = map[rune]int{'x': 2, 'u': 4, 'U': 8}
)

func (r *scalarReader) doubleQuoted() (rune, bool) {
	one, _ := r.plain()
	if one != '\\' {
		return one, true
	}

	if len(r.rest()) == 0 {
		r.line, r.column = r.line+1, 1
		r.skipBlanks()

		return 0, false
	}

	one, _ = r.plain()

	if length := escapeLengths[one]; length > 0 && length <= len(r.rest()) {
		code, err := strconv.ParseInt(string(r.rest()[:length]), 16, 32)
		r.column += length

		return rune(code), err == nil
	}

	if other, known := escapes[one]; known {
		return other, true
	}

	return one, true
}

// block reads a text that stands below the sign of its style, indented as deep as its first line, or less deep if the
// sign says so.
func (r *scalarReader) block(text string, literal bool) []letter {
	first := slices.IndexFunc(r.lines[min(r.line, len(r.lines)):],
		func(line []rune) bool { return strings.TrimSpace(string(line)) != "" })
	if first < 0 {
		return nil
	}

	for indent := indentOf(r.lines[r.line+first]); indent >= 0; indent-- {
		letters := r.indented(indent, literal)
		if strings.TrimRight(textOf(letters), "\n") == strings.TrimRight(text, "\n") {
			return letters
		}
	}

	return nil
}

func indentOf(line []rune) int {
	return len(line) - len([]rune(strings.TrimLeft(string(line), " ")))
}

// indented reads the lines of a block that are indented that deep. In a folded one the end of a line between two that
// are not indented further stands for a space.
func (r *scalarReader) indented(indent int, literal bool) []letter {
	var letters, ends []letter

	further := true // as is before the first line, whose end before it counts

	for number := r.line + 1; number <= len(r.lines); number++ {
		line := r.lines[number-1]

		if len(line) <= indent && strings.TrimSpace(string(line)) == "" {
			ends = append(ends, letter{'\n', number, len(line) + 1})

			continue
		}

		if indentOf(line) < indent {
			break
		}

		isFurther := line[indent] == ' ' || line[indent] == '\t'

		switch folds := !literal && len(letters) > 0 && !further && !isFurther; {
		case folds && len(ends) == 1:
			ends[0].letter = ' '
		case folds:
			ends = ends[1:]
		}

		letters, ends, further = append(letters, ends...), nil, isFurther

		for i, one := range line[indent:] {
			letters = append(letters, letter{one, number, indent + i + 1})
		}

		ends = append(ends, letter{'\n', number, len(line) + 1})
	}

	return append(letters, ends...)
}
