package devtargets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/magefile/mage/mg"

	"github.com/talos-mage/talos-mage/internal/base/suggest"
)

// Fuzz feeds random input to every parser of the operator's files, and to the probe of nodes, one target after another.
//
// -seconds is for how long each (60 by default), -only names targets, comma separated. Input that breaks one is kept in
// testdata/fuzz of the package; the message says how to run it again.
func Fuzz(ctx context.Context, seconds *int, only *string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()

	each := time.Minute
	if seconds != nil {
		each = time.Duration(*seconds) * time.Second
	}

	if each <= 0 {
		return mg.Fatal(2, "-seconds takes a number above 0")
	}

	targets, err := fuzzTargets(".")
	if err != nil {
		return mg.Fatal(2, err.Error())
	}

	if only != nil {
		if targets, err = named(targets, strings.Split(*only, ",")); err != nil {
			return mg.Fatal(2, err.Error())
		}
	}

	programs, err := newFuzzPrograms(".")
	if err != nil {
		return mg.Fatal(1, err.Error())
	}
	defer programs.remove()

	var crashers []string

	for i, target := range targets {
		fmt.Printf("\n%d of %d: %s in %s, %s\n", i+1, len(targets), target.name, target.folder, each)

		crasher, err := target.run(ctx, programs, each, os.Stdout)

		switch {
		case ctx.Err() != nil:
			return mg.Fatal(1, "stopped before all fuzz targets were run")
		case err != nil:
			crashers = append(crashers, fmt.Sprintf("%s: %s", target.name, crasher))
		}
	}

	if len(crashers) > 0 {
		return mg.Fatalf(1, "%d of %d fuzz targets failed:\n%s", len(crashers), len(targets), strings.Join(crashers, "\n"))
	}

	fmt.Printf("\n%d fuzz targets found nothing\n", len(targets))

	return nil
}

// fuzzTarget is a fuzz target of a package's tests.
type fuzzTarget struct {
	name string
	// folder is the package's, from the repository's root.
	folder string
}

// shortening is how long the fuzzer may take to make an interesting input shorter; without a limit that takes most of
// its time.
const shortening = "5s"

var fuzzFunction = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)

// fuzzTargets finds all targets of the repository at root.
func fuzzTargets(root string) ([]fuzzTarget, error) {
	var targets []fuzzTarget

	err := filepath.WalkDir(filepath.Join(root, "internal"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}

		data, err := os.ReadFile(path) //nolint:gosec // of this repository
		if err != nil {
			return err
		}

		folder, err := filepath.Rel(root, filepath.Dir(path))

		for _, match := range fuzzFunction.FindAllSubmatch(data, -1) {
			targets = append(targets, fuzzTarget{name: string(match[1]), folder: filepath.ToSlash(folder)})
		}

		return err
	})
	if err != nil {
		return nil, fmt.Errorf("find fuzz targets: %w", err)
	}

	if len(targets) == 0 {
		return nil, errors.New("find fuzz targets: none here; run this in the root of talos-mage's repository")
	}

	return targets, nil
}

// named are the targets with these names, with or without the word Fuzz.
func named(targets []fuzzTarget, names []string) ([]fuzzTarget, error) {
	byName := map[string]fuzzTarget{}

	var known []string

	for _, target := range targets {
		byName[target.name] = target
		known = append(known, target.name)
	}

	var chosen []fuzzTarget

	for _, name := range names {
		name = "Fuzz" + strings.TrimPrefix(strings.TrimSpace(name), "Fuzz")

		target, found := byName[name]
		if !found {
			if near := suggest.Word(name, known); near != "" {
				return nil, fmt.Errorf("there is no fuzz target %s; did you mean %s?", name, near)
			}

			return nil, fmt.Errorf("there is no fuzz target %s; there are %s", name, strings.Join(known, ", "))
		}

		chosen = append(chosen, target)
	}

	return chosen, nil
}

// guiding has the compiler count what an input reaches, as -fuzz does, but only in what looks at the input: this module
// and the parsers of YAML, HCL and machine configs. -fuzz counts in every package, so that all of them, most of which
// serve gRPC or Kubernetes, are compiled once more.
var guiding = []string{
	"-gcflags=github.com/talos-mage/talos-mage/...=" + counting,
	"-gcflags=github.com/siderolabs/talos/pkg/machinery/config/...=" + counting,
	"-gcflags=go.yaml.in/yaml/v4/...=" + counting,
	"-gcflags=github.com/hashicorp/hcl/v2/...=" + counting,
}

// counting is the compiler's flag for that.
const counting = "-d=libfuzzer"

// fuzzPrograms are the test programs with the fuzz targets, compiled once for each package.
type fuzzPrograms struct {
	// root is the repository's, made is where the programs are, cache where go keeps inputs worth keeping.
	root, made, cache string
	paths             map[string]string
}

