// Package keylike tells texts that look like keys and tokens from others, so that a message does not repeat what
// somebody pasted into the wrong place.
package keylike

import (
	"strings"
	"unicode"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
)

// Instead is what is shown instead of a key.
const Instead = "(masked: it looks like a key)"

var (
	// marked are private keys of age, PEM texts, bootstrap tokens, and tokens of Proxmox' API.
	marked = pattern.New(`(?i:AGE-SECRET-KEY-)|-----BEGIN |@\w+![\w.-]+=|` +
		`(?:^|[^\w.-])[a-z0-9]{6}\.[a-z0-9]{16}(?:[^\w.-]|$)`)
	// random is where encoded random bytes may stand; 16 of them make 22 characters of base64.
	random = pattern.New(`[A-Za-z0-9+]{22,}`)
)

// Is reports whether a text looks like a key, or holds one. Several lines are the content of a file, which may hold
// any.
func Is(text string) bool {
	if strings.ContainsRune(text, '\n') || marked.MatchString(text) {
		return true
	}

	for _, run := range random.FindAllString(text, -1) {
		if isMixed(run) {
			return true
		}
	}

	return false
}

// isMixed tells random characters from a long word, which lacks one of the kinds.
func isMixed(run string) bool {
	return strings.ContainsFunc(run, unicode.IsDigit) && strings.ContainsFunc(run, unicode.IsUpper) &&
		strings.ContainsFunc(run, unicode.IsLower)
}

// InPath is Is for a text that is to be a path, whose folders may have names of random characters.
func InPath(text string) bool {
	return marked.MatchString(text) || strings.ContainsRune(text, '\n') || !strings.ContainsAny(text, `/\`) && Is(text)
}

// Shown is the text, or what stands for a key.
func Shown(text string) string {
	if Is(text) {
		return Instead
	}

	return text
}
