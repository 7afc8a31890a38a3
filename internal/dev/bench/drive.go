package bench

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/talos-mage/talos-mage/internal/report"
)

//go:embed loop.sh
var loopScript string

// loop is the way that talos-mage replaced, in one of its modes.
func loop(mode string) func(context.Context, *bench, *lab) (Run, error) {
	return func(ctx context.Context, b *bench, lab *lab) (Run, error) {
		var nodes bytes.Buffer
		for _, node := range lab.Nodes {
			fmt.Fprintln(&nodes, node.Address(), lab.ConfigFile(node.Name()))
		}

		command := exec.CommandContext(ctx, "bash", "-c", loopScript, "loop.sh", mode) //nolint:gosec // the script is this package's
		command.Env = append(lab.environ(b.Path), "SCALE="+strconv.Itoa(b.Scale),
			"KUBECONFIG="+filepath.Join(lab.folder, "kubeconfig"))
		command.Stdin = &nodes

		return lab.drive(ctx, command)
	}
}

// ours is this program, which gives all nodes their configs at once.
func ours(ctx context.Context, b *bench, lab *lab) (Run, error) {
	command := exec.CommandContext(ctx, b.Program, "talos", "-applyMode=parallel", "-parallel=100%") //nolint:gosec // this repository's
	command.Env = append(append(lab.environ(b.Path), lab.Environ()...), "ROOT_DIR="+lab.folder,
		"KUBECONFIG="+filepath.Join(lab.folder, "kubeconfig"))

	run, err := lab.drive(ctx, command)
	if err != nil {
		return run, err
	}

	run.Back, err = lab.noticed()

	return run, err
}

// drive brings nodes up by a program. The time is that until it has ended and every node is up.
func (l *lab) drive(ctx context.Context, command *exec.Cmd) (Run, error) {
	var said bytes.Buffer

	command.Dir = l.folder
	command.Stdout, command.Stderr = &said, &said

	began := time.Now()

	used, err := measure(command)
	ended := time.Now()

	if err != nil {
		return Run{}, fmt.Errorf("%w\n%s", err, said.Bytes())
	}

	run := Run{Processor: used.processor, Resident: used.resident, Up: l.ups()}

	last, err := l.awaitUp(ctx)
	if err != nil {
		return run, fmt.Errorf("%w\n%s", err, said.Bytes())
	}

	run.Wall = later(ended, last).Sub(began)

	return run, nil
}

// noticed is how long it took this program, at the median and in the nodes' time, to verify a node that had got where
// it was waited for: a control plane back from its install, a worker up. What was there before the step that waits for
// it began counts from then.
func (l *lab) noticed() (time.Duration, error) {
	events, err := l.events()
	if err != nil {
		return 0, fmt.Errorf("read the record of talos-mage's run: %w", err)
	}

	var (
		waits []time.Duration
		began time.Time
	)

	for _, event := range events {
		there := l.up[event.Node]
		if event.Step == verifyName {
			there = l.back[event.Node]
		}

		switch {
		case event.Step != verifyName && event.Step != verifyWorkersName:
		case event.Event == report.KindStarted:
			began = event.Time
		case event.Event == report.KindResult && event.Status == report.OK:
			waits = append(waits, event.Time.Sub(later(there, began))*time.Duration(l.Scale))
		}
	}

	if len(waits) == 0 {
		return 0, errors.New("find out when talos-mage verified nodes: its record tells of none")
	}

	slices.Sort(waits)

	return waits[len(waits)/2], nil
}

// The steps that wait for nodes: for control planes, and for workers.
const (
	verifyName        = "verify"
	verifyWorkersName = "verifyWorkers"
)

// events are those of this program's run, as it recorded them.
func (l *lab) events() ([]report.Line, error) {
	paths, err := filepath.Glob(filepath.Join(l.Dir, ".talos-mage", "runs", "*", "events.jsonl"))

	switch {
	case err != nil:
		return nil, err //nolint:wrapcheck // the caller does
	case len(paths) != 1:
		return nil, fmt.Errorf("%d records found", len(paths))
	}

	data, err := os.ReadFile(paths[0])
	if err != nil {
		return nil, err //nolint:wrapcheck // as above
	}

	var events []report.Line

	for text := range bytes.Lines(data) {
		event, err := report.ReadLine(text)
		if err != nil {
			return nil, err //nolint:wrapcheck // as above
		}

		events = append(events, event)
	}

	return events, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}

	return b
}
