package tofu

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// tokenKind is what a token is.
type tokenKind int

const (
	end tokenKind = iota
	newline
	word    // an identifier, true, false and null among them
	number  // a number
	text    // a string, its quotes taken off, or a heredoc
	sign    // punctuation
	garbage // what can't be part of a file
)

// token is a piece of a file.
type token struct {
	kind tokenKind
	text string
	at   Position
}

// scanner cuts a file into tokens.
type scanner struct {
	path  string
	lines []string
	data  string
	// offset is the next byte, line and start the line it is on and where that begins.
	offset, line, start int
}

// scan gives the tokens of a file; the last one is end.
func scan(path string, data string) []token {
	s := &scanner{path: path, data: data, lines: strings.Split(data, "\n"), line: 1}

	var tokens []token

	for {
		token := s.next()
		tokens = append(tokens, token)

		if token.kind == end {
			return tokens
		}
	}
}

// position is where the next byte stands.
func (s *scanner) position() Position {
	return Position{
		Path: s.path, Line: s.line, Column: utf8.RuneCountInString(s.data[s.start:s.offset]) + 1,
		Text: strings.TrimRight(s.lines[s.line-1], "\r"),
	}
}

// advance moves over a text.
func (s *scanner) advance(length int) string {
	passed := s.data[s.offset : s.offset+length]

	for i := range len(passed) {
		if passed[i] == '\n' {
			s.line++
			s.start = s.offset + i + 1
		}
	}

	s.offset += length

	return passed
}

func (s *scanner) rest() string { return s.data[s.offset:] }

// skip moves over blanks and comments.
func (s *scanner) skip() {
	for {
		rest := s.rest()
		blank := len(rest) - len(strings.TrimLeft(rest, " \t\r\ufeff"))

		switch {
		case blank > 0:
			s.advance(blank)
		case strings.HasPrefix(rest, "#"), strings.HasPrefix(rest, "//"):
			s.advance(until(rest, "\n"))
		case strings.HasPrefix(rest, "/*"):
			s.advance(min(until(rest, "*/")+2, len(rest)))
		default:
			return
		}
	}
}

// until is where a text first has another, or its length.
func until(rest, stop string) int {
	if i := strings.Index(rest, stop); i >= 0 {
		return i
	}

	return len(rest)
}

func (s *scanner) next() token {
	s.skip()

	at, rest := s.position(), s.rest()
	if rest == "" {
		return token{end, "", at}
	}

	switch first, size := utf8.DecodeRuneInString(rest); {
	case first == '\n':
		return token{newline, s.advance(1), at}
	case first == '"':
		return s.quoted(at)
	case strings.HasPrefix(rest, "<<"):
		return s.heredoc(at)
	case unicode.IsLetter(first) || first == '_':
		return token{word, s.advance(length(rest,
			func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' || r == '-' })), at}
	case unicode.IsDigit(first):
		return token{number, s.advance(length(rest,
			func(r rune) bool { return unicode.IsDigit(r) || r == '.' || r == 'e' || r == 'E' })), at}
	case strings.HasPrefix(rest, "=>"), strings.HasPrefix(rest, "=="), strings.HasPrefix(rest, "!="),
		strings.HasPrefix(rest, "<="),
		strings.HasPrefix(rest, ">="), strings.HasPrefix(rest, "&&"), strings.HasPrefix(rest, "||"):
		return token{sign, s.advance(2), at}
	case strings.ContainsRune("{}[]().,=:?!<>+-*/%&|", first):
		return token{sign, s.advance(1), at}
	default:
		return token{garbage, s.advance(size), at}
	}
}

// length is how many bytes of a text consist of such runes.
func length(rest string, holds func(rune) bool) int {
	for i, r := range rest {
		if !holds(r) {
			return i
		}
	}

	return len(rest)
}

// quoted reads a string up to its closing quote: one within ${ } does not close it.
func (s *scanner) quoted(at Position) token {
	rest, depth := s.rest(), 0

	for i := 1; i < len(rest); i++ {
		switch {
		case rest[i] == '\\':
			i++
		case strings.HasPrefix(rest[i:], "${"), strings.HasPrefix(rest[i:], "%{"):
			depth++
			i++
		case rest[i] == '}' && depth > 0:
			depth--
		case rest[i] == '\n' && depth == 0:
			return token{garbage, s.advance(i), at}
		case rest[i] == '"' && depth == 0:
			passed := s.advance(i + 1)

			return token{text, passed[1 : len(passed)-1], at}
		}
	}

	return token{garbage, s.advance(len(rest)), at}
}

// heredoc reads the lines up to one that holds the mark alone.
func (s *scanner) heredoc(at Position) token {
	rest := s.rest()
	head, _, _ := strings.Cut(rest, "\n")
	mark := strings.TrimSpace(strings.TrimLeft(head, "<-"))
	body, consumed := "", len(head)

	for consumed < len(rest) {
		line, _, _ := strings.Cut(rest[consumed+1:], "\n")

		if strings.TrimSpace(line) == mark {
			s.advance(consumed + 1 + len(line))

			return token{text, body, at}
		}

		body += line + "\n"
		consumed += 1 + len(line)
	}

	return token{garbage, s.advance(len(rest)), at}
}
