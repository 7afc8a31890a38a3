package report

import (
	"slices"
	"strings"
	"time"
)

// stillEvery is how often a node that waits is spoken of where there is no terminal. It is wall time: it is about
// readers, not nodes.
const stillEvery = 10 * time.Second

// stillLines knows what each node is doing and when that was last said.
type stillLines struct {
	now   func() time.Time // the run's clock
	nodes map[string]*waiting
}

// waiting is a node that does something.
type waiting struct {
	step     string
	progress Progress
	at       time.Time // when progress came, on the run's clock
	said     time.Time // when something was last said, or the wait began, on the wall clock
}

// sign is one sign of life.
type sign struct {
	step, node, text string
	lasts, left      time.Duration
}

func newStillLines(now func() time.Time) *stillLines {
	return &stillLines{now: now, nodes: map[string]*waiting{}}
}

// update takes in what a node is doing; wall is the wall clock's time.
func (s *stillLines) update(step string, progress Progress, wall time.Time) {
	node, known := s.nodes[progress.Node]
	if !known {
		node = &waiting{said: wall}
		s.nodes[progress.Node] = node
	}

	node.step, node.progress, node.at = step, progress, s.now()
}

func (s *stillLines) done(node string) { delete(s.nodes, node) }

func (s *stillLines) clear() { clear(s.nodes) }

// due are the nodes of which nothing was said for stillEvery, in the order of their names; they now count as said.
func (s *stillLines) due(wall time.Time) []sign {
	var signs []sign
	for name, node := range s.nodes {
		if wall.Sub(node.said) < stillEvery {
			continue
		}

		node.said = wall
		signs = append(signs, sign{
			step: node.step, node: name, text: node.progress.Text,
			lasts: lasts(node.progress, s.now()), left: left(node.progress, node.at, s.now()),
		})
	}

	slices.SortFunc(signs, func(a, b sign) int { return strings.Compare(a.node, b.node) })

	return signs
}
