package machineconfig

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Placeholder is a field of a machine config that holds something else than the secret it should.
type Placeholder struct {
	// Field is the dotted path, as in "machine.ca.key".
	Field        string
	Line, Column int
	// Kind says what it is in plain words. The value is never shown.
	Kind string
}

// placeholderKinds are the forms in which secrets are referred to or encrypted instead of being there.
var placeholderKinds = []struct {
	pattern *regexp.Regexp
	kind    string
}{
	{regexp.MustCompile(`^ENC\[[A-Z0-9_]+,`), "SOPS ciphertext"},
	{regexp.MustCompile(`^op://`), "a 1Password reference (op://)"},
	{regexp.MustCompile(`^ref\+[a-z0-9]+://`), "a vals reference (ref+…://)"},
	{regexp.MustCompile(`^(vault|awssm|gcpsm|doppler|bws|akeyless|infisical):`), "a reference to a secret store"},
	// The whole value, since a password may begin with a dollar sign.
	{regexp.MustCompile(`^\$(\{[A-Za-z_][A-Za-z0-9_]*\}|[A-Z_][A-Z0-9_]*)$`), "an unresolved variable"},
	{regexp.MustCompile(`^\{\{.*\}\}$`), "an unrendered template"},
	{regexp.MustCompile(`^<[^>]*>$`), "a placeholder in angle brackets"},
}

// placeholderMarks: every text that has a placeholder has one of them.
var placeholderMarks = []string{
	"ENC[", "op://", "ref+", "vault:", "awssm:", "gcpsm:", "doppler:", "bws:", "akeyless:", "infisical:", "$", "{{", "<",
}

// Placeholders finds the secret fields whose value is a reference, a variable or ciphertext. It works on the text,
// since such a file often can't be decoded. Of text that is not YAML it finds nothing.
func Placeholders(data []byte) []Placeholder {
	// Most files have none, and looking for what all of them begin with is much quicker than parsing.
	if !slices.ContainsFunc(placeholderMarks, func(mark string) bool { return bytes.Contains(data, []byte(mark)) }) {
		return nil
	}

	roots, err := parseNodes(data)
	if err != nil {
		return nil
	}

	var found []Placeholder

	for _, root := range roots {
		visitScalars(root, func(path string, node *yaml.Node, class class) {
			// SOPS encrypts all values alike, so its mark is looked for everywhere.
			isSecret := class == secret || class == certificate
			value := strings.TrimSpace(node.Value)

			for i, form := range placeholderKinds {
				if (isSecret || i == 0) && form.pattern.MatchString(value) {
					found = append(found, Placeholder{Field: path, Line: node.Line, Column: node.Column, Kind: form.kind})

					return
				}
			}
		})
	}

	return found
}
