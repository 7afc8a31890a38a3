package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cli/commandline"
	"github.com/talos-mage/talos-mage/internal/cli/invocation"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

func call(t *testing.T, words ...string) string {
	t.Helper()

	var out, errs bytes.Buffer

	program := commandline.Program{Name: "talos-mage", Targets: allTargets()}
	require.Zero(t, program.Main(t.Context(), words, &out, &errs), errs.String())

	return out.String()
}

func TestTheProgramListsItsTargets(t *testing.T) {
	t.Parallel()
	golden.Assert(t, filepath.Join("testdata", "list.txt"), call(t, "-l"))
}

// What helps to develop talos-mage is for its repository alone. Hints know the targets too: one that names a target
// names the program as it was called.
func TestTheProgramHoldsTheOperatorsTargetsAndTheDemo(t *testing.T) {
	t.Parallel()

	var names []string
	for _, target := range allTargets() {
		names = append(names, target.Name)
	}

	require.ElementsMatch(t, append(slices.Clone(invocation.Targets), "demo"), names)
}

func TestEveryTargetExplainsItself(t *testing.T) {
	t.Parallel()

	for _, target := range allTargets() {
		golden.Assert(t, filepath.Join("testdata", "help", strings.ReplaceAll(target.Name, ":", "-")+".txt"),
			call(t, target.Name, "-h"))
	}
}

func TestTheHelpSaysWhatEachFlagMeansAndWhatHoldsWithoutIt(t *testing.T) {
	t.Parallel()

	meaning := regexp.MustCompile(`(?m)^  -(\w+)\n((?:      .+\n)+)`)

	for _, target := range allTargets() {
		told := map[string]string{}
		for _, match := range meaning.FindAllStringSubmatch(call(t, target.Name, "-h"), -1) {
			told[match[1]] = strings.Join(strings.Fields(match[2]), " ")
		}

		require.Len(t, told, len(target.Flags), target.Name)

		for _, flag := range target.Flags {
			require.Regexp(t, `^[A-Z]`, told[flag.Name], "-%s of %s", flag.Name, target.Name)
			require.Regexp(t, `by default|hen empty`, told[flag.Name], "-%s of %s", flag.Name, target.Name)
		}
	}
}

// ownFlags are those of targets that are no settings.
var ownFlags = []string{"talosVersion"}

// The flags that targets take, the table of settings, and what the pages name are the same.
func TestFlagsSettingsAndPagesAgree(t *testing.T) {
	t.Parallel()

	taken := map[string]bool{}

	for _, target := range allTargets() {
		for _, flag := range target.Flags {
			taken[flag.Name] = true

			_, known := settings.OfFlag(flag.Name)
			require.NotEqual(t, known, flag.Meaning != "", "-%s has one meaning, the setting's or its own", flag.Name)
			require.NotEqual(t, known, slices.Contains(ownFlags, flag.Name), "-%s of %s", flag.Name, target.Name)
		}
	}

	for _, knob := range settings.Table() {
		require.True(t, knob.Flag == "" || taken[knob.Flag], "no target takes -%s", knob.Flag)
	}

	pages, err := filepath.Glob(filepath.Join("..", "..", "docs", "*.md"))
	require.NoError(t, err)

	named := map[string]bool{}

	for _, page := range append(pages, filepath.Join("..", "..", "README.md")) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)

		for _, flag := range flagsIn(string(text)) {
			if !taken[flag] && !slices.Contains(general, flag) && !slices.Contains(developing, flag) {
				t.Errorf("%s names -%s, which no target takes", page, flag)
			}

			named[flag] = true
		}
	}

	for flag := range taken {
		require.True(t, named[flag], "no page names -%s", flag)
	}
}

// general are the flags of the program itself, and those of mage and task that pages name.
var general = []string{"compile", "h", "help", "l", "list", "v", "version", "x"}

// developing are the flags of targets that this repository's magefile alone has.
var developing = []string{"nodes", "scale", "scenario", "talosDir", "write"}

var (
	code = regexp.MustCompile("(?m)`[^`\n]+`|^    .*$")
	flag = regexp.MustCompile(`(?:^|[ (/])-([a-zA-Z]+)`)
	ours = regexp.MustCompile(`^-|(^|[ (])(talos-)?mage `)
)

// flagsIn are the flags that a page's code gives to our targets.
func flagsIn(page string) []string {
	var found []string

	for _, span := range code.FindAllString(page, -1) {
		span = strings.Trim(span, "` ")

		// Other programs have flags too.
		if !ours.MatchString(span) {
			continue
		}

		for _, match := range flag.FindAllStringSubmatch(span, -1) {
			found = append(found, match[1])
		}
	}

	return found
}

// Mage's words are understood as Mage understands them: what a target takes is no target, and sets the same setting.
func TestAnArgumentIsNoTarget(t *testing.T) {
	t.Parallel()

	for _, target := range allTargets() {
		words := []string{target.Name}
		for range target.Arguments {
			words = append(words, "reset")
		}

		calls := settings.CallsIn(words, "", []string{target.Name, "reset"})
		require.Len(t, calls, 1, target.Name)

		for _, argument := range target.Arguments {
			_, known := settings.OfFlag("<" + argument + ">")
			require.Equal(t, known, len(calls[0].Given) == 1, target.Name)
		}
	}
}

// A target that may lose data takes -yes, and one that takes -cluster has no object by itself. None of a command line's
// targets runs if one of them was not told what it is for, or nobody can agree.
func TestNothingRunsIfALossWasNotAskedFor(t *testing.T) {
	t.Parallel()

	refused := func(terminal bool, words ...string) string {
		var out, errs bytes.Buffer

		program := commandline.Program{Name: "talos-mage", Targets: allTargets(), Terminal: terminal}
		for i := range program.Targets {
			program.Targets[i].Run = func(context.Context, commandline.Values) error {
				t.Error("it ran")

				return nil
			}
		}

		require.Equal(t, int(diagnosis.ExitBadInput), program.Main(t.Context(), words, &out, &errs), words)
		require.Empty(t, out.String())

		return errs.String()
	}

	for _, target := range allTargets() {
		takes := func(name string) bool {
			return slices.ContainsFunc(target.Flags, func(flag commandline.Flag) bool { return flag.Name == name })
		}

		words := append([]string{"talos", target.Name}, target.Arguments...)

		if takes("cluster") {
			require.Contains(t, refused(true, append(words, "-yes")...), "TM190", target.Name)
			require.Contains(t, refused(true, append(words, "-yes", "-node=")...), "TM190", target.Name)
			require.Contains(t, refused(true, append(words, "-yes", "-node=cp1", "-cluster=lab")...), "TM190", target.Name)

			words = append(words, "-node=cp1")
		}

		if takes("yes") {
			require.True(t, settings.MayLoseData(target.Name), target.Name)
			require.Contains(t, refused(false, words...), "TM191", target.Name)
			require.Contains(t, refused(false, append(words, "-yes=false", "status")...), "TM191", target.Name)
		}
	}
}
