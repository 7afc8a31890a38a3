package machineconfig

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// operation is one step of a JSON patch.
type operation struct {
	Op   string `yaml:"op"`
	Path string `yaml:"path"`
}

// StrategicForm writes a JSON patch (RFC 6902) as a strategic merge patch on one line, or says how to where that is not
// possible: lists can't be addressed by index, and values may be secret.
func StrategicForm(text string) string {
	const general = "set values under their keys, and `$patch: delete` under a key to remove it"

	var operations []operation
	if err := yaml.Unmarshal([]byte(text), &operations); err != nil || len(operations) != 1 {
		return general
	}

	step := operations[0]
	keys := strings.Split(strings.TrimPrefix(step.Path, "/"), "/")

	inner := &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{word("$patch"), word("delete")}}

	switch step.Op {
	case "remove":
	case "add", "replace":
		inner = word("...") // the value may be secret
	default:
		return general
	}

	for _, key := range slices.Backward(keys) {
		if key == "" || key == "-" || strings.Trim(key, "0123456789") == "" {
			return general
		}

		key = strings.NewReplacer("~1", "/", "~0", "~").Replace(key)
		inner = &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{word(key), inner}}
	}

	inFlow(inner)

	line, err := yaml.Marshal(inner)
	if err != nil || len(line) > 200 {
		return general
	}

	return strings.Join(strings.Fields(string(line)), " ")
}

func word(text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
}

func inFlow(node *yaml.Node) {
	node.Style |= yaml.FlowStyle

	for _, child := range node.Content {
		if child.Kind != yaml.ScalarNode {
			inFlow(child)
		}
	}
}
