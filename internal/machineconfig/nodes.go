package machineconfig

import (
	"bytes"
	"errors"
	"io"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/yamltree"
)

// Limits of a document after its aliases were resolved: more is an attack, not a config.
const (
	maxNodes = 500_000
	maxDepth = 200
)

var errUnreadable = errors.New("read YAML: unexpected structure, too deep, or too many aliases")

// parseNodes reads all documents of a YAML text, as copies without comments in which every alias is replaced by what it
// stands for.
func parseNodes(data []byte) (roots []*yaml.Node, err error) {
	defer func() {
		// The decoder reports some malformed input by panicking.
		if recovered := recover(); recovered != nil {
			roots, err = nil, errUnreadable
		}
	}()

	decoder := yaml.NewDecoder(bytes.NewReader(data))
	budget := maxNodes

	for {
		var document yaml.Node

		err := decoder.Decode(&document)

		switch {
		case errors.Is(err, io.EOF):
			return roots, nil
		case err != nil:
			return nil, err
		case document.Kind != yaml.DocumentNode || len(document.Content) != 1:
			return nil, errUnreadable
		}

		root, err := resolve(document.Content[0], &budget, 0)
		if err != nil {
			return nil, err
		}

		roots = append(roots, root)
	}
}

// resolve copies a node without comments, anchors and aliases.
func resolve(node *yaml.Node, budget *int, depth int) (*yaml.Node, error) {
	node = yamltree.Referred(node)

	if *budget--; *budget < 0 || depth > maxDepth {
		return nil, errUnreadable
	}

	copied := &yaml.Node{Kind: node.Kind, Tag: node.Tag, Value: node.Value, Style: node.Style, Line: node.Line,
		Column: node.Column}

	for _, child := range node.Content {
		child, err := resolve(child, budget, depth+1)
		if err != nil {
			return nil, err
		}

		copied.Content = append(copied.Content, child)
	}

	return copied, nil
}

// encodeNodes writes documents as YAML.
func encodeNodes(roots []*yaml.Node) ([]byte, error) {
	var out bytes.Buffer

	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)

	for _, root := range roots {
		if err := encoder.Encode(root); err != nil {
			return nil, err
		}
	}

	if err := encoder.Close(); err != nil {
		return nil, err
	}

	return out.Bytes(), nil
}

// Field is the value of a mapping's key; nil if it has none, or the node is no mapping.
func Field(node *yaml.Node, key string) *yaml.Node { return yamltree.Field(node, key) }
