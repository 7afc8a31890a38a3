// Package pattern holds regular expressions that are compiled when they are first used: compiling all of them takes
// longer than many a call of the program.
package pattern

import (
	"regexp"
	"sync"
)

// Pattern is a regular expression; its methods are those of the package regexp.
type Pattern struct {
	compiled func() *regexp.Regexp
}

// New takes an expression that is known to be one.
func New(expression string) Pattern {
	return Pattern{sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })}
}

// FindStringSubmatch are the first match and its groups.
func (p Pattern) FindStringSubmatch(text string) []string {
	return p.compiled().FindStringSubmatch(text)
}

// MatchString reports whether the text contains a match.
func (p Pattern) MatchString(text string) bool { return p.compiled().MatchString(text) }

// FindAllString are the matches.
func (p Pattern) FindAllString(text string, n int) []string {
	return p.compiled().FindAllString(text, n)
}

// FindAllStringIndex is where the matches are.
func (p Pattern) FindAllStringIndex(text string, n int) [][]int {
	return p.compiled().FindAllStringIndex(text, n)
}

// FindAllStringSubmatch are the matches with their groups.
func (p Pattern) FindAllStringSubmatch(text string, n int) [][]string {
	return p.compiled().FindAllStringSubmatch(text, n)
}

// FindString is the first match.
func (p Pattern) FindString(text string) string { return p.compiled().FindString(text) }

// ReplaceAllString replaces the matches; $1 is a group.
func (p Pattern) ReplaceAllString(text, by string) string {
	return p.compiled().ReplaceAllString(text, by)
}

// ReplaceAllStringFunc replaces the matches.
func (p Pattern) ReplaceAllStringFunc(text string, by func(string) string) string {
	return p.compiled().ReplaceAllStringFunc(text, by)
}

// FindAllSubmatch are the matches with their groups.
func (p Pattern) FindAllSubmatch(text []byte, n int) [][][]byte {
	return p.compiled().FindAllSubmatch(text, n)
}
