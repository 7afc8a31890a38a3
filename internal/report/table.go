package report

import (
	"fmt"
	"io"
	"slices"
)

// writeTable writes the final table: a row a node, a column a step, and in each cell how the step ended for the node,
// the attempts if there was more than one, and the time. Nodes are in the given order, the others and the steps in that
// of their first results, the cluster as a whole in the last row. A later result of a node in the same step takes the
// place of an earlier one. Without results nothing is written.
func writeTable(w io.Writer, results []Result, order []string, color bool) error {
	if len(results) == 0 {
		return nil
	}

	nodes, steps := axes(results)
	slices.SortStableFunc(nodes, func(a, b string) int { return place(a, order) - place(b, order) })
	cells := map[[2]string]Result{}
	for _, result := range results {
		cells[[2]string{result.Node, result.Step}] = result
	}

	rows := [][]string{append([]string{"node"}, steps...)}
	for _, node := range nodes {
		row := []string{Result{Node: node}.Subject()}
		for _, step := range steps {
			result, ran := cells[[2]string{node, step}]
			row = append(row, cellText(result, ran))
		}

		rows = append(rows, row)
	}

	text := Columns(rows, Width(w), func(y, x int, cell string) string {
		if y == 0 || x == 0 {
			return cell
		}

		result, ran := cells[[2]string{nodes[y-1], steps[x-1]}]
		return paint(color && ran, statusColor(result.Status), cell)
	})

	if _, err := io.WriteString(w, scrubPainted(text, color)); err != nil {
		return fmt.Errorf("write table of results: %w", err)
	}

	return nil
}

// axes are the nodes and steps of results in the order of their first appearance; the cluster comes after the nodes.
func axes(results []Result) (nodes, steps []string) {
	seenNode, seenStep := map[string]bool{}, map[string]bool{}
	for _, result := range results {
		if !seenNode[result.Node] {
			seenNode[result.Node] = true

			if result.Node != "" {
				nodes = append(nodes, result.Node)
			}
		}

		if !seenStep[result.Step] {
			seenStep[result.Step] = true
			steps = append(steps, result.Step)
		}
	}

	if seenNode[""] {
		nodes = append(nodes, "")
	}

	return nodes, steps
}

// cellText is "applied ×2 12s"; a dash where the step didn't concern the node.
func cellText(result Result, ran bool) string {
	if !ran {
		return "-"
	}

	text := string(result.Status)

	if result.Attempts > 1 {
		text += fmt.Sprintf(" ×%d", result.Attempts)
	}

	return text + " " + short(result.Duration)
}
