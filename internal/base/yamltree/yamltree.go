// Package yamltree finds what a tree of YAML nodes has.
package yamltree

import "go.yaml.in/yaml/v4"

// Field is the value of a mapping's key; nil if it has none, or the node is no mapping.
func Field(node *yaml.Node, key string) *yaml.Node {
	if node == nil || node.Kind != yaml.MappingNode {
		return nil
	}

	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return node.Content[i+1]
		}
	}

	return nil
}

// Text is what a single value says; empty for nil, lists and mappings.
func Text(node *yaml.Node) string {
	if node == nil || node.Kind != yaml.ScalarNode {
		return ""
	}

	return node.Value
}

// FieldText is what the value of a mapping's key says, if it is a single one.
func FieldText(node *yaml.Node, key string) string { return Text(Field(node, key)) }

// Referred is what an alias stands for; other nodes stand for themselves.
func Referred(node *yaml.Node) *yaml.Node {
	for node != nil && node.Kind == yaml.AliasNode {
		node = node.Alias
	}

	return node
}
