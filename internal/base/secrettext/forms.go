// Package secrettext knows the forms that secrets have in a text, whoever wrote it: private keys, tokens, random bytes.
package secrettext

import (
	"encoding/base64"
	"slices"
	"strings"
	"unicode"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
)

// Token is the form of Talos' and Kubernetes' bootstrap tokens, as a regular expression.
const Token = `[a-z0-9]{6}\.[a-z0-9]{16}`

var (
	bootstrapToken = pattern.New(`^` + Token + `$`)
	pemPrivateKey  = pattern.New(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----`)
	// ageKey is a private key of age; a shorter text is a placeholder.
	ageKey = pattern.New(`AGE-SECRET-KEY-1[0-9A-Z]{20,}`)
	// encodedPEM is the beginning of a PEM text in base64, long enough to say what it is.
	encodedPEM = pattern.New(`LS0tLS1CRUdJTi[A-Za-z0-9+/]{34,}={0,2}`)
)

// IsBootstrapToken reports whether a text is of the form of a bootstrap token.
func IsBootstrapToken(text string) bool { return bootstrapToken.MatchString(text) }

// HoldsPrivateKey reports whether a private key begins in a text: of age, or PEM, in base64 as well.
func HoldsPrivateKey(text string) bool {
	return pemPrivateKey.MatchString(text) || ageKey.MatchString(text) ||
		slices.ContainsFunc(encodedPEM.FindAllString(text, -1), encodesPrivateKey)
}

// HoldsAgeKey reports whether a private key of age is in a text.
func HoldsAgeKey(text string) bool { return ageKey.MatchString(text) }

// encodesPrivateKey reports whether base64, which may be cut off, is that of a PEM private key.
func encodesPrivateKey(run string) bool {
	whole := strings.TrimRight(run, "=")
	decoded, err := base64.StdEncoding.DecodeString(whole[:len(whole)/4*4])

	return err == nil && strings.Contains(string(decoded), "PRIVATE KEY")
}

// IsRandom tells encoded random bytes from paths and words, which lack one of the kinds of characters.
func IsRandom(run string) bool {
	return strings.ContainsFunc(run, unicode.IsDigit) && strings.ContainsFunc(run, unicode.IsUpper) &&
		strings.ContainsFunc(run, unicode.IsLower)
}
