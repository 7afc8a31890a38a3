package commandline

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/report"
)

// overview is the help of the program itself, before its targets.
const overview = `Usage: %[1]s [-v] target [argument] [-flag=value]... [target]...

Targets are run in the order given, until one fails. None is run if any word is wrong.

  -h, -help   this help; with a target, before or behind it, that of the target
  -l, -list   list the targets
  -v          say more
  -version    say which version this is, and which Talos releases it knows

"%[1]s completion bash" (or zsh, or fish) prints what makes that shell complete all this.
`

// help explains the targets that were named, or the program if none was.
func (p Program) help(out io.Writer, named []call) {
	if len(named) == 0 {
		fmt.Fprintln(out, report.WrapHanging(fmt.Sprintf(overview, p.Name), helpWidth(out), len("-h, -help   ")))
		p.list(out)
	}

	for i, call := range named {
		if i > 0 {
			fmt.Fprintln(out)
		}

		fmt.Fprint(out, report.WrapHanging(call.target.help(p.Name), helpWidth(out), 0))
	}
}

// list names each target with the first sentence about it. In a pipe that is a line each, however long.
func (p Program) list(out io.Writer) {
	longest := 0
	for _, target := range p.Targets {
		longest = max(longest, len(target.Name))
	}

	fmt.Fprintln(out, "Targets:")

	for _, target := range p.Targets {
		line := fmt.Sprintf("  %-*s  %s", longest, target.Name, target.Summary)
		fmt.Fprintln(out, report.WrapHanging(line, report.Width(out), longest+len("  ")))
	}
}

// help is all there is to say about the target, a line for each paragraph.
func (t Target) help(program string) string {
	var text strings.Builder

	fmt.Fprintf(&text, "Usage: %s %s\n\n%s %s\n", program, t.usage(), t.Name, t.Summary)

	if t.More != "" {
		fmt.Fprintf(&text, "\n%s\n", t.More)
	}

	if len(t.Flags) > 0 {
		text.WriteString("\nFlags:\n")
	}

	for _, flag := range t.Flags {
		fmt.Fprintf(&text, "\n  -%s\n      %s\n", flag.Name, flag.meaning())
	}

	return text.String()
}

// meaning says what the flag does, what it takes, what holds without it, and the variable that it goes over.
func (f Flag) meaning() string {
	knob, known := settings.OfFlag(f.Name)
	if !known {
		return f.Meaning
	}

	text := knob.Doc
	switch {
	case f.Kind == Switch:
		text += " Off by default."
	case knob.Default == "" && strings.Contains(text, "hen empty"):
		text += " It takes " + knob.Takes() + "."
	default:
		text += " It takes " + knob.Takes() + "; by default " + cmp.Or(knob.Default, "none") + "."
	}

	if !knob.TypedAlone() {
		text += " Variable: " + knob.Name + "."
	}

	return text
}

// widest is how long lines of help get, also on a wider terminal and in a pipe: longer ones are hard to read.
const widest = 100

// helpWidth is where lines of help end.
func helpWidth(out io.Writer) int {
	if width := report.Width(out); width > 0 {
		return min(width, widest)
	}

	return widest
}
