package yamltree

import "go.yaml.in/yaml/v4"

// Counterpart is the node of trees that has the place in them which the node at a line, and at a column unless that is
// 0, has in other trees; nil if there is none.
func Counterpart(trees, others []*yaml.Node, line, column int) *yaml.Node {
	for i := range min(len(trees), len(others)) {
		if other := others[i]; other.Line == line && (column == 0 || other.Column == column) {
			return trees[i]
		}

		if found := Counterpart(trees[i].Content, others[i].Content, line, column); found != nil {
			return found
		}
	}

	return nil
}
