// Package commandline is the front end of the program: it judges every word that talos-mage was called with, and runs
// the targets only if all of them are understood. Below mage, and for importers of the targets, Mage's own parser does
// its work instead.
package commandline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
)

// Program is what a command line is read for.
type Program struct {
	// Name is what people type in front of a target.
	Name string
	// Targets are what the program does, in the order in which they are listed.
	Targets []Target
	// Terminal is set when a person can be asked.
	Terminal bool
	// Foresee, if set, refuses a call for what the environment and the cluster's files say.
	Foresee func(ctx context.Context, call settings.Call) error
	// Names, if set, are those that the cluster's files declare, as far as they can be read.
	Names func(context.Context) (cluster string, nodes []string)
}

// Target is one thing that the program does.
type Target struct {
	// Name is how people type it, in any case; "config:secrets" is in a namespace.
	Name string
	// Summary is a sentence that begins with the name, which it lacks; More is what else there is to say.
	Summary, More string
	// Arguments are the names of the words that have to follow.
	Arguments []string
	Flags     []Flag
	Run       func(context.Context, Values) error
}

// Flag is one that a target takes.
type Flag struct {
	Name string
	Kind Kind
	// Meaning is for the help, where the flag is none of the settings'.
	Meaning string
}

// Kind is what a flag's value is.
type Kind int

// Kinds of flags.
const (
	Text   Kind = iota
	Switch      // needs no value
)

// Values are what a target was given.
type Values struct{ arguments, flags map[string]string }

// Argument is a word that had to follow.
func (v Values) Argument(name string) string { return v.arguments[name] }

// Text is a flag's value, nil if it was not given.
func (v Values) Text(name string) *string {
	if text, given := v.flags[name]; given {
		return &text
	}

	return nil
}

// Switch is a flag's value, which was judged already; nil if it was not given.
func (v Values) Switch(name string) *bool {
	on, err := strconv.ParseBool(v.flags[name])
	if err != nil {
		return nil
	}

	return &on
}

// Main reads the words, does what they ask for, and gives the process's exit code. Targets are run in their order, up
// to the first that fails; none is run if any word is wrong.
func (p Program) Main(ctx context.Context, words []string, out, errs io.Writer) int {
	shell, err := p.forShell(ctx, words, out)
	if shell && err == nil {
		return int(diagnosis.ExitOK)
	}

	var asked request
	if err == nil {
		asked, err = p.read(words)
	}

	if err == nil && !asked.tells() {
		err = p.foresee(ctx, asked.calls)
	}

	switch {
	case err != nil:
		fmt.Fprintln(errs, report.Wrap("Error: "+report.Scrub(err.Error())+"\nNothing was run.", report.Width(errs)))
		return int(diagnosis.ExitBadInput)
	case asked.version:
		fmt.Fprintln(out, version("talos-mage", buildInfo()))
	case asked.help:
		p.help(out, asked.calls)
	case asked.list || len(asked.calls) == 0:
		p.list(out)
	default:
		return p.run(ctx, asked, errs)
	}

	return int(diagnosis.ExitOK)
}

func (p Program) run(ctx context.Context, asked request, errs io.Writer) int {
	if asked.verbose {
		// Where the targets look for Mage's -v too.
		os.Setenv("MAGEFILE_VERBOSE", "1") //nolint:errcheck // a good name
	}

	for _, call := range asked.calls {
		if asked.verbose {
			fmt.Fprintln(errs, "Running target:", call.target.Name)
		}

		if err := call.run(ctx); err != nil {
			fmt.Fprintln(errs, report.Wrap("Error: "+report.Scrub(err.Error()), report.Width(errs)))
			return exitCode(err)
		}
	}

	return int(diagnosis.ExitOK)
}

// run runs the target. One that breaks ends with an error like any other, as it does below mage.
func (c call) run(ctx context.Context) (err error) {
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("unexpected: %v", broken)
		}
	}()

	return c.target.Run(ctx, c.given)
}

// exitCode is the code that an error carries the way Mage's do.
func exitCode(err error) int {
	var coded interface{ ExitStatus() int }
	if errors.As(err, &coded) {
		return coded.ExitStatus()
	}

	return int(diagnosis.ExitUnexpected)
}
