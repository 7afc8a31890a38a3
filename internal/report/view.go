package report

import (
	"slices"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// view is what is known of the step that runs: its nodes, what they are doing, and what has come of it so far. It takes
// events, and knows nothing of how they are shown.
type view struct {
	step     string
	nodes    []string
	began    time.Time // on the wall clock; zero between two steps
	doing    map[string]doing
	findings []diagnosis.Finding
	results  []Result
}

// doing is what a node does, and when that was said, on the run's clock.
type doing struct {
	Progress
	at time.Time
}

func newView(step string, nodes []string, began time.Time) *view {
	return &view{step: step, nodes: nodes, began: began, doing: map[string]doing{}}
}

// progress takes in what a node is doing.
func (v *view) progress(progress Progress, now time.Time) {
	if progress.Text == "" {
		delete(v.doing, progress.Node)
		return
	}

	v.doing[progress.Node] = doing{progress, now}
}

// result takes in how the step ended for a node. What came out later of one counts.
func (v *view) result(result Result) {
	v.results = slices.DeleteFunc(v.results, func(earlier Result) bool {
		return result.Node != "" && earlier.Node == result.Node && earlier.Step == result.Step
	})
	v.results = append(v.results, result)
	delete(v.doing, result.Node)
}

// busy are those that are doing something, in their order: the cluster as a whole comes last.
func (v *view) busy() []doing {
	var all []doing
	for _, one := range v.doing {
		all = append(all, one)
	}

	slices.SortFunc(all, func(a, b doing) int {
		if places := place(a.Node, v.nodes) - place(b.Node, v.nodes); places != 0 {
			return places
		}

		return strings.Compare(a.Node, b.Node)
	})

	return all
}

// ended are the results of nodes that are done with the step, and have nothing else to do in it.
func (v *view) ended() []Result {
	var ended []Result
	for _, result := range inOrder(v.results, v.nodes) {
		if _, busy := v.doing[result.Node]; !busy && slices.Contains(v.nodes, result.Node) {
			ended = append(ended, result)
		}
	}

	return ended
}

// lasts is how long a progress has lasted by now.
func lasts(progress Progress, now time.Time) time.Duration {
	if progress.Since.IsZero() {
		return 0
	}

	return now.Sub(progress.Since)
}

// left is how long a progress that came at a time may still last by now; 0 when that is unknown or over.
func left(progress Progress, at, now time.Time) time.Duration {
	if progress.Left <= 0 {
		return 0
	}

	return max(0, progress.Left-now.Sub(at))
}
