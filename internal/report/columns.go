package report

import (
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// gap is what stands between two columns.
const gap = 2

// Width is how wide a table may be: the terminal's width, and 0 for a file or a pipe, where it may be any.
func Width(out io.Writer) int {
	file, ok := out.(*os.File)
	if !ok {
		return 0
	}

	width, _, err := term.GetSize(int(file.Fd())) //nolint:gosec // a descriptor fits
	if err != nil {
		return 0
	}

	return width
}

// Columns lays rows out in aligned columns. Those that find no room in the width (0 is any) continue below, each part
// with the first column, and without the rows that say nothing there. Cells are as dress makes them, which may add no
// more than colour; nil leaves them as they are.
func Columns(rows [][]string, width int, dress func(row, column int, cell string) string) string {
	if len(rows) == 0 {
		return ""
	}

	widths := widthsOf(rows)

	var parts []string
	for first, last := 1, 0; last < len(widths); first = last {
		last = fitting(widths, first, width)

		var part strings.Builder
		for y, row := range rows {
			if first > 1 && saysNothing(row[first:last]) {
				continue
			}

			part.WriteString(lineOf(row, y, widths, first, last, dress) + "\n")
		}

		parts = append(parts, part.String())
	}

	return strings.Join(parts, "\n")
}

func saysNothing(cells []string) bool {
	return !slices.ContainsFunc(cells, func(cell string) bool { return cell != "-" })
}

func widthsOf(rows [][]string) []int {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for x, cell := range row {
			widths[x] = max(widths[x], utf8.RuneCountInString(cell))
		}
	}

	return widths
}

// fitting is where the columns end that fit beside the first one, from the given one on: that one in any case.
func fitting(widths []int, from, width int) int {
	taken := widths[0]
	for x := from; x < len(widths); x++ {
		taken += gap + widths[x]
		if width > 0 && taken > width && x > from {
			return x
		}
	}

	return len(widths)
}

// lineOf is a row's line with the first column and those from the given one to before the last.
func lineOf(row []string, y int, widths []int, from, to int, dress func(row, column int, cell string) string) string {
	var line strings.Builder
	for x, cell := range row {
		if x > 0 && (x < from || x >= to) {
			continue
		}

		padding := strings.Repeat(" ", widths[x]-utf8.RuneCountInString(cell)+gap)

		if dress != nil {
			cell = dress(y, x, cell)
		}

		line.WriteString(cell + padding)
	}

	return strings.TrimRight(line.String(), " ")
}
