package chaos

import (
	"context"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/talos-mage/talos-mage/internal/dev/thrift"
)

// Campaign is the plans of many seeds.
type Campaign struct {
	Seeds []uint64
	// Parallel is how many plans are run at once. Default: some for each processor, since they wait most of the time.
	Parallel int
	Options  Options
	// Done is called after each plan, one at a time.
	Done func(Outcome)
}

// perProcessor is how many plans at once keep a processor busy.
const perProcessor = 6

// Seeds are so many in a row.
func Seeds(first uint64, count int) []uint64 {
	seeds := make([]uint64, 0, count)
	for i := range count {
		seeds = append(seeds, first+uint64(i)) //nolint:gosec // never negative
	}

	return seeds
}

// Run runs the plans. It stops early when the context does, and tells what was done up to then.
func (c Campaign) Run(ctx context.Context) *Summary {
	if c.Parallel == 0 {
		c.Parallel = perProcessor * runtime.GOMAXPROCS(0)
	}

	thrift.Begin()

	summary := &Summary{began: time.Now(), Incidents: map[string]int{}, Codes: map[int]int{}, Second: map[int]int{},
		Violations: map[string]int{}}
	outcomes := make(chan Outcome)
	workers := pool.New().WithMaxGoroutines(c.Parallel)

	go func() {
		defer close(outcomes)

		for _, seed := range c.Seeds {
			if ctx.Err() != nil {
				break
			}

			workers.Go(func() {
				if outcome := Play(ctx, NewPlan(seed), c.Options); ctx.Err() == nil {
					outcomes <- outcome
				}
			})
		}

		workers.Wait()
	}()

	for outcome := range outcomes {
		summary.add(outcome)

		if c.Done != nil {
			c.Done(outcome)
		}
	}

	return summary
}

// Summary counts what a campaign injected and what came of it.
type Summary struct {
	Plans int
	// Failed are the outcomes that did not hold.
	Failed []Outcome
	// Incidents count those that happened, by kind.
	Incidents map[string]int
	// Codes count the exit codes of the runs before the healing, Second those of the run after it.
	Codes, Second map[int]int
	// Violations count what did not hold, by check.
	Violations map[string]int

	began time.Time
}

func (s *Summary) add(outcome Outcome) {
	s.Plans++

	if outcome.Failed() {
		s.Failed = append(s.Failed, outcome)
	}

	for _, violation := range outcome.Violations {
		s.Violations[violation.Check]++
	}

	if outcome.History == nil {
		return
	}

	for _, strike := range outcome.History.Strikes {
		s.Incidents[strike.Kind]++
	}

	for _, run := range outcome.History.First {
		s.Codes[int(run.Code)]++

		if run.Interrupted {
			s.Incidents["Ctrl-C"]++
		}
	}

	if outcome.History.Crowded {
		s.Incidents["second operator"]++
	}

	if care := outcome.History.Care; care != nil {
		s.Incidents[care.Operation.Kind]++

		for _, look := range care.Looks {
			s.Incidents[look.Target]++
		}

		if care.Operation.Incident != nil {
			s.Incidents[care.Operation.Incident.Kind]++
		}
	}

	if outcome.History.Again != nil {
		s.Second[int(outcome.History.Again.Code)]++
	}
}

// Write tells the summary to people.
func (s *Summary) Write(out io.Writer) {
	total := 0

	for _, count := range s.Incidents {
		total += count
	}

	fmt.Fprintf(out, "%s in %s, %d incidents, %s\n", counted(s.Plans, "plan"), time.Since(s.began).Round(time.Second),
		total, counted(len(s.Failed), "violated plan"))
	fmt.Fprintln(out, "\nincidents that happened:")

	for _, kind := range slices.Sorted(maps.Keys(s.Incidents)) {
		fmt.Fprintf(out, "  %-24s %6d\n", kind, s.Incidents[kind])
	}

	fmt.Fprintln(out, "\nviolations:")

	for _, name := range Checks() {
		fmt.Fprintf(out, "  %-24s %6d\n", name, s.Violations[name])
	}

	fmt.Fprintln(out, "\nexit codes while things went wrong, and after the healing:")

	for _, code := range slices.Sorted(maps.Keys(s.Codes)) {
		fmt.Fprintf(out, "  %-3d %6d %6d\n", code, s.Codes[code], s.Second[code])
	}
}

// Replay is the command that runs one plan again.
func Replay(seed uint64) string { return fmt.Sprintf("go tool mage chaos -seed=%d -runs=1", seed) }

// Brief names the plan, what did not hold, and the command that replays it.
func (o Outcome) Brief() string {
	var brief strings.Builder

	fmt.Fprintf(&brief, "seed %d failed. Replay: %s\n", o.Plan.Seed, Replay(o.Plan.Seed))

	if o.Err != nil {
		fmt.Fprintf(&brief, "it could not be run to its end: %s\n", o.Err)
	}

	for _, violation := range o.Violations {
		fmt.Fprintf(&brief, "violated: %s: %s\n", violation.Check, violation.Text)
	}

	return brief.String()
}

// Write tells people what did not hold: the command that replays it, the plan in plain words, and what the program
// wrote.
func (o Outcome) Write(out io.Writer) {
	fmt.Fprintf(out, "%s\n%s\n", o.Brief(), indented(o.Plan.String()))

	if o.History == nil {
		return
	}

	for _, name := range slices.Sorted(maps.Keys(o.History.Unhealthy)) {
		fmt.Fprintf(out, "before the healing %s was not healthy: %s\n", name, o.History.Unhealthy[name])
	}

	for _, run := range o.History.runs() {
		title := fmt.Sprintf("%s operator", run.Operator)
		if run.Healed {
			title = "after the healing"
		}

		title += ", " + run.Target

		fmt.Fprintf(out, "\n--- %s, exit code %d\n%s%s\n", title, run.Code, run.Output, run.Message)
	}
}

func indented(text string) string {
	var lines strings.Builder

	for line := range strings.Lines(text) {
		lines.WriteString("  " + line)
	}

	return lines.String()
}
