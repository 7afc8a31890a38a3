package talconfig

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
)

// SaysNothing reports whether a patch has nothing but comments and document marks, or is an empty list of operations.
func SaysNothing(patch string) bool {
	said := ""

	for line := range strings.Lines(patch) {
		if line = strings.TrimSpace(line); line != "---" && !strings.HasPrefix(line, "#") {
			said += line
		}

		if len(said) > len("[]") {
			return false
		}
	}

	return said == "" || said == "[]"
}

// SubstituteText replaces the variables in the values of a YAML text that belongs to others, as a patch in a file. The
// comments are left out.
func (v Variables) SubstituteText(source yamlfile.Source, text string) (string, error) {
	decoder := yaml.NewDecoder(strings.NewReader(text))

	var out bytes.Buffer

	encoder := yaml.NewEncoder(&out)

	for {
		var document yaml.Node

		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}

		if err != nil {
			return "", err
		}

		withoutComments(&document)
		v.SubstituteForeign(source, &document)

		if err := encoder.Encode(&document); err != nil {
			return "", err
		}
	}

	return out.String(), encoder.Close()
}

func withoutComments(node *yaml.Node) {
	node.HeadComment, node.LineComment, node.FootComment = "", "", ""

	for _, child := range node.Content {
		withoutComments(child)
	}
}
