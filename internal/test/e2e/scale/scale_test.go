//go:build linux

package scale_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// parallel is how many nodes get their configs at once.
const parallel = 50

// TestABringUpOfManyNodesLeavesNothingBehind also bounds what it holds meanwhile by how many nodes it serves at once,
// not by how many there are.
func TestABringUpOfManyNodesLeavesNothingBehind(t *testing.T) {
	t.Parallel()

	for _, count := range []int{10, 100} {
		t.Run(strconv.Itoa(count), func(t *testing.T) {
			t.Parallel()

			nodes := startNodes(t, count, 0)
			used := nodes.tool(t, parallel)
			nodes.stop(t)

			require.Zero(t, used.DescriptorsLeft, "descriptors")
			require.Zero(t, used.GoroutinesLeft, "goroutines")
			require.Less(t, used.Descriptors, 3*parallel)
			require.Less(t, used.Goroutines, 40*parallel)
			require.Less(t, used.Resident, 200.0, "MB")
		})
	}
}

// each is how long a node takes over its config.
const each = 3 * time.Second

// BenchmarkApplyAndVerify gives nodes that take 3 s each their configs, 50 at once, and sees them boot. Ideal is a
// program that takes no time at all.
func BenchmarkApplyAndVerify(b *testing.B) {
	for _, count := range []int{10, 100, 1000} {
		b.Run(strconv.Itoa(count), func(b *testing.B) {
			for b.Loop() {
				measure(b, count).report(b)
			}
		})
	}
}

// cost is what a bring-up took of the tool and of the process with the nodes.
type cost struct {
	count int
	tool  outcome
	nodes usage
}

// measure brings nodes up that take 3 s each.
func measure(b *testing.B, count int) cost {
	b.Helper()

	b.StopTimer()
	defer b.StartTimer()

	nodes := startNodes(b, count, each)

	b.StartTimer()

	tool := nodes.tool(b, parallel)

	b.StopTimer()

	return cost{count: count, tool: tool, nodes: nodes.stop(b)}
}

// wall is the time it took, in that of a program that takes none itself.
func (c cost) wall() float64 {
	return float64(c.tool.Wall) / float64(time.Duration((c.count+parallel-1)/parallel)*each)
}

func (c cost) report(b *testing.B) {
	b.Helper()

	b.ReportMetric(c.tool.Wall.Seconds(), "wall-s")
	b.ReportMetric(c.wall(), "×ideal")
	b.ReportMetric(perNode(c.tool.Processor, c.count), "cpu-ms/node")
	b.ReportMetric(c.tool.Resident, "resident-MB")
	b.ReportMetric(float64(c.tool.Goroutines), "goroutines")
	b.ReportMetric(float64(c.tool.Descriptors), "descriptors")
	b.ReportMetric(perNode(c.nodes.Processor, c.count), "nodes-cpu-ms/node")
	b.ReportMetric(c.nodes.Resident, "nodes-resident-MB")
}

func perNode(processor time.Duration, count int) float64 {
	return float64(processor.Microseconds()) / 1000 / float64(count)
}
