// Package bench measures how nodes are brought up: by the loop over talosctl that this program replaced, and by this
// program, on one emulated cluster after the other, beside the time that such nodes need by themselves. The nodes live
// in the process that measures, and what is measured in others, so that neither's share counts for the other.
package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/talos-mage/talos-mage/internal/base/program"
	"github.com/talos-mage/talos-mage/internal/cluster/release"
	"github.com/talos-mage/talos-mage/internal/talos/talosctl"
)

// What is measured unless somebody says otherwise.
const (
	// DefaultScale is how many times faster than the wall clock time passes for the nodes, and in the waits of whoever
	// brings them up.
	DefaultScale = 4
	// talosVersion is the release that the nodes run, and talosctl has to be of.
	talosVersion = "v1.14.1"
)

// DefaultNodes are the sizes of the page.
func DefaultNodes() []int { return []int{6, 24, 100} }

// leastNodes is one control plane and one worker.
const leastNodes = 2

// Options say what is measured.
type Options struct {
	// Nodes are the sizes of the clusters.
	Nodes []int
	// Scale is how many times faster than the wall clock time passes for the nodes.
	Scale int
	// Root is the repository's folder, where talos-mage is compiled.
	Root string
	// Program is a talos-mage that is compiled already; empty for one that is compiled in Root.
	Program string
	// Path is where talosctl and go are looked for, as in the variable PATH.
	Path string
	// Told hears what is being done, again and again.
	Told func(Progress)
}

// Progress is what is being done.
type Progress struct {
	// Doing is what, in a few words.
	Doing string
	// Elapsed is for how long already; Limit is when it is given up.
	Elapsed, Limit time.Duration
}

// Result is what was measured.
type Result struct {
	// Talosctl is the version of the user's program.
	Talosctl string
	Scale    int
	// Processors is how many this computer has, Load how many processes wanted one in the minute before; 0.1 is an idle
	// computer's.
	Processors int
	Load       string
	Sizes      []Size
}

// Size is what was measured of clusters of one size.
type Size struct {
	Nodes int
	// Floor is how long nodes take that never wait for whoever brings them up.
	Floor time.Duration
	// Runs are those of the ways to bring them up, in the order of ways.
	Runs []Run
}

// Run is one bring-up.
type Run struct {
	Way string
	// Wall is the time until it had ended and every node was up.
	Wall time.Duration
	// Processor is the time on processors of all programs that took part.
	Processor time.Duration
	// Resident is the most memory that those had which ran at the same time, in bytes.
	Resident int64
	// Up is how many nodes were up when it ended.
	Up int
	// Back is how long it took to see that a node was there, at the median, in the nodes' time; 0 if it sees that of none.
	Back time.Duration
}

// way is one way to bring nodes up.
type way struct {
	name string
	run  func(ctx context.Context, b *bench, lab *lab) (Run, error)
}

// ways are those that are compared; ours is the last.
func ways() []way {
	return []way{
		{"talosctl, one by one", loop("sequential")},
		{"talosctl, two at once", loop("parallel")},
		{"talos-mage", ours},
	}
}

// ErrUnusable is wrapped by the errors of what is missing here, or was asked for wrongly: nothing was begun.
var ErrUnusable = errors.New("it can't be measured")

// bench is one call of Measure.
type bench struct {
	Options

	folder string
}

// Measure brings clusters of every size up in every way.
func Measure(ctx context.Context, options Options) (*Result, error) {
	version, err := check(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}

	folder, err := os.MkdirTemp("", "talos-mage-bench-")
	if err != nil {
		return nil, fmt.Errorf("make folder for the clusters: %w", err)
	}
	defer os.RemoveAll(folder)

	// The nodes share the computer with what is measured; memory they may take.
	const garbage = 400
	defer debug.SetGCPercent(debug.SetGCPercent(garbage))

	b := &bench{Options: options, folder: folder}
	result := &Result{Talosctl: version, Scale: options.Scale, Processors: runtime.NumCPU(), Load: load()}

	if b.Program == "" {
		if err := b.compile(ctx); err != nil {
			return nil, err
		}
	}

	for _, nodes := range options.Nodes {
		size, err := b.size(ctx, nodes)
		if err != nil {
			return nil, err
		}

		result.Sizes = append(result.Sizes, size)
	}

	return result, nil
}

