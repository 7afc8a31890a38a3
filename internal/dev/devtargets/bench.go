package devtargets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/magefile/mage/mg"

	"github.com/talos-mage/talos-mage/internal/dev/bench"
)

// performancePage is where the result is kept.
const performancePage = "docs/performance.md"

// Bench measures this program against the loop over talosctl that it replaced, on emulated clusters.
//
// -nodes is how many nodes each has (6,24,100 by default), -scale how many times as fast time passes for them (4).
// -write puts the result on docs/performance.md.
func Bench(ctx context.Context, nodes *string, scale *int, write *bool) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()

	options := bench.Options{Nodes: bench.DefaultNodes(), Scale: bench.DefaultScale, Root: ".", Path: os.Getenv("PATH"),
		Told: tellBench}
	writing := write != nil && *write

	if nodes != nil {
		var err error
		if options.Nodes, err = numbers(*nodes); err != nil {
			return mg.Fatal(2, err.Error())
		}
	}

	for _, number := range options.Nodes {
		if writing && !slices.Contains(bench.DefaultNodes(), number) {
			return mg.Fatal(2, fmt.Sprintf("%s has no place for %d nodes: -write takes the sizes %v", performancePage, number,
				bench.DefaultNodes()))
		}
	}

	if scale != nil {
		options.Scale = *scale
	}

	result, err := bench.Measure(ctx, options)

	switch {
	case errors.Is(err, bench.ErrUnusable):
		return mg.Fatal(2, err.Error())
	case err != nil && ctx.Err() != nil:
		return mg.Fatal(1, "stopped before all was measured")
	case err != nil:
		return mg.Fatal(1, err.Error())
	}

	fmt.Print(result.Markdown())

	if !writing {
		return nil
	}

	if err := result.Update(performancePage); err != nil {
		return mg.Fatal(1, err.Error())
	}

	fmt.Printf("\nwritten to %s\n", performancePage)

	return nil
}

// tellBench shows what is being measured.
func tellBench(progress bench.Progress) {
	fmt.Fprintf(os.Stderr, "%s: %s of at most %s\n", progress.Doing, progress.Elapsed.Round(time.Second), progress.Limit)
}

// numbers are those of a list with commas.
func numbers(list string) ([]int, error) {
	var found []int

	for text := range strings.SplitSeq(list, ",") {
		number, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("-nodes takes numbers with commas between them, as in 6,24; %q is none", text)
		}

		found = append(found, number)
	}

	return found, nil
}
