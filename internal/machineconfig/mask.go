package machineconfig

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"net/url"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
)

const (
	// Masked stands for every secret.
	Masked = "(masked)"
	// MaskedChanged stands for a secret in a diff whose two values differ.
	MaskedChanged = "(masked, changed)"
	// unreadable is all that is shown of text in which secrets can't be told from the rest.
	unreadable = "(masked: not readable as YAML)\n"
)

// Mask returns the YAML documents without comments and with every secret replaced by Masked. Public certificates are
// shown as fingerprints. Of text that is not YAML nothing is shown.
func Mask(data []byte) []byte {
	masked, err := maskWith(data, func(string) string { return Masked })
	if err != nil {
		return []byte(unreadable)
	}

	return masked
}

// Secrets are the secrets in YAML documents, and what may be one. Of text that is not YAML every long word is.
func Secrets(data []byte) []string { return newScrubber(data).secrets }

// maskWith replaces each secret by what replace makes of it.
func maskWith(data []byte, replace func(secret string) string) ([]byte, error) {
	roots, err := parseNodes(data)
	if err != nil {
		return nil, err
	}

	masker := masker{replace: replace, known: secretValues(roots, false)}

	for _, root := range roots {
		visitScalars(root, masker.mask)
	}

	return encodeNodes(roots)
}

// masker replaces secrets in place.
type masker struct {
	replace func(secret string) string
	// known secrets are masked wherever else they were copied to.
	known []string
}

func (m masker) mask(_ string, node *yaml.Node, class class) {
	if node.Value == "" || node.Tag == "!!null" {
		return
	}

	shown := node.Value

	switch class {
	case secret, hidden:
		shown = m.replace(node.Value)
	case certificate:
		shown = m.certificate(node.Value)
	case open:
		shown = m.text(node.Value)
	}

	if shown != node.Value {
		node.Value, node.Tag, node.Style = shown, "!!str", 0
	}
}

// certificate shows a public certificate by its fingerprint. Anything else that stands where a certificate should is
// masked.
func (m masker) certificate(value string) string {
	data, err := base64.StdEncoding.DecodeString(strings.TrimSpace(value))
	if err != nil || !isOnlyCertificates(data) {
		return m.replace(value)
	}

	sum := sha256.Sum256(data)

	return "(certificate " + hex.EncodeToString(sum[:6]) + ")"
}

func isOnlyCertificates(data []byte) bool {
	for {
		block, rest := pem.Decode(data)
		if block == nil || block.Type != "CERTIFICATE" {
			return false
		}

		if data = bytes.TrimSpace(rest); len(data) == 0 {
			return true
		}
	}
}

// text is the net under the structure: private keys, copies of secrets and credentials in URLs and arguments in any
// other value.
func (m masker) text(value string) string {
	copied := slices.ContainsFunc(m.known, func(secret string) bool { return strings.Contains(value, secret) })
	if copied || holdsPrivateKey(value) {
		return m.replace(value)
	}

	return argumentSecret.ReplaceAllStringFunc(m.url(value), func(argument string) string {
		name := argumentSecret.FindStringSubmatch(argument)[1]

		return name + m.replace(argument[len(name):])
	})
}

// argumentSecret finds `--client-secret=…` and the like in lists of arguments.
var argumentSecret = pattern.New(
	`(?i)((?:token|secret|password|passphrase|private-?key|api-?key)[a-z0-9_-]*\s*[=:]\s*)[^\s(]\S*`)

// locator finds URLs, each up to what ends it in YAML.
var locator = pattern.New(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"',\]}]*`)

// url hides the user and the query of each URL: tokens travel there (a SideroLink join token, a registry's
// credentials). Where it can't be told where they end, all of the text is.
func (m masker) url(text string) string {
	if !strings.Contains(text, "://") {
		return text
	}

	broken := strings.Contains(locator.ReplaceAllString(text, ""), "@")
	shown := locator.ReplaceAllStringFunc(text, func(found string) string {
		parsed, err := url.Parse(found)
		if err != nil {
			broken = true
			return found
		}

		return m.parsedURL(found, parsed)
	})

	if broken {
		return m.replace(text)
	}

	return shown
}

func (m masker) parsedURL(text string, parsed *url.URL) string {
	if parsed.User == nil && parsed.RawQuery == "" && parsed.Fragment == "" {
		return text
	}

	shown := parsed.Scheme + "://"

	if parsed.User != nil {
		shown += m.replace(parsed.User.String()) + "@"
	}

	shown += parsed.Host + parsed.EscapedPath()

	if hiddenPart := parsed.RawQuery + parsed.Fragment; hiddenPart != "" {
		shown += "?" + m.replace(hiddenPart)
	}

	return shown
}

// holdsPrivateKey sees PEM private keys, also through base64.
func holdsPrivateKey(text string) bool {
	for range 3 {
		if strings.Contains(text, "PRIVATE KEY-----") {
			return true
		}

		decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
		if err != nil || len(decoded) == 0 {
			return false
		}

		text = string(decoded)
	}

	return strings.Contains(text, "PRIVATE KEY-----")
}

// tagged is what stands for a secret while two masked texts are compared: equal secrets have equal tags.
var tagged = pattern.New(`\(masked:[0-9a-f]{16}\)`)

// newTagger returns a function that gives each secret a tag, from a random key that is forgotten with it.
func newTagger() func(string) string {
	key := []byte(rand.Text())

	return func(secret string) string {
		sum := hmac.New(sha256.New, key)
		sum.Write([]byte(secret))

		return "(masked:" + hex.EncodeToString(sum.Sum(nil)[:8]) + ")"
	}
}