// check says why nothing can be measured; else which talosctl there is.
func check(ctx context.Context, options Options) (version string, err error) {
	switch {
	case runtime.GOOS != "linux":
		return "", errors.New("only Linux tells what other programs use while they run")
	case options.Scale < 1:
		return "", errors.New("-scale takes a number from 1 on")
	case len(options.Nodes) == 0 || slices.Min(options.Nodes) < leastNodes:
		return "", fmt.Errorf("-nodes takes numbers from %d on: a control plane and a worker", leastNodes)
	}

	const get = "`.ci/run tools` makes one in bin/; then PATH=$PWD/bin:$PATH go tool mage bench"

	version, err = talosctl.Talosctl{Programs: program.Runner{Environ: []string{"PATH=" + options.Path}}}.Version(ctx)

	switch {
	case errors.Is(err, program.ErrMissing):
		return "", errors.New("there is no talosctl on the PATH; " + get)
	case err != nil:
		return "", err //nolint:wrapcheck // it says what was asked of whom
	}

	found, err := release.Minor(version)
	if err != nil {
		return "", fmt.Errorf("read talosctl's version: %w", err)
	}

	wanted, err := release.Minor(talosVersion)
	if err != nil {
		return "", fmt.Errorf("read the nodes' version: %w", err)
	}

	if found.String() != wanted.String() {
		return "", fmt.Errorf("talosctl on the PATH is %s, and the nodes run %s; %s", version, talosVersion, get)
	}

	return version, nil
}

// compile makes the program as users do.
func (b *bench) compile(ctx context.Context) error {
	b.Program = filepath.Join(b.folder, "talos-mage")

	return b.telling(ctx, "compiling talos-mage", compileLimit, func(ctx context.Context) error {
		var said bytes.Buffer

		command := exec.CommandContext(ctx, "go", "build", "-o", b.Program, "./cmd/talos-mage") //nolint:gosec // a fixed command
		command.Dir, command.Stdout, command.Stderr = b.Root, &said, &said

		if _, err := measure(command); err != nil {
			return fmt.Errorf("%w\n%s", err, said.Bytes())
		}

		return nil
	})
}

// Limits on the wall clock. They only end what hangs.
const (
	compileLimit = 10 * time.Minute
	// patience is for what does not grow with the number of nodes, and patiencePerNode for what does.
	patience        = 5 * time.Minute
	patiencePerNode = 20 * time.Second
)

// size measures clusters of one size.
func (b *bench) size(ctx context.Context, nodes int) (Size, error) {
	size := Size{Nodes: nodes}
	limit := patience + time.Duration(nodes)*patiencePerNode

	err := b.telling(ctx, fmt.Sprintf("%d nodes, by themselves", nodes), limit, func(ctx context.Context) (err error) {
		size.Floor, err = b.floor(ctx, nodes)

		return err
	})
	if err != nil {
		return size, err
	}

	for _, way := range ways() {
		err := b.telling(ctx, fmt.Sprintf("%d nodes, %s", nodes, way.name), limit, func(ctx context.Context) error {
			lab, err := b.startLab(ctx, nodes)
			if err != nil {
				return err
			}
			defer lab.close()

			run, err := way.run(ctx, b, lab)
			run.Way = way.name
			size.Runs = append(size.Runs, run)

			return err
		})
		if err != nil {
			return size, err
		}
	}

	return size, nil
}

// telling does something within a limit, and tells again and again how far it is.
func (b *bench) telling(ctx context.Context, doing string, limit time.Duration,
	do func(context.Context) error) error {
	const often = 5 * time.Second

	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	began, done := time.Now(), make(chan error, 1)
	go func() { done <- do(limited) }()

	ticker := time.NewTicker(often)
	defer ticker.Stop()

	for {
		b.Told(Progress{Doing: doing, Elapsed: time.Since(began), Limit: limit})

		select {
		case err := <-done:
			switch {
			case err == nil:
				return nil
			case ctx.Err() == nil && limited.Err() != nil:
				return fmt.Errorf("%s: not done after %s: %w", doing, limit, err)
			default:
				return fmt.Errorf("%s: %w", doing, err)
			}
		case <-ticker.C:
		}
	}
}
