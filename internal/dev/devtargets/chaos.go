// Package devtargets holds the Mage targets of this repository alone: what its checks run.
package devtargets

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/magefile/mage/mg"

	"github.com/talos-mage/talos-mage/internal/dev/chaos"
)

const (
	// chaosRuns is how many plans are run when nobody says.
	chaosRuns = 2000
	// chaosProgress is how often the progress is told.
	chaosProgress = 5 * time.Second
)

// Chaos brings random clusters of emulated nodes up while random things go wrong, heals them, runs the recipe again,
// and checks what the nodes recorded.
//
// -runs is how many (2000 by default), -seed the first one's seed; the others follow it. A run that fails says how to
// repeat it alone.
func Chaos(ctx context.Context, runs, seed *int) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()

	count, first := chaosRuns, uint64(time.Now().UnixNano()/int64(time.Millisecond)) //nolint:gosec // after 1970

	if runs != nil {
		count = *runs
	}

	if seed != nil {
		first = uint64(*seed) //nolint:gosec // any number is a seed
	}

	fmt.Printf("%d plans from seed %d on\n", count, first)

	done, told := 0, time.Now()

	var failed []chaos.Outcome

	summary := chaos.Campaign{Seeds: chaos.Seeds(first, count), Done: func(outcome chaos.Outcome) {
		done++

		if outcome.Failed() {
			failed = append(failed, outcome)

			outcome.Write(os.Stdout)
		}

		if time.Since(told) > chaosProgress {
			told = time.Now()

			fmt.Fprintf(os.Stderr, "%d of %d plans, %d violated\n", done, count, len(failed))
		}
	}}.Run(ctx)

	fmt.Println()
	summary.Write(os.Stdout)

	// Said again, in a line each: of a long output the end is read first.
	for _, outcome := range failed {
		fmt.Printf("\n%s", outcome.Brief())
	}

	switch {
	case len(failed) > 0:
		return mg.Fatal(1, fmt.Sprintf("%d of %d plans violated what must hold", len(failed), done))
	case ctx.Err() != nil:
		return mg.Fatal(1, "stopped before all plans were run")
	default:
		return nil
	}
}
