package bench

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/base/atomicfile"
)

// What a bring-up of the largest size of the page is to come to.
const (
	// mostWall is of the floor.
	mostWall = 1.05
	// leastProcessor is how many times that of this program the loop's processor time is.
	leastProcessor = 20
	mostBack       = time.Second
)

// Markdown is the result as the page shows it.
func (r *Result) Markdown() string {
	var text strings.Builder

	fmt.Fprintf(&text, "%d processors with a load of %s before, talosctl %s, nodes of Talos %s whose time passes %d "+
		"times as fast.\n\n", r.Processors, r.Load, r.Talosctl, talosVersion, r.Scale)
	text.WriteString("| nodes | brought up by | time | of the floor | processor | of ours | memory | of ours | " +
		"up at its end |\n|---:|---|---:|---:|---:|---:|---:|---:|---:|\n")

	for _, size := range r.Sizes {
		fmt.Fprintf(&text, "| %d | nobody: the floor | %s | 1.00 | | | | | |\n", size.Nodes, seconds(size.Floor))

		for _, run := range size.Runs {
			own := size.ours()

			fmt.Fprintf(&text, "| %d | %s | %s | %.2f | %s | %.1f | %d MB | %.1f | %d |\n", size.Nodes, run.Way,
				seconds(run.Wall), ratio(run.Wall, size.Floor), seconds(run.Processor), ratio(run.Processor, own.Processor),
				run.Resident>>20, ratio(run.Resident, own.Resident), run.Up)
		}
	}

	text.WriteString("\n")

	if len(r.Sizes) > 0 {
		r.Sizes[len(r.Sizes)-1].writeTargets(&text)
	}

	return text.String()
}

// writeTargets says what came of the targets.
func (s Size) writeTargets(text *strings.Builder) {
	own := s.ours()
	wall := ratio(own.Wall, s.Floor)
	processor := ratio(s.Runs[0].Processor, own.Processor)

	fmt.Fprintf(text, "Targets, at %d nodes:\n\n", s.Nodes)
	fmt.Fprintf(text, "- at most %.2f of the floor: %.2f, %s\n", mostWall, wall, met(wall <= mostWall))
	fmt.Fprintf(text, "- at least %d times less processor time than the loop: %.1f, %s\n", leastProcessor, processor,
		met(processor >= leastProcessor))
	fmt.Fprintf(text, "- a node that is back is verified within %s of its time, at the median: %s, %s\n",
		seconds(mostBack), seconds(own.Back), met(own.Back < mostBack))
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

// What the result stands between on the page.
const (
	pageBegin = "<!-- go tool mage bench -write: from here -->\n"
	pageEnd   = "<!-- go tool mage bench -write: to here -->\n"
)

// Update puts the result in the place of the last one on the page.
func (r *Result) Update(page string) error {
	text, err := os.ReadFile(page) //nolint:gosec // this repository's
	if err != nil {
		return fmt.Errorf("read page: %w", err)
	}

	before, rest, begins := bytes.Cut(text, []byte(pageBegin))
	_, after, ends := bytes.Cut(rest, []byte(pageEnd))

	if !begins || !ends {
		return fmt.Errorf("update %s: it lacks one of the lines %q and %q, between which the result goes", page,
			strings.TrimSpace(pageBegin), strings.TrimSpace(pageEnd))
	}

	made := string(before) + pageBegin + "\n" + r.Markdown() + "\n" + pageEnd + string(after)

	return atomicfile.WriteFile(page, []byte(made), publicFile) //nolint:wrapcheck // it names the file
}

// publicFile is the mode of a page.
const publicFile = 0o644
