package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// color is a terminal's code for the colour of text; empty means none.
type color string

const (
	red    color = "31"
	green  color = "32"
	yellow color = "33"
	cyan   color = "36"
	bold   color = "1"
)

// painting finds what paint adds.
var painting = pattern.New(`\x1b\[(?:0|1|31|32|33|36)m`)

// paint colours text if colours are wanted.
func paint(wanted bool, in color, text string) string {
	if !wanted || in == "" || text == "" {
		return text
	}

	return "\x1b[" + string(in) + "m" + text + "\x1b[0m"
}

var levelColors = map[string]color{"DEBUG": cyan, "INFO": green, "WARN": yellow, "ERROR": red}

func statusColor(status Status) color {
	switch status {
	case OK, Applied, Skipped:
		return green
	case Failed, Refused:
		return red
	default:
		return yellow
	}
}

func severityColor(severity diagnosis.Severity) color {
	switch severity {
	case diagnosis.OK:
		return green
	case diagnosis.Failure:
		return red
	default:
		return yellow
	}
}

// short is a duration in the precision that people care about: "0.4s", "42s", "3m05s", "1h02m".
func short(d time.Duration) string {
	switch {
	case d < 0:
		return "0.0s"
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	default:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
}

// plural is "1 node", "2 nodes".
func plural(count int, noun string) string {
	if count == 1 {
		return "1 " + noun
	}

	return fmt.Sprintf("%d %ss", count, noun)
}

// indented puts the lines after a text's first one under it.
func indented(text string) string {
	return strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ")
}

// Short is a duration as people read it here.
func Short(d time.Duration) string { return short(d) }
