package commandline

import (
	"context"
	"embed"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

const (
	// completion is the word that asks for what makes a shell complete.
	completion = "completion"
	// completeWord is what that calls, with all words up to the one that is typed.
	completeWord = "__complete"
)

//go:embed shells
var shells embed.FS

// shellFiles are those that complete, by the shell's name.
var shellFiles = map[string]string{"bash": "bash.sh", "zsh": "zsh.sh", "fish": "fish.fish"}

// shellNames are the shells, as they are listed.
func shellNames() []string { return slices.Sorted(maps.Keys(shellFiles)) }

// forShell does what a shell needs to complete the program's words, if that was asked for.
func (p Program) forShell(ctx context.Context, words []string, out io.Writer) (asked bool, err error) {
	switch {
	case len(words) == 0:
		return false, nil
	case words[0] == completeWord:
		p.complete(ctx, words[1:], out)
		return true, nil
	case words[0] == completion:
		return true, p.script(words[1:], out)
	default:
		return false, nil
	}
}

// script prints what makes a shell complete the program's words.
func (p Program) script(words []string, out io.Writer) error {
	shell := strings.Join(words, " ")

	file, known := shellFiles[shell]
	if !known {
		return fmt.Errorf("completion takes a shell: %s, not %q. Next: %s completion bash",
			strings.Join(shellNames(), ", "), shell, p.Name)
	}

	script, err := shells.ReadFile("shells/" + file)
	if err != nil {
		return fmt.Errorf("read script: %w", err)
	}

	_, err = out.Write(script)

	return err //nolint:wrapcheck // nothing to add
}

// candidate is a word that can be typed, and what it means.
type candidate struct{ word, meaning string }

// complete writes the words that can stand for the last one, a line each, with the meaning behind a tab.
func (p Program) complete(ctx context.Context, words []string, out io.Writer) {
	if len(words) == 0 {
		words = []string{""}
	}

	last := len(words) - 1

	var before request
	for _, word := range words[:last] {
		_ = p.take(&before, word) //nolint:errcheck // a wrong word is told when the command is run
	}

	for _, found := range p.candidates(ctx, before, words[last]) {
		if !strings.HasPrefix(strings.ToLower(found.word), strings.ToLower(words[last])) {
			continue
		}

		fmt.Fprintln(out, strings.TrimSuffix(found.word+"\t"+found.meaning, "\t"))
	}
}

// candidates are the words that can follow, whatever of them is typed already.
func (p Program) candidates(ctx context.Context, before request, word string) []candidate {
	var current call
	if len(before.calls) > 0 {
		current = before.calls[len(before.calls)-1]
	}

	switch name, value, hasValue := strings.Cut(word, "="); {
	case strings.HasPrefix(word, "-") && hasValue:
		return p.values(ctx, current.target, name, value)
	case strings.HasPrefix(word, "-"):
		return current.target.flagWords(strings.HasPrefix(word, "--"))
	case current.missing() != "":
		return p.argumentWords(ctx, current)
	case len(before.calls) == 0:
		return append(p.targetWords(), candidate{completion, "prints what makes a shell complete these words"})
	default:
		return p.targetWords()
	}
}

func (p Program) targetWords() []candidate {
	var found []candidate
	for _, target := range p.Targets {
		found = append(found, candidate{target.Name, target.Summary})
	}

	return found
}

// programFlags are those that need no target.
var programFlags = []candidate{
	{"-h", "explains"}, {"-l", "lists the targets"}, {"-v", "says more"},
	{"-version", "says which version this is, and which Talos releases it knows"},
}

// flagWords are a target's flags, those that need a value with a "=" at their end; without a target the program's.
func (t Target) flagWords(twoDashes bool) []candidate {
	found := programFlags
	if t.Name != "" {
		found = []candidate{{"-h", "explains " + t.Name}, {"-v", "says more"}}
	}

	for _, flag := range t.Flags {
		word := "-" + flag.Name
		if flag.Kind != Switch {
			word += "="
		}

		meaning, _, _ := strings.Cut(flag.meaning(), ". ")
		found = append(found, candidate{word, meaning})
	}

	if !twoDashes {
		return found
	}

	var doubled []candidate
	for _, flag := range found {
		doubled = append(doubled, candidate{"-" + flag.word, flag.meaning})
	}

	return doubled
}

// values are what a flag takes. Of a list, the part that is typed is completed.
func (p Program) values(ctx context.Context, target Target, name, value string) []candidate {
	flag, err := p.flag(target, strings.TrimLeft(name, "-"))
	if err != nil {
		return nil
	}

	knob, _ := settings.OfFlag(flag.Name)
	words := knob.Words()
	before := ""

	switch {
	case flag.Kind == Switch:
		words = []string{"true", "false"}
	case flag.Name == "cluster":
		cluster, _ := p.names(ctx)
		words = []string{cluster}
	case slices.Contains([]string{"node", "bootstrapNode", "destroyed", "assumeEmpty"}, flag.Name):
		_, words = p.names(ctx)
		before = value[:strings.LastIndex(value, ",")+1]
	}

	var found []candidate
	for _, word := range words {
		if word != "" {
			found = append(found, candidate{name + "=" + before + word, ""})
		}
	}

	return found
}

// argumentWords are what can be a target's next argument. Files are left to the shell.
func (p Program) argumentWords(ctx context.Context, current call) []candidate {
	var found []candidate

	switch missing := current.missing(); {
	case missing == "node", missing == "address":
		_, nodes := p.names(ctx)
		for _, name := range nodes {
			found = append(found, candidate{name, ""})
		}
	case current.target.Name == "explain":
		for _, entry := range diagnosis.Catalogue() {
			found = append(found, candidate{string(entry.ID), entry.Title})
		}
	}

	return found
}

// names are those of the cluster's files; none if these can't be read.
func (p Program) names(ctx context.Context) (cluster string, nodes []string) {
	if p.Names == nil {
		return "", nil
	}

	return p.Names(ctx)
}
