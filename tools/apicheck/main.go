// Command apicheck compares the exported API of a package with a committed description of it. It names each change, and
// fails for those that break importers, and for a description that lacks what was added.
//
//	apicheck ./recipe recipe/testdata/api.go              compares
//	apicheck -update ./recipe recipe/testdata/api.go      writes the description, unless a change breaks importers
//	apicheck -update -breaking …                          writes it nevertheless: the next release is a new major one
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

	renew := "apicheck -update " + pattern + " " + file
	if broken := tell(out, changes); broken > 0 && !breaking {
		return fmt.Errorf("%d changes break importers of %s: keep what was there beside what is new; where that can't be, %s",
			broken, current.Path(), "apicheck -update -breaking "+pattern+" "+file)
	}

	switch {
	case bytes.Equal(committed, described):
		return nil
	case update:
		return os.WriteFile(file, described, 0o644)
	default:
		return fmt.Errorf("%s is not the API as it is, and no importer breaks: %s", file, renew)
	}
}

// tell names each change, and counts those that break importers.
func tell(out io.Writer, changes apidiff.Report) (broken int) {
	for _, change := range changes.Changes {
		kind := "compatible"

		if !change.Compatible {
			kind = "BREAKS IMPORTERS"
			broken++
		}

		fmt.Fprintf(out, "%s: %s\n", kind, change.Message)
	}

	return broken
}
