package report

import (
	"slices"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Subject names the node with its address, or the cluster.
func (r Result) Subject() string {
	return diagnosis.Finding{Node: r.Node, Address: r.Address}.Subject()
}

// inOrder sorts results by the place of their nodes in order; those of one node stay as they came.
func inOrder(results []Result, order []string) []Result {
	sorted := slices.Clone(results)
	slices.SortStableFunc(sorted, func(a, b Result) int { return place(a.Node, order) - place(b.Node, order) })

	return sorted
}

// place is where a node stands in order; after all of them if it isn't listed.
func place(node string, order []string) int {
	if i := slices.Index(order, node); i >= 0 {
		return i
	}

	return len(order)
}
