package report

import (
	"encoding/base64"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
)

// masked stands where a secret was.
const masked = "(masked)"

var (
	// A key that was cut off is masked up to the next quote, as is one whose line breaks are escaped, once or twice.
	privateKey = pattern.New(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?:[^-"\\]|\\+[nrt]|-[^-])*(?:-----END [A-Z0-9 ]*PRIVATE KEY-----)?`)

	// Talos' and Kubernetes' bootstrap tokens: six characters, a dot, sixteen characters, standing alone, or behind the v
	// that versions are shown with.
	bearerToken = pattern.New(`(^v?|[^\w.-]v?)[a-z0-9]{6}\.[a-z0-9]{16}(\.?(?:[^\w.-]|$))`)

	// A value that a machine config's field names a secret, whatever it looks like, as long as it is no word of a
	// sentence.
	namedSecret = pattern.New(`(?i)\b(\w*(?:secret|token|passphrase|password|key)["']?\s*[:=]\s*["']?)[A-Za-z0-9+/_.-]{24,}={0,2}`)

	// A private key of age, as people paste it where the path of its file belongs.
	ageKey = pattern.New(`(?i)AGE-SECRET-KEY-[0-9A-Z-]+`)

	base64Run = pattern.New(`[A-Za-z0-9+/]{48,}={0,2}`)
)

// Scrub masks secrets in text that people or files get: private keys (PEM, also in base64), bootstrap tokens, and
// values of fields named after a secret. It is the last line of defence: whoever writes a text is to leave secrets out
// of it in the first place. What a terminal would obey instead of showing it is written as in Go: \x1b.
func Scrub(text string) string {
	text = privateKey.ReplaceAllString(text, masked)
	text = ageKey.ReplaceAllString(text, masked)
	text = base64Run.ReplaceAllStringFunc(text, maskEncodedKey)
	text = namedSecret.ReplaceAllString(text, "${1}"+masked)

	// Twice, since two tokens may share the one separator between them.
	for range 2 {
		text = bearerToken.ReplaceAllString(text, "${1}"+masked+"${2}")
	}

	return visible(text)
}

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

// maskEncodedKey masks base64 of a PEM private key, also one that was cut off.
func maskEncodedKey(run string) string {
	whole := strings.TrimRight(run, "=")

	decoded, err := base64.StdEncoding.DecodeString(whole[:len(whole)-len(whole)%4])
	if err != nil || !strings.Contains(string(decoded), "PRIVATE KEY-----") {
		return run
	}

	return masked
}
