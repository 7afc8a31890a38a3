package report

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/vbauerster/cupwriter"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// liveLines are the lines at the bottom of a terminal while a step runs: one for each node that is doing something, and
// one for the step. They are not safe for concurrent use; drawing happens in goroutines of its own, which see only
// atomic values.
type liveLines struct {
	out   io.Writer
	bars  *mpb.Progress
	now   func() time.Time
	nodes []string
	width int // of the longest name
	lines map[string]*liveLine
	step  *mpb.Bar
	ended *atomic.Int64 // nodes that are done
}

// liveLine is a node's line.
type liveLine struct {
	bar   *mpb.Bar
	state atomic.Pointer[liveState]
}

// liveState is what a line shows.
type liveState struct {
	progress Progress
	at       time.Time // when it came, on the run's clock
}

func newLiveLines(out *os.File, step string, nodes []string, now func() time.Time) *liveLines {
	l := &liveLines{
		out: out, now: now, nodes: nodes, lines: map[string]*liveLine{}, ended: new(atomic.Int64),
		// The queue must hold every bar that is drawn at once.
		bars: mpb.New(mpb.WithConsoleWriter(drawnFromTheLeft(out)), mpb.WithQueueLen(len(nodes)+64)),
	}

	for _, node := range nodes {
		l.width = max(l.width, utf8.RuneCountInString(node))
	}

	started := now()

	l.step = l.add(math.MaxInt32, func() string {
		text := step

		if len(nodes) > 0 {
			text += fmt.Sprintf("  %d of %s done", l.ended.Load(), plural(len(nodes), "node"))
		}

		return text + "  " + short(now().Sub(started))
	})

	return l
}

// fromTheLeft moves to the left of the line before it writes. A terminal shows a key, such as ^C, where the cursor
// stands; what is drawn after that would be too long for its line, and so stay behind.
type fromTheLeft struct{ out io.Writer }

func (w fromTheLeft) Write(drawn []byte) (int, error) {
	n, err := w.out.Write(append([]byte{'\r'}, drawn...))
	return max(0, n-1), err
}

func drawnFromTheLeft(out *os.File) mpb.ConsoleWriter {
	writer := cupwriter.New(fromTheLeft{out}, false)
	writer.SetTermFd(int(out.Fd())) //nolint:gosec // a descriptor fits

	return writer
}

// add opens a line that shows what text gives, cut to the terminal's width; nil if nothing can be shown (any more).
func (l *liveLines) add(priority int, text func() string) *mpb.Bar {
	fill := mpb.BarFillerFunc(func(w io.Writer, stat decor.Statistics) error {
		_, err := io.WriteString(w, cut(strings.ReplaceAll(text(), "\n", " "), stat.AvailableWidth-1))
		return err
	})

	bar, err := l.bars.Add(0, fill, mpb.BarPriority(priority), mpb.BarFillerTrim())
	if err != nil {
		return nil
	}

	return bar
}

// update shows what a node is doing.
func (l *liveLines) update(progress Progress) {
	line, known := l.lines[progress.Node]
	if !known {
		line = &liveLine{}
		l.lines[progress.Node] = line
	}

	line.state.Store(&liveState{progress: progress, at: l.now()})

	if !known {
		line.bar = l.add(place(progress.Node, l.nodes), func() string { return l.text(line.state.Load()) })
	}
}

// text is a node's line: "cp1  installing  42s, up to 29m18s more".
func (l *liveLines) text(state *liveState) string {
	now := l.now()
	progress := state.progress
	text := fmt.Sprintf("%-*s  %s", l.width, Result{Node: progress.Node}.Subject(), progress.Text)

	if !progress.Since.IsZero() {
		text += "  " + short(lasts(progress, now))
	}

	if more := left(progress, state.at, now); more > 0 {
		text += ", up to " + short(more) + " more"
	}

	return text
}

// done counts a node that has come to an end.
func (l *liveLines) done(node string) {
	if slices.Contains(l.nodes, node) {
		l.ended.Add(1)
	}
}

// idle takes a node's line away.
func (l *liveLines) idle(node string) {
	if line, known := l.lines[node]; known {
		drop(line.bar)
		delete(l.lines, node)
	}
}

// Write puts lines above the live ones.
func (l *liveLines) Write(lines []byte) (int, error) {
	if n, err := l.bars.Write(lines); err == nil {
		return n, nil
	}

	// Drawing has ended, as the terminal went away: the lines may still find a reader.
	return l.out.Write(lines)
}

// close takes all lines away and waits until the terminal is clean.
func (l *liveLines) close() {
	for _, line := range l.lines {
		drop(line.bar)
	}

	drop(l.step)
	l.bars.Wait()
}

func drop(bar *mpb.Bar) {
	if bar != nil {
		bar.Abort(true)
	}
}

// cut shortens text to so many runes.
func cut(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width || width < 1 {
		return text
	}

	return string(runes[:width-1]) + "…"
}
