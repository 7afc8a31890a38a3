package devtargets

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/magefile/mage/mg"

	"github.com/talos-mage/talos-mage/internal/nearest"
)

// fuzzSeconds is how long each fuzz target runs when nobody says.
const fuzzSeconds = 60

// fuzzTarget is one fuzz target of this repository.
type fuzzTarget struct{ folder, name string }

// Fuzz feeds random input to every parser of the operator's files, and to the probe of nodes, one target after another.
//
// -seconds is for how long each (60 by default), -only one target's name. Input that breaks something is kept in testdata/fuzz of the package; the
// message says how to run it again.
func Fuzz(ctx context.Context, seconds *int, only *string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()

	each := fuzzSeconds
	if seconds != nil {
		each = *seconds
	}

	if each < 1 {
		return mg.Fatal(2, "-seconds has to be 1 or more")
	}

	targets, err := chosenFuzzTargets(only)
	if err != nil {
		return mg.Fatal(2, err.Error())
	}

	var broken []string

	for i, target := range targets {
		fmt.Printf("%d of %d: %s in %s, %d s\n", i+1, len(targets), target.name, target.folder, each)

		switch err := target.run(ctx, each); {
		case ctx.Err() != nil:
			return mg.Fatal(1, "stopped before all targets were run")
		case err != nil:
			broken = append(broken, fmt.Sprintf("%s broke: its input is in %s; again: go test -run '^%s$' ./%s",
				target.name, filepath.Join(target.folder, "testdata", "fuzz", target.name), target.name, filepath.ToSlash(target.folder)))
		}
	}

	if len(broken) > 0 {
		return mg.Fatal(1, strings.Join(broken, "\n"))
	}

	return nil
}

// run fuzzes for some seconds.
func (t fuzzTarget) run(ctx context.Context, seconds int) error {
	command := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-fuzz", "^"+t.name+"$", "-fuzztime", fmt.Sprintf("%ds", seconds), //nolint:gosec // names found below
		"./"+filepath.ToSlash(t.folder))
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	// The fuzzer ends its workers on an interrupt.
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }

	if err := command.Run(); err != nil {
		return fmt.Errorf("run %s: %w", t.name, err)
	}

	return nil
}

// chosenFuzzTargets are all, or those of the name that is asked for.
func chosenFuzzTargets(only *string) ([]fuzzTarget, error) {
	targets, err := findFuzzTargets(".")
	if err != nil || only == nil {
		return targets, err
	}

	var (
		names  []string
		chosen []fuzzTarget
	)

	for _, target := range targets {
		names = append(names, target.name)

		if target.name == *only {
			chosen = append(chosen, target)
		}
	}

	if len(chosen) > 0 {
		return chosen, nil
	}

	message := fmt.Sprintf("there is no fuzz target %q", *only)
	if meant := nearest.Word(*only, names); meant != "" {
		message += fmt.Sprintf(", did you mean %q?", meant)
	}

	return nil, errors.New(message + "; there are " + strings.Join(names, ", "))
}

var fuzzFunction = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)

// findFuzzTargets reads the tests below root, in the order of their folders.
func findFuzzTargets(root string) ([]fuzzTarget, error) {
	var targets []fuzzTarget

	err := filepath.WalkDir(filepath.Join(root, "internal"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}

		source, err := os.ReadFile(path) //nolint:gosec // a file of this repository
		if err != nil {
			return err
		}

		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}

		for _, found := range fuzzFunction.FindAllStringSubmatch(string(source), -1) {
			targets = append(targets, fuzzTarget{folder: folder, name: found[1]})
		}

		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find fuzz targets: %w", err)
	}

	if len(targets) == 0 {
		return nil, errors.New("find fuzz targets: none here; run this in the root of talos-mage's repository")
	}

	return targets, nil
}
