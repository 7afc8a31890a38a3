package machineconfig

import (
	"strings"

	"go.yaml.in/yaml/v4"
)

// scrubber takes a config's secrets out of messages about it.
type scrubber struct {
	secrets []string
}

// newScrubber learns the secrets of a config. Of text that is not YAML, every word long enough to be a secret is one.
func newScrubber(data []byte) *scrubber {
	roots, err := parseNodes(data)
	if err == nil {
		return &scrubber{secrets: append(secretValues(roots, true), valuesWithSecrets(roots)...)}
	}

	var words []string

	for word := range strings.FieldsSeq(string(data)) {
		if word = strings.Trim(word, `"',`); len(word) >= 2*minSecretLength {
			words = append(words, word)
		}
	}

	return &scrubber{secrets: words}
}

// valuesWithSecrets are values shown elsewhere in part only, as URLs with a token.
func valuesWithSecrets(roots []*yaml.Node) []string {
	masker := masker{replace: func(string) string { return Masked }}

	var values []string

	for _, root := range roots {
		visitScalars(root, func(_ string, node *yaml.Node, class class) {
			if class == open && masker.text(node.Value) != node.Value {
				values = append(values, node.Value)
			}
		})
	}

	return values
}

func (s *scrubber) scrub(text string) string {
	text = decodedValue.ReplaceAllString(text, Masked)

	for _, secret := range s.secrets {
		text = strings.ReplaceAll(text, secret, Masked)
	}

	return text
}

func (s *scrubber) scrubAll(lines []string) []string {
	for i, line := range lines {
		lines[i] = s.scrub(line)
	}

	return lines
}
