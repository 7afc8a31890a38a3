package talos

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/base/secrettext"
)

// maxText bounds what is quoted of a node's text.
const maxText = 2000

// secrets are the forms that secrets have in a node's texts: a mark that each of them has, the whole of it, and what is
// shown instead.
var secrets = []struct {
	mark    string
	pattern *regexp.Regexp
	mask    string
}{
	{"-----BEGIN ", regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]+-----.*?(-----END [A-Z0-9 ]+-----|$)`), secrettext.Masked},
	// YAML errors quote values like this, behind their tags; a command that a node advises has none.
	{"`", regexp.MustCompile("(!\\S* )`[^`]*`"), "${1}" + secrettext.Masked},
	{".", regexp.MustCompile(`\b` + secrettext.Token + `\b`), secrettext.Masked},
	{"@", regexp.MustCompile(`://[^/@\s]+@`), "://" + secrettext.Masked + "@"},
	{":", regexp.MustCompile(`(?i)\b(\w*(?:token|secret|key|password)): *\S+`), "$1: " + secrettext.Masked},
}

// leastRandom is from how many characters on a word may be encoded random bytes.
const leastRandom = 32

var base64Run = pattern.New(fmt.Sprintf(`[A-Za-z0-9+/]{%d,}={0,2}`, leastRandom))

// scrub makes a node's text fit for people: no diff, no secrets, no control characters, not too long.
func scrub(text string) string {
	// What follows is a diff of two machine configs, in the clear.
	if before, _, found := strings.Cut(text, "diff:"); found {
		text = before
	}

	for _, secret := range secrets {
		// Most texts hold none, and looking for a mark is much quicker than matching.
		if strings.Contains(text, secret.mark) {
			text = secret.pattern.ReplaceAllString(text, secret.mask)
		}
	}

	if len(text) >= leastRandom {
		text = base64Run.ReplaceAllStringFunc(text, func(run string) string {
			if secrettext.IsRandom(run) {
				return secrettext.Masked
			}

			return run
		})
	}

	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || r == '\n' || r == '\t' {
			return r
		}

		return -1
	}, text)
	if runes := []rune(text); len(runes) > maxText {
		text = string(runes[:maxText]) + "…"
	}

	return strings.TrimSpace(text)
}

var countLine = pattern.New(`^(.*: )?\d+ errors? occurred:$`)

// problems takes a node's complaint about a machine config apart: one line a problem, in the order given.
// Talos nests them as bullets under counted headings.
func problems(text string) []string {
	// The unknown keys follow with their values, which may be a secret under a misspelt name.
	if before, keys, found := strings.Cut(text, "unknown keys found during decoding:\n"); found {
		return []string{strings.TrimSpace(scrub(before) + " unknown keys: " + strings.Join(keyNames(keys), ", "))}
	}

	var lines []string
	for line := range strings.Lines(scrub(text)) {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "* "))
		if line != "" && !countLine.MatchString(line) {
			lines = append(lines, line)
		}
	}

	return lines
}

// keyNames are the keys of a YAML snippet as dotted paths, without values.
func keyNames(snippet string) []string {
	var (
		names  []string
		path   []string
		indent []int
	)

	for line := range strings.Lines(snippet) {
		key, _, isKey := strings.Cut(strings.TrimSpace(line), ":")
		if !isKey || strings.ContainsAny(key, " \t-\"'{[") {
			continue
		}

		depth := len(line) - len(strings.TrimLeft(line, " "))
		for len(indent) > 0 && indent[len(indent)-1] >= depth {
			path, indent = path[:len(path)-1], indent[:len(indent)-1]
		}

		path, indent = append(path, scrub(key)), append(indent, depth)

		name := "." + strings.Join(path, ".")
		if last := len(names) - 1; last >= 0 && strings.HasPrefix(name, names[last]+".") {
			names[last] = name // the parent only led here
		} else {
			names = append(names, name)
		}
	}

	return names
}
