package commandline

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/talos-mage/talos-mage/internal/cli/settings"
)

// help explains the targets that were named, or the program if none was.
func (p Program) help(out io.Writer, named []call) {
	if len(named) == 0 {
		fmt.Fprintf(out, "Usage: %s [-v] target [argument] [-flag=value]... [target]...\n\n"+
			"Targets are run in the order given, until one fails. None is run if any word is wrong.\n\n"+
			"  -h, -help   this help; with a target, before or behind it, that of the target\n"+
			"  -l, -list   list the targets\n"+
			"  -v          say more\n"+
			"  -version    say which version this is, and which Talos releases it knows\n\n"+
			"\"%s completion bash\" (or zsh, or fish) prints what makes that shell complete all this.\n\n", p.Name, p.Name)
		p.list(out)
	}

	for i, call := range named {
		if i > 0 {
			fmt.Fprintln(out)
		}

		call.target.help(out, p.Name)
	}
}

// list names each target with the first sentence about it.
func (p Program) list(out io.Writer) {
	fmt.Fprintln(out, "Targets:")

	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, target := range p.Targets {
		fmt.Fprintf(table, "  %s\t%s\n", target.Name, target.Summary)
	}

	_ = table.Flush()
}

func (t Target) help(out io.Writer, program string) {
	fmt.Fprintf(out, "Usage: %s %s\n\n", program, t.usage())
	wrap(out, "", t.Name+" "+t.Summary)

	for paragraph := range strings.SplitSeq(t.More, "\n\n") {
		if paragraph != "" {
			fmt.Fprintln(out)
			wrap(out, "", paragraph)
		}
	}

	if len(t.Flags) > 0 {
		fmt.Fprint(out, "\nFlags:\n")
	}

	for _, flag := range t.Flags {
		fmt.Fprintf(out, "\n  -%s\n", flag.Name)
		wrap(out, "      ", flag.meaning())
	}
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
	case knob.Default != "":
		text += " It takes " + knob.Takes() + "; by default " + knob.Default + "."
	default:
		text += " It takes " + knob.Takes() + "."
	}

	if !knob.TypedAlone() {
		text += " Variable: " + knob.Name + "."
	}

	return text
}

// width is how long lines of help get.
const width = 100

// wrap writes a text in lines that begin with the indent.
func wrap(out io.Writer, indent, text string) {
	line := indent
	for word := range strings.FieldsSeq(text) {
		if len(line) > len(indent) && len(line)+1+len(word) > width {
			fmt.Fprintln(out, line)

			line = indent
		}

		if len(line) > len(indent) {
			line += " "
		}

		line += word
	}

	fmt.Fprintln(out, line)
}
