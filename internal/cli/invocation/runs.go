package invocation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/rs/zerolog"

	"github.com/talos-mage/talos-mage/internal/base/atomicfile"
	"github.com/talos-mage/talos-mage/internal/base/clock"
	"github.com/talos-mage/talos-mage/internal/base/program"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/discover/leases"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/report/record"
	"github.com/talos-mage/talos-mage/internal/report/traces"
)

// runsFolder is where the runs of a cluster are kept.
func runsFolder(loaded *settings.Settings) string {
	return filepath.Join(leases.Folder(loaded.TalosDir), "runs")
}

// recording is what records a run; nothing if it is not to be recorded, or has no folder. One that can't be written is
// warned of.
func recording(loaded *settings.Settings, log zerolog.Logger) []report.Sink {
	if info, err := os.Stat(loaded.TalosDir); loaded.KeepRuns == 0 || err != nil || !info.IsDir() {
		return nil
	}

	warn := func(err error) {
		log.Warn().Str("cause", err.Error()).Msg("the run goes on, but is not recorded as it should be")
	}

	if err := atomicfile.KeepOutOfGit(leases.Folder(loaded.TalosDir)); err != nil {
		warn(err)
		return nil
	}

	writer, err := record.New(runsFolder(loaded), loaded.KeepRuns, time.Now(), warn)
	if err != nil {
		warn(err)
		return nil
	}

	return []report.Sink{writer}
}

// tracing tells a collector of the run, if the environment names one.
func (i Invocation) tracing(ctx context.Context, log zerolog.Logger) []report.Sink {
	address := program.Runner{Environ: i.Environ}.Variable(traces.Variable)
	if address == "" {
		return nil
	}

	warn := func(err error) { log.Warn().Str("cause", err.Error()).Msg("the run goes on without its trace") }

	sink, err := traces.New(ctx, address, warn)
	if err != nil {
		warn(err)
		return nil
	}

	return []report.Sink{sink}
}

// shown are the settings as people may see them.
func shown(loaded *settings.Settings) []report.Setting {
	var list []report.Setting
	for _, value := range loaded.Shown() {
		list = append(list, report.Setting{Name: value.Name, Value: value.Value, Given: value.Given})
	}

	return list
}

// ownVersion is this module's, in whatever program it is; empty where nobody wrote it down.
func ownVersion() string {
	const module = "github.com/talos-mage/talos-mage"

	info, known := debug.ReadBuildInfo()
	if !known {
		return ""
	}

	for _, one := range append(info.Deps, &info.Main) {
		if one.Path == module {
			return one.Version
		}
	}

	return ""
}

// Runs lists the recorded runs, and sums up how their steps ended.
func (i Invocation) Runs(ctx context.Context, flags settings.Overrides) *Failure {
	loaded, err := i.load(ctx, flags)
	if err != nil {
		return i.badInput(err)
	}

	folder := runsFolder(loaded)

	names, err := record.List(folder)
	if err != nil {
		return i.fail(diagnosis.ExitBadInput, err.Error())
	}

	var runs []*record.Run
	for _, name := range names {
		run, mistakes, err := record.Read(filepath.Join(folder, name))
		i.tellMistakes(append(mistakes, err))

		if err == nil {
			runs = append(runs, run)
		}
	}

	if len(runs) == 0 {
		fmt.Fprintln(i.Out, report.Scrub("no run is recorded in "+folder))
		return nil
	}

	i.columns(record.Rows(runs))

	if sums := record.Sums(runs); len(sums) > 0 {
		fmt.Fprintln(i.Out)
		i.columns(sums)
	}

	return nil
}

// tellMistakes says what of a record can't be read; the rest is shown.
func (i Invocation) tellMistakes(mistakes []error) {
	if err := diagnosis.Join(mistakes...); err != nil {
		fmt.Fprintln(i.Err, report.Scrub(err.Error()))
	}
}

// Report shows a recorded run as it was shown while it went on, and where its page is, or opens that.
func (i Invocation) Report(ctx context.Context, flags settings.Overrides) *Failure {
	loaded, err := i.load(ctx, flags)
	if err != nil {
		return i.badInput(err)
	}

	name, err := record.Find(runsFolder(loaded), loaded.RunName)
	if err != nil {
		return i.badInput(diagnosis.NewProblem(diagnosis.BadSetting, err.Error(), "mage runs lists them"))
	}

	folder := filepath.Join(runsFolder(loaded), name)

	run, mistakes, err := record.Read(folder)
	if err != nil {
		return i.fail(diagnosis.ExitBadInput, err.Error())
	}

	i.tellMistakes(mistakes)

	// A run that was killed lacks documents, and one that goes on has more to tell by now.
	if run.Outcome == nil || !record.Documented(folder) {
		if err := run.Write(folder); err != nil {
			return i.badInput(diagnosis.Unwritable(filepath.Join(folder, record.PageFile), err))
		}
	}

	if loaded.OpenReport {
		return i.openPage(ctx, filepath.Join(folder, record.PageFile))
	}

	return i.replay(loaded, run, folder)
}

// replay shows the run's events as the console did.
func (i Invocation) replay(loaded *settings.Settings, run *record.Run, folder string) *Failure {
	options := i.consoleOptions(loaded, clock.Scaled(loaded.ClockScale))
	options.Brief, options.Terminal = len(run.Steps) > 1, false
	console := report.NewConsole(options)

	_, err := record.Each(folder, func(line report.Line) { console.Handle(line.AsEvent()) })
	if err = errors.Join(err, console.Close()); err != nil {
		return i.badInput(diagnosis.Unwritable("the output", err))
	}

	fmt.Fprintf(i.Out, "\n%s\n", report.Scrub(run.Headline()))

	if run.Outcome != nil && run.Outcome.Message != "" {
		fmt.Fprintln(i.Out, report.Scrub(run.Outcome.Message))
	}

	fmt.Fprintf(i.Out, "page: %s\n", report.Scrub(filepath.Join(folder, record.PageFile)))

	return nil
}

// openPage has the computer's browser show a page.
func (i Invocation) openPage(ctx context.Context, page string) *Failure {
	words := map[string][]string{
		"darwin": {"open"}, "windows": {"rundll32", "url.dll,FileProtocolHandler"},
	}[runtime.GOOS]
	if words == nil {
		words = []string{"xdg-open"}
	}

	if _, err := (program.Runner{Environ: i.Environ}).Run(ctx, nil, words[0], append(words[1:], page)...); err != nil {
		return i.fail(diagnosis.ExitUnexpected, fmt.Sprintf("no browser could be opened (%v). Next: open %s", err, page))
	}

	fmt.Fprintln(i.Out, report.Scrub(page))

	return nil
}
