package layout_test

import (
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/test/golden"
	"github.com/talos-mage/talos-mage/internal/test/picture"
)

// box is a part of the architecture's picture: what lies in some folders. What it imports, and how far down that puts
// it, is read from the code; its column is where arrows cross no box.
type box struct {
	picture.Box
	folders []string
}

var boxes = []box{
	{picture.Box{Name: "cmd/talos-mage", Says: "the program", Column: 1}, []string{"cmd"}},
	{picture.Box{Name: "magefiles", Says: "what mage runs here", Column: 2.5, Aside: true}, []string{"magefiles"}},
	{picture.Box{Name: "targets", Says: "what people type", Column: 1}, []string{"targets"}},
	{picture.Box{Name: "recipe", Says: "what Go programs import"}, []string{"recipe"}},
	{
		picture.Box{Name: "dev/rehearsal", Says: "demo", Column: 2, Aside: true},
		[]string{"internal/dev/rehearsal"},
	},
	{
		picture.Box{Name: "dev/devtargets", Says: "emulator:up, chaos, bench, dist", Column: 3, Aside: true},
		[]string{"internal/dev/devtargets", "internal/dev/chaos", "internal/dev/bench", "internal/dev/dist"},
	},
	{picture.Box{Name: "cli", Says: "one call of the program", Column: 0.5}, []string{"internal/cli"}},
	{
		picture.Box{Name: "dev/emulator", Says: "Talos nodes in this process", Column: 3, Aside: true},
		[]string{"internal/dev/emulator", "internal/dev/clusterfiles", "internal/dev/thrift"},
	},
	{picture.Box{Name: "steps", Says: "the parts of a bring-up", Column: 0.5}, []string{"internal/steps"}},
	{picture.Box{Name: "cli/settings", Says: "every setting, in one struct"}, []string{"internal/cli/settings"}},
	{picture.Box{Name: "kube", Says: "the new cluster's Kubernetes API", Column: 1}, []string{"internal/kube"}},
	{picture.Box{Name: "discover", Says: "the machines of some networks", Column: 2}, []string{"internal/discover"}},
	{
		picture.Box{Name: "machineconfig/generate", Says: "renders and migrates configs", Column: 3},
		[]string{"internal/machineconfig/generate", "internal/machineconfig/migrate"},
	},
	{picture.Box{Name: "check", Says: "what can be proven wrong", Column: 2}, []string{"internal/check"}},
	{picture.Box{Name: "talos", Says: "one node's API", Column: 1.5}, []string{"internal/talos"}},
	{picture.Box{Name: "cluster", Says: "what the files declare", Column: 2.75}, []string{"internal/cluster"}},
	{picture.Box{Name: "report", Says: "how what happened is shown", Column: 2.25}, []string{"internal/report"}},
	{
		picture.Box{Name: "machineconfig", Says: "machine configs in either form", Column: 3.25},
		[]string{"internal/machineconfig"},
	},
}

// The picture on the architecture page is what the code imports. Arrows that follow from others are left out.
func TestThePictureShowsTheImports(t *testing.T) {
	t.Parallel()

	imports := importsOfBoxes(t)
	drawn := make([]picture.Box, len(boxes))

	var arrows [][2]int

	for from, box := range boxes {
		require.NotContains(t, imports.reach(from), from, "%s imports itself by way of others: it needs two boxes", box.Name)

		drawn[from] = box.Box
		drawn[from].Row = imports.row(from)

		for _, to := range imports[from] {
			if !imports.follows(from, to) {
				arrows = append(arrows, [2]int{from, to})
			}
		}
	}

	var names []string
	for _, leaf := range leaves {
		names = append(names, strings.TrimPrefix(leaf, "internal/"))
	}

	golden.Assert(t, filepath.Join("..", "..", "..", "docs", "pictures", "architecture.svg"),
		picture.OfBoxes("What imports what in talos-mage", drawn, arrows,
			picture.Box{Name: strings.Join(names, " · "), Says: "leaves, which every package may import"}))
}

// boxGraph has for each box those that it imports.
type boxGraph [][]int

func importsOfBoxes(t *testing.T) boxGraph {
	t.Helper()

	graph := make(boxGraph, len(boxes))

	for file, imports := range importsOf(t, filepath.Join("..", "..", "..")) {
		if isLeaf(path.Dir(file)) || isBelow(file, "internal/test") {
			continue
		}

		from := boxOf(t, path.Dir(file))

		for _, imported := range imports {
			ours, ok := strings.CutPrefix(imported, module)
			if !ok || isLeaf(ours) {
				continue
			}

			if to := boxOf(t, ours); to != from && !slices.Contains(graph[from], to) {
				graph[from] = append(graph[from], to)
			}
		}
	}

	for _, imports := range graph {
		slices.Sort(imports)
	}

	return graph
}

// boxOf is the box that a package is in: that of the longest folder.
func boxOf(t *testing.T, pkg string) int {
	t.Helper()

	found, longest := -1, ""

	for i, box := range boxes {
		for _, folder := range box.folders {
			if isBelow(pkg, folder) && len(folder) > len(longest) {
				found, longest = i, folder
			}
		}
	}

	require.NotEqual(t, -1, found, "%s is in no box of the picture", pkg)

	return found
}

// reach are the boxes that one imports, at any remove.
func (g boxGraph) reach(from int) []int {
	var reached []int

	waiting := slices.Clone(g[from])
	for len(waiting) > 0 {
		next := waiting[0]
		waiting = waiting[1:]

		if !slices.Contains(reached, next) {
			reached = append(reached, next)
			waiting = append(waiting, g[next]...)
		}
	}

	return reached
}

// follows reports whether a box is reached by way of another import, too.
func (g boxGraph) follows(from, to int) bool {
	return slices.ContainsFunc(g[from], func(via int) bool { return slices.Contains(g.reach(via), to) })
}

// row is how far down a box is: below all that import it.
func (g boxGraph) row(box int) int {
	row := 0

	for from, imports := range g {
		if slices.Contains(imports, box) {
			row = max(row, 1+g.row(from))
		}
	}

	return row
}