func newFuzzPrograms(root string) (*fuzzPrograms, error) {
	cache, err := exec.Command("go", "env", "GOCACHE").Output() //nolint:noctx // it only prints
	if err != nil {
		return nil, fmt.Errorf("ask go for its cache: %w", err)
	}

	made, err := os.MkdirTemp("", "talos-mage-fuzz-")
	if err != nil {
		return nil, fmt.Errorf("make folder for fuzz programs: %w", err)
	}

	return &fuzzPrograms{root: root, made: made,
		cache: filepath.Join(strings.TrimSpace(string(cache)), "fuzz", "talos-mage"), paths: map[string]string{}}, nil
}

func (p *fuzzPrograms) remove() {
	os.RemoveAll(p.made) //nolint:errcheck // of the system's temporary files
}

// of is the program of a package.
func (p *fuzzPrograms) of(ctx context.Context, folder string, out io.Writer) (string, error) {
	if path, found := p.paths[folder]; found {
		return path, nil
	}

	path := filepath.Join(p.made, fmt.Sprintf("%d.test", len(p.paths)))
	arguments := append([]string{"test", "-c", "-o", path}, guiding...)
	command := exec.CommandContext(ctx, "go", append(arguments, "./"+folder)...) //nolint:gosec // made here
	command.Dir, command.Stdout, command.Stderr = p.root, out, out

	if err := command.Run(); err != nil {
		return "", fmt.Errorf("compile the fuzz targets of %s: %w", folder, err)
	}

	p.paths[folder] = path

	return path, nil
}

// run fuzzes for some time, from the seeds and from what earlier runs found worth keeping. An error comes with a few
// words about the input that broke the target and how to run it again.
func (t fuzzTarget) run(ctx context.Context, programs *fuzzPrograms, each time.Duration, out io.Writer) (crasher string,
	err error) {
	var said bytes.Buffer

	both := io.MultiWriter(out, &said)

	path, err := programs.of(ctx, t.folder, both)
	if err != nil {
		return t.explain(said.String()), err
	}

	command := exec.CommandContext(ctx, path, "-test.run", "^$", "-test.fuzz", "^"+t.name+"$", "-test.fuzztime", each.String(), //nolint:gosec // made here
		"-test.fuzzminimizetime", shortening, "-test.fuzzcachedir", filepath.Join(programs.cache, t.folder))
	command.Dir = filepath.Join(programs.root, t.folder)
	verdict := &verdictLast{out: both}
	command.Stdout, command.Stderr = verdict, verdict
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }

	err = command.Run()
	if err != nil && timeWasUp(said.String()+string(verdict.held)) {
		fmt.Fprintln(out, "its time was up (go.dev/issue/75804)") //nolint:errcheck // a remark

		return "", nil
	}

	verdict.tell()

	if err != nil {
		return t.explain(said.String()), fmt.Errorf("run %s: %w", t.name, err)
	}

	return "", nil
}

// verdictLast passes on what go says line by line, but from the word of a failure on: it is kept until somebody has
// judged it.
type verdictLast struct {
	out  io.Writer
	held []byte // the line that is not complete yet, or all from the failure on
}

func (v *verdictLast) Write(data []byte) (int, error) {
	v.held = append(v.held, data...)

	for !bytes.HasPrefix(v.held, []byte("--- FAIL")) {
		line, rest, complete := bytes.Cut(v.held, []byte("\n"))
		if !complete {
			break
		}

		if _, err := fmt.Fprintf(v.out, "%s\n", line); err != nil {
			return 0, err
		}

		v.held = rest
	}

	return len(data), nil
}

// tell passes on the rest.
func (v *verdictLast) tell() {
	v.out.Write(v.held) //nolint:errcheck // nobody is left to be told
	v.held = nil
}

var (
	failingInput = regexp.MustCompile(`Failing input written to (testdata/fuzz/\w+/(\w+))`)
	failingSeed  = regexp.MustCompile(`failure while testing seed corpus entry: (\w+/\S+)`)
)

// deadlineOnly is how go's fuzzer now and then ends when its time is up, instead of well: https://go.dev/issue/75804,
// mended in Go 1.27.
var deadlineOnly = regexp.MustCompile(`(?m)^--- FAIL: \w+ \([0-9.]+s\)\n    context deadline exceeded\n(FAIL\n|\z)`)

// timeWasUp reports whether a fuzzer failed with nothing but the end of its time. An input that breaks a target is
// always named before.
func timeWasUp(said string) bool {
	return deadlineOnly.MatchString(said) && !failingInput.MatchString(said)
}

// explain names what broke a target in what go said.
func (t fuzzTarget) explain(said string) string {
	if match := failingInput.FindStringSubmatch(said); match != nil {
		return fmt.Sprintf("the input is %s/%s; again: go test ./%s -run '%s/%s'", t.folder, match[1], t.folder, t.name,
			match[2])
	}

	if match := failingSeed.FindStringSubmatch(said); match != nil {
		return fmt.Sprintf("a seed breaks it; again: go test ./%s -run '%s'", t.folder, match[1])
	}

	return "it could not be run:\n" + said
}
