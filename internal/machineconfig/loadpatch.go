package machineconfig

import (
	"bytes"
	"errors"

	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"go.yaml.in/yaml/v4"
)

// LoadPatch reads a patch of machine configs. What its decoder panics about, with hostile input, is an error.
func LoadPatch(text []byte) (patch configpatcher.Patch, err error) {
	defer func() {
		if recovered := recover(); recovered != nil {
			err = errors.New("the patch can't be decoded")
		}
	}()

	return configpatcher.LoadPatch(WithoutMergeKeys(text))
}

// WithoutMergeKeys writes documents without `<<`, with what it stands for in its place: Talos takes that for an unknown
// key where the keys are anyone's, as in extraArgs. Other texts stay as they are.
func WithoutMergeKeys(text []byte) []byte {
	if !bytes.Contains(text, []byte("<<")) {
		return text
	}

	roots, err := parseNodes(text)
	if err != nil {
		return text // whoever reads it says so
	}

	merged := false

	for _, root := range roots {
		merged = mergeKeys(root) || merged
	}

	if !merged {
		return text
	}

	plain, err := encodeNodes(roots)
	if err != nil {
		return text
	}

	return plain
}

// mergeKeys takes the merge keys out of a tree; false if it has none.
func mergeKeys(node *yaml.Node) bool {
	merged := false

	for _, child := range node.Content {
		merged = mergeKeys(child) || merged
	}

	if node.Kind != yaml.MappingNode {
		return merged
	}

	var (
		own  = &yaml.Node{Kind: yaml.MappingNode}
		from []*yaml.Node
	)

	for i := 0; i+1 < len(node.Content); i += 2 {
		switch key, value := node.Content[i], node.Content[i+1]; {
		case key.Tag != "!!merge":
			own.Content = append(own.Content, key, value)
		case value.Kind == yaml.SequenceNode:
			from = append(from, value.Content...)
		default:
			from = append(from, value)
		}
	}

	for _, mapping := range from {
		for i := 0; i+1 < len(mapping.Content); i += 2 {
			if Field(own, mapping.Content[i].Value) == nil {
				own.Content = append(own.Content, mapping.Content[i], mapping.Content[i+1])
			}
		}
	}

	node.Content = own.Content

	return merged || len(from) > 0
}
