package talconfig

import (
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// ReadVariables adds the variables of a talenv.yaml; false if sops encrypted it.
func ReadVariables(source yamlfile.Source, data []byte, values map[string]string) bool {
	root := source.Parse(data)

	switch {
	case root == nil:
		return true
	case root.Kind != yaml.MappingNode:
		source.At(root, diagnosis.FileType, "must hold lines like NAME: value")

		return true
	case yamlfile.Field(root, "sops") != nil:
		return false
	}

	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]

		if value.Kind != yaml.ScalarNode {
			source.At(key, diagnosis.FileType, "%q must be a single value, not a %s", key.Value, yamlfile.KindName(value))

			continue
		}

		values[key.Value] = value.Value

		if value.Tag == "!!null" {
			values[key.Value] = ""
		}
	}

	return true
}
