package record

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
)

// Rows are runs as a table, a row each.
func Rows(runs []*Run) [][]string {
	rows := [][]string{{"run", "target", "took", "nodes", "outcome"}}

	for _, run := range runs {
		outcome := run.Word()
		if run.Outcome != nil && run.Outcome.Code != diagnosis.ExitOK {
			outcome = fmt.Sprintf("%s, code %d", outcome, run.Outcome.Code)
		}

		rows = append(rows, []string{run.Name, cmp.Or(run.Target, "-"), report.Short(run.Took()),
			strconv.Itoa(len(run.Nodes)), outcome})
	}

	return rows
}

// sum is one outcome of a step, with its cause.
type sum struct{ step, outcome, id string }

// counts are how often each was met, and in which runs.
type counts struct {
	order []sum
	times map[sum]int
	in    map[sum]map[string]bool
}

func (c *counts) add(run *Run, line report.Line, outcome string) {
	key := sum{line.Step, outcome, line.ID}
	if c.times[key]++; c.in[key] == nil {
		c.in[key] = map[string]bool{}
		c.order = append(c.order, key)
	}

	c.in[key][run.Name] = true
}

// count takes in how steps ended for nodes, and what was found wrong and is not what a node's result says too.
func (c *counts) count(run *Run) {
	for _, line := range run.Results {
		c.add(run, line, string(line.Status))
	}

	for _, line := range run.Findings {
		bad := line.Severity == diagnosis.Warning.String() || line.Severity == diagnosis.Failure.String()
		if bad && !run.hasResult(line) {
			c.add(run, line, line.Severity)
		}
	}
}

// inOrder are the sums by the place of their step, and the frequent ones first.
func (c *counts) inOrder() []sum {
	var steps []string
	for _, key := range c.order {
		steps = append(steps, key.step)
	}

	slices.SortStableFunc(c.order, func(a, b sum) int {
		return cmp.Or(slices.Index(steps, a.step)-slices.Index(steps, b.step), c.times[b]-c.times[a])
	})

	return c.order
}

// Sums are the outcomes by step and cause, over all the runs.
func Sums(runs []*Run) [][]string {
	all := counts{times: map[sum]int{}, in: map[sum]map[string]bool{}}
	for _, run := range runs {
		all.count(run)
	}

	if len(all.order) == 0 {
		return nil
	}

	rows := [][]string{{"step", "outcome", "times", "runs", "cause"}}

	for _, key := range all.inOrder() {
		rows = append(rows, []string{key.step, key.outcome, strconv.Itoa(all.times[key]), strconv.Itoa(len(all.in[key])),
			key.cause()})
	}

	return rows
}

func (s sum) cause() string {
	entry, known := diagnosis.Lookup(diagnosis.ID(s.id))
	if !known {
		return "-"
	}

	return s.id + " " + entry.Title
}

// Headline is a run in one line.
func (r *Run) Headline() string {
	line := fmt.Sprintf("run %s: mage %s, began %s UTC, took %s, %s", r.Name, r.Target,
		r.Began.UTC().Format(time.DateTime), report.Short(r.Took()), r.Word())
	if r.Outcome != nil && r.Outcome.Code != diagnosis.ExitOK {
		line += fmt.Sprintf(", code %d", r.Outcome.Code)
	}

	return line
}
