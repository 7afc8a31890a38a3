package rewrite

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/yamltree"
)

// IsOperations reports whether a patch is a JSON patch (RFC 6902): a list of operations.
func IsOperations(patch string) bool {
	var root yaml.Node

	return yaml.Unmarshal([]byte(patch), &root) == nil && len(root.Content) == 1 &&
		root.Content[0].Kind == yaml.SequenceNode && len(root.Content[0].Content) > 0
}

// Operations writes a JSON patch as a strategic merge patch. An error names the operation that none can be made of.
func Operations(patch string) (string, error) {
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(patch), &root); err != nil {
		return "", fmt.Errorf("read JSON patch: %w", err)
	}

	made := &yaml.Node{Kind: yaml.MappingNode}

	for _, operation := range root.Content[0].Content {
		if err := apply(made, operation); err != nil {
			return "", fmt.Errorf("%s %s: %w", yamltree.FieldText(operation, "op"), yamltree.FieldText(operation, "path"), err)
		}
	}

	return strings.Join(encoded(made), "\n") + "\n", nil
}

// apply adds what an operation does to a strategic merge patch.
func apply(made, operation *yaml.Node) error {
	path, isAbsolute := strings.CutPrefix(yamltree.FieldText(operation, "path"), "/")
	keys := strings.Split(path, "/")

	for i, key := range keys {
		keys[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(key)
	}

	last := keys[len(keys)-1]
	value := yamltree.Field(operation, "value")

	switch op := yamltree.FieldText(operation, "op"); {
	case !isAbsolute || path == "":
		return errors.New("it has no path below the root")
	case slices.ContainsFunc(keys, isIndex):
		return errors.New("items of a list have no number in a strategic merge patch")
	case slices.Contains(keys[:len(keys)-1], "-"):
		return errors.New("what is below a new item has to stand in the item")
	case op == "remove" && last == "-", op != "remove" && value == nil:
		return errors.New("it has nothing to set or to remove")
	case op == "remove":
		value = &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{word("$patch"), word("delete")}}
	case op != "add" && op != "replace":
		return errors.New("a strategic merge patch can only set and remove")
	case last == "-":
		keys, value = keys[:len(keys)-1], &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{value}}
	}

	return put(made, keys, inBlock(value))
}

// inBlock is a value without the braces that JSON has.
func inBlock(value *yaml.Node) *yaml.Node {
	copied := *value
	copied.Style &^= yaml.FlowStyle
	copied.Content = nil

	for i, child := range value.Content {
		child = inBlock(child)
		if value.Kind == yaml.MappingNode && i%2 == 0 {
			child.Style = 0
		}

		copied.Content = append(copied.Content, child)
	}

	return &copied
}

func isIndex(key string) bool { return key != "" && strings.Trim(key, "0123456789") == "" }

func word(text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
}

// put sets a value below keys. A list that is there gets more items.
func put(mapping *yaml.Node, keys []string, value *yaml.Node) error {
	present := yamltree.Field(mapping, keys[0])

	switch {
	case len(keys) == 1 && present == nil:
		mapping.Content = append(mapping.Content, word(keys[0]), value)
	case len(keys) == 1 && present.Kind == yaml.SequenceNode && value.Kind == yaml.SequenceNode:
		present.Content = append(present.Content, value.Content...)
	case len(keys) == 1:
		return errors.New("an operation before it sets the same")
	case present == nil:
		below := &yaml.Node{Kind: yaml.MappingNode}
		mapping.Content = append(mapping.Content, word(keys[0]), below)

		return put(below, keys[1:], value)
	case present.Kind != yaml.MappingNode:
		return errors.New("an operation before it sets what it is below")
	default:
		return put(present, keys[1:], value)
	}

	return nil
}
