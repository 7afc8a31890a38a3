package secrettext

import "github.com/talos-mage/talos-mage/internal/base/pattern"

// Masked stands where a secret was.
const Masked = "(masked)"

var (
	// A key of age, or what of it was pasted.
	anyAgeKey = pattern.New(`(?i)AGE-SECRET-KEY-[0-9A-Z-]+`)

	// A key that was cut off is masked up to the next quote, as is one whose line breaks are escaped, once or twice.
	wholePrivateKey = pattern.New(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?:[^-"\\]|\\+[nrt]|-[^-])*(?:-----END [A-Z0-9 ]*PRIVATE KEY-----)?`)

	// What is in base64 may hold a key anywhere, also behind a certificate or a line break.
	base64Run = pattern.New(`[A-Za-z0-9+/]{48,}={0,2}`)

	// A token stands alone, or behind the v that versions are shown with.
	standingToken = pattern.New(`(^v?|[^\w.-]v?)` + Token + `(\.?(?:[^\w.-]|$))`)

	// A value that a machine config's field names a secret, whatever it looks like, as long as it is no word of a
	// sentence.
	namedSecret = pattern.New(`(?i)\b(\w*(?:secret|token|passphrase|password|key)["']?\s*[:=]\s*["']?)[A-Za-z0-9+/_.-]{24,}={0,2}`)
)

// Mask masks private keys (PEM, also in base64, and of age), bootstrap tokens, and values of fields that are named
// after a secret. It is the last line of defence: whoever writes a text is to leave secrets out of it to begin with.
func Mask(text string) string {
	text = wholePrivateKey.ReplaceAllString(text, Masked)
	text = anyAgeKey.ReplaceAllString(text, Masked)
	text = base64Run.ReplaceAllStringFunc(text, func(run string) string {
		if encodesPrivateKey(run) {
			return Masked
		}

		return run
	})
	text = namedSecret.ReplaceAllString(text, "${1}"+Masked)

	// Twice, since two tokens may share the one separator between them.
	for range 2 {
		text = standingToken.ReplaceAllString(text, "${1}"+Masked+"${2}")
	}

	return text
}
