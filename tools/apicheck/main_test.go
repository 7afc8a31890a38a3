package main

import (
	"os"
	"strings"
	"testing"
)

const before = `package api

import "context"

const Limit Count = 3

type Count int

type Options struct {
	Dir string

	hidden func()
}

func (Options) Check(ctx context.Context) error { return nil }

func Run(ctx context.Context, options Options) (int, error) { return 0, nil }
`

// A module with a package, and the description of that as it was.
func described(t *testing.T) (pkg, description string) {
	t.Helper()

	os.Args[0] = "apicheck"

	t.Chdir(t.TempDir())
	write(t, "go.mod", "module example.net/api\n\ngo 1.26\n")
	write(t, "api.go", before)

	if err := run(&strings.Builder{}, ".", "api.txt", true, false); err != nil {
		t.Fatal(err)
	}

	return "api.go", "api.txt"
}

func write(t *testing.T, path, text string) {
	t.Helper()

	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestEachChangeIsNamedAndJudged(t *testing.T) {
	pkg, description := described(t)

	for name, test := range map[string]struct {
		from, to   string
		told, fail string
	}{
		"nothing":             {},
		"a body":              {from: "return 0, nil", to: "return 1, nil"},
		"an unexported field": {from: "hidden func()", to: "hidden, other func()"},
		"a comment":           {from: "func Run(", to: "// Run runs.\nfunc Run("},
		"a function more": {from: "func Run(", to: "func Walk() {}\n\nfunc Run(",
			told: "compatible: Walk: added\n", fail: "no importer breaks: apicheck -update . api.txt"},
		"a field more": {from: "Dir string", to: "Dir string\n\tDryRun bool",
			told: "compatible: Options.DryRun: added\n", fail: "no importer breaks: apicheck -update . api.txt"},
		"a method more": {from: "func Run(", to: "func (Count) Half() Count { return 0 }\n\nfunc Run(",
			told: "compatible: Count.Half: added\n", fail: "no importer breaks: apicheck -update . api.txt"},
		"a function less": {from: "func Run(", to: "func run(",
			told: "BREAKS IMPORTERS: Run: removed\n", fail: "importers of example.net/api would break"},
		"another parameter": {from: "options Options) (int", to: "options *Options) (int",
			told: "BREAKS IMPORTERS: Run: changed from func(context.Context, Options) (int, error) to " +
				"func(context.Context, *Options) (int, error)\n", fail: "importers of example.net/api would break"},
		"another type of a field": {from: "Dir string", to: "Dir []byte",
			told: "BREAKS IMPORTERS: Options.Dir: changed from string to []byte\n",
			fail: "importers of example.net/api would break"},
		"another value": {from: "= 3", to: "= 4",
			told: "BREAKS IMPORTERS: Limit: value changed from 3 to 4\n", fail: "importers of example.net/api would break"},
		"a method less and a function more": {from: "func (Options) Check", to: "func Check",
			told: "BREAKS IMPORTERS: Options.Check: removed\ncompatible: Check: added\n",
			fail: "importers of example.net/api would break"},
	} {
		write(t, pkg, strings.Replace(before, test.from, test.to, 1))

		var told strings.Builder

		err := run(&told, ".", description, false, false)

		if told.String() != test.told {
			t.Errorf("%s: told\n%swant\n%s", name, told.String(), test.told)
		}

		if (err != nil) != (test.fail != "") || err != nil && !strings.Contains(err.Error(), test.fail) {
			t.Errorf("%s: %v, want %q", name, err, test.fail)
		}
	}
}

func TestADescriptionIsRenewedForAdditionsAndOnlyOnPurposeForMore(t *testing.T) {
	pkg, description := described(t)

	renew := func(to string, breaking bool) error {
		write(t, pkg, to)
		return run(&strings.Builder{}, ".", description, true, breaking)
	}

	wider := before + "\nfunc Walk() {}\n"
	if err := renew(wider, false); err != nil {
		t.Fatal(err)
	}

	if err := run(&strings.Builder{}, ".", description, false, false); err != nil {
		t.Fatal(err)
	}

	if err := renew(before, false); err == nil {
		t.Fatal("a function was removed, and nobody had to say so")
	}

	if err := renew(before, true); err != nil {
		t.Fatal(err)
	}
}
