package preflight

import (
	"bytes"
	"context"
	"errors"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// placeholder is a value that a secret store should have replaced, or that sops encrypted.
var placeholder = regexp.MustCompile(`^\s*(op://|ref\+[a-z0-9]+://|vault:|ENC\[AES256_GCM)`)

// placeholderAt is where a placeholder stands. The value itself is never kept.
type placeholderAt struct {
	Field string
	Line  int
	Kind  string
}

// checkPlaceholders finds machine configs that a secret store was not asked to fill in.
func checkPlaceholders(_ context.Context, w whole) []diagnosis.Finding {
	var findings []diagnosis.Finding

	for node, config := range w.each() {
		if found := placeholders(config.Bytes); len(found) > 0 {
			first := found[0]

			findings = append(findings, w.about(node, diagnosis.ConfigPlaceholder, diagnosis.Failure,
				"generate the configs with the program that fills in the secrets, then `mage preflight`",
				"%s:%d: %s is still a placeholder (%s…), and so are %d more fields",
				config.Path, first.Line, first.Field, first.Kind, len(found)-1)...)
		}
	}

	return findings
}

// placeholders walks all documents of a file. A file that is no YAML has none: loading it said so.
func placeholders(data []byte) []placeholderAt {
	var found []placeholderAt

	decoder := yaml.NewDecoder(bytes.NewReader(data))

	for {
		var document yaml.Node

		if err := decoder.Decode(&document); err != nil {
			if errors.Is(err, io.EOF) {
				return found
			}

			return nil
		}

		found = walk(&document, nil, found)
	}
}

func walk(node *yaml.Node, path []string, found []placeholderAt) []placeholderAt {
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			found = walk(node.Content[i+1], append(path, node.Content[i].Value), found)
		}
	case yaml.ScalarNode:
		if match := placeholder.FindStringSubmatch(node.Value); match != nil {
			found = append(found, placeholderAt{Field: strings.Join(path, "."), Line: node.Line, Kind: match[1]})
		}
	default:
		for _, child := range node.Content {
			found = walk(child, path, found)
		}
	}

	return found
}
