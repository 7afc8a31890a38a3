// Command apicheck compares the exported API of a package with a committed description of it. It names each change, and
// fails for those that break importers, and for a description that lacks what was added.
//
//	bin/apicheck ./recipe recipe/testdata/api.go              compares
//	bin/apicheck -update ./recipe recipe/testdata/api.go      writes the description, unless importers break
//	bin/apicheck -update -breaking …                          writes it even so: the next release is a major one
//
// The description is Go: declarations without bodies and unexported parts. So people read its diff, and no release of
// Go makes it unreadable, as it does export data.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/exp/apidiff"
)

func main() {
	update := flag.Bool("update", false, "write the description")
	breaking := flag.Bool("breaking", false, "with -update: even if that breaks importers")
	flag.Parse()

	if flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "usage: apicheck [-update [-breaking]] <package> <description>")
		os.Exit(2)
	}

	if err := run(os.Stdout, flag.Arg(0), flag.Arg(1), *update, *breaking); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(out io.Writer, pattern, file string, update, breaking bool) error {
	committed, err := os.ReadFile(file)
	if err != nil && !(update && errors.Is(err, fs.ErrNotExist)) {
		return fmt.Errorf("read description: %w", err)
	}

	reader, err := newReader(pattern, committed)
	if err != nil {
		return err
	}

	current, err := reader.readPackage()
	if err != nil {
		return err
	}

	described, err := describe(current)
	if err != nil {
		return err
	}

	var changes apidiff.Report

	if committed != nil {
		former, err := reader.readDescription(file, committed)
		if err != nil {
			return err
		}

		changes = apidiff.Changes(former, current)
	}

	broken := tell(out, changes)
	if broken && !breaking {
		return fmt.Errorf("importers of %s would break: keep what was there beside what is new; where that can't be: %s",
			current.Path(), command("-update", "-breaking", pattern, file))
	}

	switch {
	case bytes.Equal(committed, described):
		return nil
	case update:
		return os.WriteFile(file, described, 0o644)
	default:
		return fmt.Errorf("%s is not the API as it is, and no importer breaks: %s", file, command("-update", pattern, file))
	}
}

// command is how to call this program again.
func command(arguments ...string) string {
	return strings.Join(append(os.Args[:1:1], arguments...), " ")
}

// tell names each change, and reports whether any breaks importers.
func tell(out io.Writer, changes apidiff.Report) (broken bool) {
	for _, change := range changes.Changes {
		kind := "compatible"

		if !change.Compatible {
			kind = "BREAKS IMPORTERS"
			broken = true
		}

		fmt.Fprintf(out, "%s: %s\n", kind, change.Message)
	}

	return broken
}
