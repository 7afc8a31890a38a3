package secrettext

import (
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
)

// Instead is what is shown instead of a text that looks like a key.
const Instead = "(masked: it looks like a key)"

var (
	// marked are private keys of age, PEM texts, bootstrap tokens, and tokens of Proxmox' API.
	marked = pattern.New(`(?i:AGE-SECRET-KEY-)|-----BEGIN |@\w+![\w.-]+=|(?:^|[^\w.-])` + Token + `(?:[^\w.-]|$)`)
	// random is where encoded random bytes may stand; 16 of them make 22 characters of base64.
	random = pattern.New(`[A-Za-z0-9+]{22,}`)
)

// LooksLikeKey reports whether somebody pasted a key or a token into a text that is to be something else. Several lines
// are the content of a file, which may hold any.
func LooksLikeKey(text string) bool {
	return strings.ContainsRune(text, '\n') || marked.MatchString(text) ||
		slices.ContainsFunc(random.FindAllString(text, -1), IsRandom)
}

// LooksLikeKeyInPath is LooksLikeKey for a text that is to be a path: folders may have names of random characters.
func LooksLikeKeyInPath(text string) bool {
	return marked.MatchString(text) || strings.ContainsRune(text, '\n') ||
		!strings.ContainsAny(text, `/\`) && LooksLikeKey(text)
}

// Shown is the text, or what stands for a key.
func Shown(text string) string {
	if LooksLikeKey(text) {
		return Instead
	}

	return text
}
