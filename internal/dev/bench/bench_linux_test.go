package bench_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/bench"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/test/e2e/program"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

var root = filepath.Join("..", "..", "..")

// Every way brings a small cluster up, and what it used is known.
func TestASmallClusterIsMeasured(t *testing.T) {
	t.Parallel()

	talosctl := tool.Find(t, "talosctl")
	compiled, err := program.Compile(root)
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(filepath.Dir(compiled)) })

	told := map[string]bool{}
	result, err := bench.Measure(limited(t), bench.Options{
		Nodes: []int{2}, Scale: labcluster.TestScale, Program: compiled, Path: pathWith(filepath.Dir(talosctl)),
		Told: func(progress bench.Progress) {
			require.Positive(t, progress.Limit)

			told[progress.Doing] = true
		},
	})
	require.NoError(t, err)

	require.Equal(t, map[string]bool{"2 nodes, by themselves": true, "2 nodes, talosctl, one by one": true,
		"2 nodes, talosctl, two at once": true, "2 nodes, talos-mage": true}, told)
	require.Positive(t, result.Sizes[0].Floor)
	require.Len(t, result.Sizes[0].Runs, 3)

	for _, run := range result.Sizes[0].Runs {
		require.Positive(t, run.Wall, run.Way)
		require.Positive(t, run.Processor, run.Way)
		require.Greater(t, run.Resident, int64(10<<20), run.Way)
	}

	ours := result.Sizes[0].Runs[2]
	require.Equal(t, 2, ours.Up, "it ends when all nodes are up")
	require.Positive(t, ours.Back)
}

func TestNothingIsBegunWhereNothingCanBeMeasured(t *testing.T) {
	t.Parallel()

	good := bench.Options{Nodes: []int{2}, Scale: 1}

	for name, tt := range map[string]struct {
		talosctl string // what it says; none without
		edit     func(*bench.Options)
		why      string
	}{
		"no talosctl": {why: "there is no talosctl on the PATH; `.ci/run tools` makes one"},
		"another release": {talosctl: "Talos v1.13.9",
			why: "talosctl on the PATH is v1.13.9, and the nodes run v1.14.1; `.ci/run tools` makes one"},
		"no version": {talosctl: "usage", why: "it prints none"},
		"one node": {edit: func(o *bench.Options) { o.Nodes = []int{6, 1} },
			why: "-nodes takes numbers from 2 on"},
		"no nodes": {edit: func(o *bench.Options) { o.Nodes = nil }, why: "-nodes takes numbers from 2 on"},
		"no scale": {edit: func(o *bench.Options) { o.Scale = 0 }, why: "-scale takes a number from 1 on"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			options := good
			options.Path = t.TempDir()
			options.Told = func(progress bench.Progress) { t.Errorf("it began with %s", progress.Doing) }

			if tt.talosctl != "" {
				pretender(t, options.Path, "echo "+tt.talosctl)
			}

			if tt.edit != nil {
				tt.edit(&options)
			}

			_, err := bench.Measure(t.Context(), options)
			require.ErrorIs(t, err, bench.ErrUnusable)
			require.ErrorContains(t, err, tt.why)
		})
	}
}

// Whoever stops the measuring stops all that takes part in it.
func TestAStoppedMeasurementLeavesNothingRunning(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	started := filepath.Join(folder, "started")
	pretender(t, folder, `case $1 in version) echo Talos v1.14.1 ;; *) echo $$ >>`+started+`; exec sleep 3600 ;; esac`)

	ctx, stop := context.WithCancel(limited(t))
	defer stop()

	go func() {
		for len(lines(started)) == 0 && ctx.Err() == nil {
			time.Sleep(time.Millisecond) //nolint:forbidigo // until another process has written
		}

		stop()
	}()

	_, err := bench.Measure(ctx, bench.Options{Nodes: []int{2}, Scale: labcluster.TestScale, Program: "unused",
		Path: pathWith(folder), Told: func(bench.Progress) {}})
	require.ErrorContains(t, err, "2 nodes, talosctl, one by one")
	require.NotEmpty(t, lines(started), "the loop called no talosctl")

	for _, line := range lines(started) {
		number, err := strconv.Atoi(line)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return syscall.Kill(number, 0) == syscall.ESRCH }, time.Minute, time.Millisecond,
			"process %d still runs", number)
	}
}

// Each size has its place on the page, which any of them can be measured for.
func TestThePageIsRenewed(t *testing.T) {
	t.Parallel()

	page := filepath.Join(t.TempDir(), "page.md")
	text, err := os.ReadFile(filepath.Join(root, "docs", "performance.md"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(page, text, 0o600))

	result := sample()
	sizes := result.Sizes

	for _, size := range sizes {
		result.Sizes = []bench.Size{size}
		require.NoError(t, result.Update(page))
	}

	renewed, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Contains(t, string(renewed), "| talos-mage | 20.5 s | 1.02 | 2.5 s | 1.0 | 80 MB | 1.0 | 100 |\n")
	require.Contains(t, string(renewed), "- at least 20 times less processor time than the loop: 24.0, met\n")
	require.Equal(t, formOf(string(renewed)), formOf(string(text)), "run `go tool mage bench -write`")

	require.NoError(t, os.WriteFile(page, []byte("# Performance\n"), 0o600))
	require.ErrorContains(t, result.Update(page), "the result for 100 nodes goes between lines")
}

// formOf is a page without the figures.
func formOf(page string) string {
	page = regexp.MustCompile(`\d+(\.\d+)?`).ReplaceAllString(page, "0")

	return regexp.MustCompile(`, (met|missed)\n`).ReplaceAllString(page, ", judged\n")
}

// sample is a result as the page has it.
func sample() *bench.Result {
	result := &bench.Result{Talosctl: "v1.14.1", Scale: bench.DefaultScale, Processors: 2, Load: "0.10"}

	for _, nodes := range bench.DefaultNodes() {
		result.Sizes = append(result.Sizes, bench.Size{Nodes: nodes, Floor: 20 * time.Second, Runs: []bench.Run{
			{Way: "talosctl, one by one", Wall: time.Minute, Processor: time.Minute, Resident: 90 << 20, Up: 2},
			{Way: "talosctl, two at once", Wall: time.Minute, Processor: time.Minute, Resident: 180 << 20, Up: 1},
			{Way: "talos-mage", Wall: 20500 * time.Millisecond, Processor: 2500 * time.Millisecond, Resident: 80 << 20,
				Up: nodes, Back: 300 * time.Millisecond},
		}})
	}

	return result
}

// pretender is a talosctl that is a shell script.
func pretender(t *testing.T, folder, script string) {
	t.Helper()

	require.NoError(t, tool.WriteProgram(filepath.Join(folder, "talosctl"), []byte("#!/bin/sh\n"+script+"\n")))
}

// pathWith has a folder's programs in front of this computer's.
func pathWith(folder string) string { return folder + string(os.PathListSeparator) + os.Getenv("PATH") }

// limited ends only what hangs.
func limited(t *testing.T) context.Context {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), 4*labcluster.Deadline)
	t.Cleanup(cancel)

	return ctx
}

// lines are those of a file; none without it.
func lines(path string) []string {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}

	return strings.Fields(string(text))
}
