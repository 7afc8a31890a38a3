package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// page is what a terminal shows of a step while it runs.
type page struct {
	look
	width, height int
	// now is the run's clock, wall people's.
	now, wall time.Time
}

// lines are the step's own, then one for each node that has failed or is doing something, as far as there is room; the
// rest is counted. None is wider than the terminal, whose last column is left free: some break a line there.
func (p page) lines(v *view) []string {
	failed, busy := failedOf(v.ended()), v.busy()
	lines := []string{p.heading(v, len(failed))}

	shownFailed, shownBusy := p.share(len(failed), len(busy))
	names := 0

	for _, result := range failed[:shownFailed] {
		names = max(names, breadth(result.Subject()))
	}

	for _, one := range busy[:shownBusy] {
		names = max(names, breadth(Result{Node: one.Node}.Subject()))
	}

	for _, result := range failed[:shownFailed] {
		text := cmp.Or(result.Detail, string(result.Status))
		if result.Err != nil {
			text, _ = explain(result.Err)
		}

		lines = append(lines, p.line(p.mark(Failed), result.Subject(), names, Scrub(text)))
	}

	for _, one := range busy[:shownBusy] {
		lines = append(lines, p.busyLine(one, names))
	}

	if rest := uncounted(len(failed)-shownFailed, busy[shownBusy:]); rest != "" {
		lines = append(lines, "    "+p.glyph("…", "...")+" and "+rest)
	}

	for i, line := range lines {
		lines[i] = p.paintedMark(p.cut(oneLine(line), p.width-1))
	}

	return lines
}

// heading is "verify  61 of 100 nodes done, 1 failed, 12 busy  1m30s".
func (p page) heading(v *view, failed int) string {
	text := p.glyph("▸", ">") + " " + v.step

	if total := len(v.nodes); total > 0 {
		text += fmt.Sprintf("  %d of %s done", len(v.ended()), plural(total, "node"))
	}

	if failed > 0 {
		text += fmt.Sprintf(", %d failed", failed)
	}

	return text + "  " + short(p.wall.Sub(v.began))
}

func (p page) line(mark, subject string, width int, text string) string {
	return fmt.Sprintf("  %s %s%s  %s", mark, subject, strings.Repeat(" ", width-breadth(subject)), text)
}

// busyLine is "cp1  installing  42s of 30m00s". If there is little room, the text is cut, not the time.
func (p page) busyLine(one doing, names int) string {
	time := p.timeOf(one)
	line := p.line(" ", Result{Node: one.Node}.Subject(), names, oneLine(Scrub(one.Text)))

	return p.cut(line, p.width-1-breadth(time)) + time
}

// timeOf is how long a node has been doing something, and how long it may.
func (p page) timeOf(one doing) string {
	if one.Since.IsZero() {
		return ""
	}

	elapsed := lasts(one.Progress, p.now)
	text := "  " + short(elapsed)

	if more := left(one.Progress, one.at, p.now); more > 0 {
		text += " of " + short(elapsed+more)
	}

	return text + p.emulatedTime()
}

func oneLine(text string) string { return visible(strings.ReplaceAll(text, "\n", " ")) }

// share is how many lines of failed and of busy nodes find room, beside the heading, the line of the rest and the
// cursor.
func (p page) share(failed, busy int) (shownFailed, shownBusy int) {
	room := max(2, p.height-2)
	if failed+busy <= room {
		return failed, busy
	}

	room--
	shownFailed = min(failed, max(room/2, room-busy))

	return shownFailed, min(busy, room-shownFailed)
}

// uncounted is "3 more failed, 12 more: 8 installing, 4 no answer".
func uncounted(failed int, busy []doing) string {
	var parts []string
	if failed > 0 {
		parts = append(parts, fmt.Sprintf("%d more failed", failed))
	}

	if len(busy) > 0 {
		parts = append(parts, fmt.Sprintf("%d more: %s", len(busy), countTexts(busy)))
	}

	return strings.Join(parts, ", ")
}

// countTexts counts what nodes are doing, the most frequent first.
func countTexts(busy []doing) string {
	counts := map[string]int{}
	for _, one := range busy {
		counts[Scrub(one.Text)]++
	}

	var texts []string
	for text := range counts {
		texts = append(texts, text)
	}

	slices.SortFunc(texts, func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	})

	for i, text := range texts {
		texts[i] = fmt.Sprintf("%d %s", counts[text], text)
	}

	return strings.Join(texts, ", ")
}

func failedOf(results []Result) []Result {
	return slices.DeleteFunc(results, func(result Result) bool { return !result.Status.Bad() })
}
