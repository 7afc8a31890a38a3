package report

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"
)

// area is the bottom of a terminal, where lines are shown that change: whatever is written goes above them. It is not
// safe for concurrent use.
type area struct {
	terminal *os.File
	// shown are the lines that stand there, and breadths how wide they are.
	shown    []string
	breadths []int
	width    int // of the terminal when they were drawn
}

// size is how large the terminal is now.
func (a *area) size() (width, height int) {
	width, height, err := term.GetSize(int(a.terminal.Fd())) //nolint:gosec // a descriptor fits
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}

	return width, height
}

// draw shows other lines, none of which may be wider than the terminal.
func (a *area) draw(lines []string) {
	if width, _ := a.size(); width == a.width && slices.Equal(lines, a.shown) {
		return
	}

	_ = a.put("", lines) // a terminal that went away shows nothing
}

// above writes whole lines above those that are shown.
func (a *area) above(out io.Writer, text string) error {
	if len(a.shown) == 0 {
		_, err := io.WriteString(out, text)
		return err //nolint:wrapcheck // the caller says what was written
	}

	return a.put(text, a.shown)
}

// clear takes the lines away.
func (a *area) clear() {
	if len(a.shown) > 0 {
		_ = a.put("", nil)
	}
}

// put takes the lines away, writes what goes above them, and shows others: in one write, so that nothing flickers. It
// begins at the left: a terminal shows a key, such as ^C, where the cursor stands.
func (a *area) put(above string, lines []string) error {
	var text strings.Builder

	width, _ := a.size()

	text.WriteString("\r")

	if rows := a.rows(width); rows > 0 {
		fmt.Fprintf(&text, "\x1b[%dA", rows)
	}

	text.WriteString("\x1b[J" + above)

	a.shown, a.breadths, a.width = slices.Clone(lines), nil, width
	for _, line := range lines {
		text.WriteString(line + "\n")
		a.breadths = append(a.breadths, breadth(line))
	}

	_, err := io.WriteString(a.terminal, text.String())

	return err //nolint:wrapcheck // the caller says what was written
}

// rows are how many rows the lines take on a terminal that may have become narrower since: it then breaks them.
func (a *area) rows(width int) int {
	rows := 0
	for _, breadth := range a.breadths {
		rows += max(1, (breadth+width-1)/width)
	}

	return rows
}
