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

// TestABringUpOfManyNodesLeavesNothingBehind also bounds what it holds meanwhile by how many nodes it serves at once, not by how many there are.
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

// What a bring-up of a thousand nodes may cost.
const (
	mostWall      = 1.15 // × the ideal
	mostProcessor = 15.0 // ms for each node
	mostResident  = 400.0
)

// BenchmarkApplyAndVerify gives nodes that take 3 s each their configs, 50 at once, and sees them boot. Ideal is a program that takes no time at all.
func BenchmarkApplyAndVerify(b *testing.B) {
	const each = 3 * time.Second

	for _, count := range []int{10, 100, 1000} {
		b.Run(strconv.Itoa(count), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()

				nodes := startNodes(b, count, each)

				b.StartTimer()

				tool := nodes.tool(b, parallel)

				b.StopTimer()

				theirs := nodes.stop(b)
				ideal := time.Duration((count+parallel-1)/parallel) * each
				wall, processor := float64(tool.Wall)/float64(ideal), perNode(tool.Processor, count)

				b.ReportMetric(tool.Wall.Seconds(), "wall-s")
				b.ReportMetric(wall, "×ideal")
				b.ReportMetric(processor, "cpu-ms/node")
				b.ReportMetric(tool.Resident, "resident-MB")
				b.ReportMetric(float64(tool.Goroutines), "goroutines")
				b.ReportMetric(float64(tool.Descriptors), "descriptors")
				b.ReportMetric(perNode(theirs.Processor, count), "nodes-cpu-ms/node")
				b.ReportMetric(theirs.Resident, "nodes-resident-MB")

				if count == 1000 && (wall > mostWall || processor > mostProcessor || tool.Resident > mostResident) {
					b.Errorf("%.2f times the ideal, %.1f ms a node, %.0f MB: more than %.2f, %.0f, %.0f; both processes need the whole of two processors",
						wall, processor, tool.Resident, mostWall, mostProcessor, mostResident)
				}

				b.StartTimer()
			}
		})
	}
}

func perNode(processor time.Duration, count int) float64 {
	return float64(processor.Microseconds()) / 1000 / float64(count)
}
