package report

import (
	"strings"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// look is how a terminal is written on. What a colour or a mark says, a word says too.
type look struct {
	color bool
	// ascii is set for a terminal whose locale has no other characters.
	ascii bool
	// emulated is set when the run's clock is faster than the wall's.
	emulated bool
}

// hasOnlyASCII reports whether an environment's locale knows no more than ASCII. One that is not set says nothing.
func hasOnlyASCII(getenv func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if locale := strings.ToLower(getenv(name)); locale != "" {
			return !strings.Contains(locale, "utf-8") && !strings.Contains(locale, "utf8")
		}
	}

	return false
}

func (l look) glyph(fine, ascii string) string {
	if l.ascii {
		return ascii
	}

	return fine
}

// mark is the sign of how a step ended.
func (l look) mark(status Status) string {
	switch status {
	case OK, Applied:
		return l.glyph("✓", "+")
	case Skipped:
		return l.glyph("·", "-")
	case Failed, Refused:
		return l.glyph("✗", "x")
	case Planned:
		return "~"
	case Joining:
		return l.glyph("…", "~")
	default:
		return "!"
	}
}

// paintedMark colours the sign that a line begins with.
func (l look) paintedMark(line string) string {
	text := strings.TrimLeft(line, " ")
	for _, status := range []Status{OK, Skipped, Failed, Warned} {
		if mark := l.mark(status); strings.HasPrefix(text, mark+" ") {
			return line[:len(line)-len(text)] + paint(l.color, statusColor(status), mark) + text[len(mark):]
		}
	}

	return line
}

// emulatedTime is what follows a duration of the run's clock.
func (l look) emulatedTime() string {
	if l.emulated {
		return " emulated"
	}

	return ""
}

// statusOf is how a finding looks.
func statusOf(severity diagnosis.Severity) Status {
	switch severity {
	case diagnosis.OK:
		return OK
	case diagnosis.Failure:
		return Failed
	case diagnosis.NotRun:
		return Skipped
	default:
		return Warned
	}
}
