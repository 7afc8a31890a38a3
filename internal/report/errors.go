package report

import (
	"fmt"
	"slices"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Errors joins the errors of results into one, in the order of the nodes' names (those of the cluster, and of names not
// listed, come last), each naming its node: nil of none, a single one as it is, else a *multierror.Error that prints a
// line for each.
func Errors(results []Result, order []string) error {
	var errs []error

	for _, result := range inOrder(results, order) {
		if result.Err == nil {
			continue
		}

		// A problem names its node itself.
		if _, named := diagnosis.AsProblem(result.Err); named {
			errs = append(errs, result.Err)

			continue
		}

		errs = append(errs, fmt.Errorf("%s: %s: %w", result.Subject(), result.Step, result.Err))
	}

	return diagnosis.Join(errs...)
}

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
