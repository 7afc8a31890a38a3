package bench

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/base/atomicfile"
)

// What a bring-up of so many nodes is to come to.
const (
	targetNodes = 100
	// mostWall is of the floor.
	mostWall = 1.05
	// leastProcessor is how many times that of this program the loop's processor time is.
	leastProcessor = 20
	mostBack       = time.Second
)

// Markdown is the result as the page shows it.
func (r *Result) Markdown() string {
	var text strings.Builder

	for _, size := range r.Sizes {
		r.write(&text, size)
	}

	return text.String()
}

// write shows one size.
func (r *Result) write(text *strings.Builder, size Size) {
	own := size.ours()

	fmt.Fprintf(text, "\n### %d nodes\n\n%d processors with a load of %s before, talosctl %s, nodes of Talos %s whose "+
		"time passes × %d.\n\n", size.Nodes, r.Processors, r.Load, r.Talosctl, talosVersion, r.Scale)
	text.WriteString("| brought up by | time | of the floor | processor | of ours | memory | of ours | up at its end |\n" +
		"|---|---:|---:|---:|---:|---:|---:|---:|\n")
	fmt.Fprintf(text, "| nobody: the floor | %s | 1.00 | | | | | |\n", seconds(size.Floor))

	for _, run := range size.Runs {
		fmt.Fprintf(text, "| %s | %s | %.2f | %s | %.1f | %d MB | %.1f | %d |\n", run.Way,
			seconds(run.Wall), ratio(run.Wall, size.Floor), seconds(run.Processor), ratio(run.Processor, own.Processor),
			run.Resident>>20, ratio(run.Resident, own.Resident), run.Up)
	}

	fmt.Fprintf(text, "\nAt the median talos-mage verified a node %.2f s of its time after it was back.\n",
		own.Back.Seconds())

	if size.Nodes == targetNodes {
		size.writeTargets(text)
	}
}

// writeTargets says what came of the targets.
func (s Size) writeTargets(text *strings.Builder) {
	own := s.ours()
	wall := ratio(own.Wall, s.Floor)
	processor := ratio(s.Runs[0].Processor, own.Processor)

	fmt.Fprintf(text, "\nTargets:\n\n- at most %.2f of the floor: %.2f, %s\n", mostWall, wall, met(wall <= mostWall))
	fmt.Fprintf(text, "- at least %d times less processor time than the loop: %.1f, %s\n", leastProcessor, processor,
		met(processor >= leastProcessor))
	fmt.Fprintf(text, "- at the median verified less than %.0f s after it was back: %.2f s, %s\n", mostBack.Seconds(),
		own.Back.Seconds(), met(own.Back < mostBack))
}

func (s Size) ours() Run { return s.Runs[len(s.Runs)-1] }

func met(is bool) string {
	if is {
		return "met"
	}

	return "missed"
}

func ratio[T time.Duration | int64](a, b T) float64 { return float64(a) / float64(max(b, 1)) }

func seconds(took time.Duration) string { return fmt.Sprintf("%.1f s", took.Seconds()) }

// Update puts the result in the place of the last one on the page, which has one for each size.
func (r *Result) Update(page string) error {
	text, err := os.ReadFile(page) //nolint:gosec // this repository's
	if err != nil {
		return fmt.Errorf("read page: %w", err)
	}

	renewed := string(text)

	for _, size := range r.Sizes {
		begin, end := fmt.Sprintf("<!-- bench: %d nodes -->\n", size.Nodes), "\n<!-- bench: end -->\n"

		before, rest, begins := strings.Cut(renewed, begin)
		_, after, ends := strings.Cut(rest, end)

		if !begins || !ends {
			return fmt.Errorf("update %s: the result for %d nodes goes between lines %q and %q, and it lacks them", page,
				size.Nodes, strings.TrimSpace(begin), strings.TrimSpace(end))
		}

		var made strings.Builder

		r.write(&made, size)
		renewed = before + begin + made.String() + end + after
	}

	return atomicfile.WriteFile(page, []byte(renewed), publicFile) //nolint:wrapcheck // it names the file
}

// publicFile is the mode of a page.
const publicFile = 0o644
