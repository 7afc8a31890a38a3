// Package picture draws what a terminal shows as SVG, so that pages have pictures that a test keeps true.
package picture

import (
	"fmt"
	"html"
	"regexp"
	"strings"
	"unicode/utf8"
)

// How large a cell of the terminal is, and the space around all of them, in pixels.
const (
	cellWidth  = 8.4
	lineHeight = 20
	margin     = 18
	fontSize   = 14
)

// head has everything of a picture that is the same in each. Letters have the width of a cell in whatever font there
// is, since each run of text has its length.
const head = `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" role="img">
<title>%[3]s</title>
<style>
  rect { fill: #fff; stroke: #d0d7de }
  text { fill: #1f2328; font: %[4]dpx ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
    white-space: pre }
  .bold { font-weight: bold }
  .red { fill: #cf222e } .green { fill: #1a7f37 } .yellow { fill: #9a6700 } .cyan { fill: #1b7c83 }
  @media (prefers-color-scheme: dark) {
    rect { fill: #0d1117; stroke: #30363d }
    text { fill: #e6edf3 }
    .red { fill: #f85149 } .green { fill: #3fb950 } .yellow { fill: #d29922 } .cyan { fill: #39c5cf }
  }
</style>
<rect x="0.5" y="0.5" width="%[5]d" height="%[6]d" rx="8"/>
`

// OfScreen draws lines of text that is painted the way terminals read it. It has room for so many columns.
func OfScreen(title, painted string, columns int) (string, error) {
	lines := strings.Split(strings.TrimRight(painted, "\n"), "\n")
	width := int(float64(columns)*cellWidth) + 2*margin
	height := len(lines)*lineHeight + 2*margin

	var drawn strings.Builder

	fmt.Fprintf(&drawn, head, width, height, html.EscapeString(title), fontSize, width-1, height-1)

	paint := style{}

	for row, line := range lines {
		column := 0

		for _, part := range parts.FindAllString(line, -1) {
			if codes, is := strings.CutPrefix(part, "\x1b["); is {
				if err := paint.change(strings.TrimSuffix(codes, "m")); err != nil {
					return "", fmt.Errorf("line %d: %w", row+1, err)
				}

				continue
			}

			drawn.WriteString(paint.text(part, row, column))

			column += utf8.RuneCountInString(part)
		}
	}

	return drawn.String() + "</svg>\n", nil
}

// parts are what changes the paint, and the texts in between.
var parts = regexp.MustCompile(`\x1b\[[0-9;]*m|[^\x1b]+|\x1b`)

// Text is the screen without its paint.
func Text(painted string) string {
	return regexp.MustCompile(`\x1b\[[0-9;]*m`).ReplaceAllString(painted, "")
}

// style is how the terminal paints what comes next.
type style struct {
	colour string
	bold   bool
}

var colours = map[string]string{"31": "red", "32": "green", "33": "yellow", "36": "cyan", "39": ""}

// change does what codes of a terminal say. One that is unknown is an error: the picture would not be what people see.
func (s *style) change(codes string) error {
	for code := range strings.SplitSeq(codes, ";") {
		colour, isColour := colours[code]

		switch {
		case isColour:
			s.colour = colour
		case code == "" || code == "0":
			*s = style{}
		case code == "1":
			s.bold = true
		case code == "22":
			s.bold = false
		case code == "49": // the usual background
		default:
			return fmt.Errorf("no picture is drawn of the terminal's code %q", code)
		}
	}

	return nil
}

// text is a run of text in its place; nothing for space alone.
func (s *style) text(run string, row, column int) string {
	trimmed := strings.TrimLeft(run, " ")
	column += len(run) - len(trimmed)
	trimmed = strings.TrimRight(trimmed, " ")

	if trimmed == "" {
		return ""
	}

	class := ""
	if names := strings.TrimSpace(s.colour + map[bool]string{true: " bold"}[s.bold]); names != "" {
		class = fmt.Sprintf(" class=%q", names)
	}

	return fmt.Sprintf("<text x=\"%.1f\" y=\"%d\" textLength=\"%.1f\"%s>%s</text>\n",
		margin+float64(column)*cellWidth, margin+row*lineHeight+fontSize, float64(utf8.RuneCountInString(trimmed))*cellWidth,
		class, html.EscapeString(trimmed))
}
