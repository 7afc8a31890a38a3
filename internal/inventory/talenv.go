package inventory

import (
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// talenvFiles are the files that talhelper takes variables from, in its order; later ones win.
var talenvFiles = []string{"talenv.yaml", "talenv.sops.yaml", "talenv.yml", "talenv.sops.yml"}

// loadVariables collects the environment and then the files, which win over it, as with talhelper. Files that sops encrypted are
// not decrypted: they are named when a variable is missing.
func loadVariables(options Options, mistakes *mistakes) variables {
	variables := variables{values: map[string]string{}}

	for _, entry := range options.Environ {
		if name, value, found := strings.Cut(entry, "="); found {
			variables.values[name] = value
		}
	}

	for _, name := range talenvFiles {
		path := filepath.Join(options.TalosDir, name)
		source := source{shown: shownPath(options.Root, path), mistakes: mistakes}

		data, err := source.read(path)
		if err != nil {
			continue
		}

		if !source.readTalenv(data, variables.values) {
			variables.unread = append(variables.unread, source.shown)
		}
	}

	return variables
}

// readTalenv adds the variables of one file; false if it is encrypted.
func (s source) readTalenv(data []byte, values map[string]string) bool {
	root := s.parse(data)

	switch {
	case root == nil:
		return true
	case root.Kind != yaml.MappingNode:
		s.at(root, diagnosis.FileType, "must hold lines like NAME: value")

		return true
	case field(root, "sops") != nil:
		return false
	}

	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]

		if value.Kind != yaml.ScalarNode {
			s.at(key, diagnosis.FileType, "%q must be a single value, not a %s", key.Value, kindName(value))

			continue
		}

		values[key.Value] = value.Value

		if value.Tag == "!!null" {
			values[key.Value] = ""
		}
	}

	return true
}
