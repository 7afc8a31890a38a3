package picture

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Box is a box of a diagram.
type Box struct {
	// Name is what it stands for, Says what that is for.
	Name, Says string
	// Column, which may be a half one, and Row are its place, from the left and from the top.
	Column float64
	Row    int
	// Aside is set for a box beside the others.
	Aside bool
}

// How large a diagram's boxes are, and how far from one to the next, in pixels.
const (
	boxWidth  = 212
	boxHeight = 48
	nextBox   = 228
	nextRow   = 92
)

const diagramHead = `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" role="img">
<title>%[3]s</title>
<style>
  .paper { fill: #fff; stroke: #d0d7de }
  .box { fill: #ddf4ff; stroke: #54aeff } .aside { fill: #f6f8fa; stroke: #afb8c1; stroke-dasharray: 4 3 }
  .arrow { fill: none; stroke: #57606a; stroke-width: 1.3; marker-end: url(#head) } #head path { fill: #57606a }
  text { fill: #1f2328; text-anchor: middle;
    font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif }
  .name { font-size: 14px; font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #0d1117; stroke: #30363d }
    .box { fill: #121d2f; stroke: #1f6feb } .aside { fill: #161b22; stroke: #6e7681 }
    .arrow { stroke: #9198a1 } #head path { fill: #9198a1 }
    text { fill: #e6edf3 }
  }
</style>
<marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">
  <path d="M0 0 L10 5 L0 10 z"/>
</marker>
<rect class="paper" x="0.5" y="0.5" width="%[4]d" height="%[5]d" rx="8"/>
`

// OfBoxes draws boxes, arrows from one to another by their places in the list, and below all of them a box as wide as
// the picture, which every other one leads to.
func OfBoxes(title string, boxes []Box, arrows [][2]int, ground Box) string {
	columns, rows := 0.0, 0
	for _, box := range boxes {
		columns, rows = max(columns, box.Column), max(rows, box.Row)
	}

	width := 2*margin + int(columns*nextBox) + boxWidth
	height := 2*margin + (rows+1)*nextRow + boxHeight

	var drawn strings.Builder

	fmt.Fprintf(&drawn, diagramHead, width, height, html.EscapeString(title), width-1, height-1)

	for _, arrow := range arrows {
		from, to := boxes[arrow[0]], boxes[arrow[1]]
		shift := math.Max(-1, math.Min(1, to.Column-from.Column)) * boxWidth / 4
		fmt.Fprintf(&drawn, "<path class=\"arrow\" d=\"M%.0f %d L%.0f %d\"/>\n",
			from.middle()+shift, from.top()+boxHeight, to.middle()-shift/2, to.top()-1)
	}

	for _, box := range boxes {
		drawn.WriteString(box.draw(boxWidth))
	}

	ground.Row, ground.Column = rows+1, columns/2

	return drawn.String() + ground.draw(width-2*margin) + "</svg>\n"
}

func (b Box) middle() float64 { return margin + b.Column*nextBox + boxWidth/2 }

func (b Box) top() int { return margin + b.Row*nextRow }

func (b Box) draw(width int) string {
	class := "box"
	if b.Aside {
		class = "aside"
	}

	return fmt.Sprintf("<rect class=%q x=\"%.0f\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\"/>\n"+
		"<text class=\"name\" x=\"%.0f\" y=\"%d\">%s</text>\n<text x=\"%.0f\" y=\"%d\">%s</text>\n",
		class, b.middle()-float64(width)/2, b.top(), width, boxHeight,
		b.middle(), b.top()+20, html.EscapeString(b.Name), b.middle(), b.top()+38, html.EscapeString(b.Says))
}
