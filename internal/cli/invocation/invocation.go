// Package invocation is one call of the program: it reads the settings, builds a run, has its steps executed, shows
// what happened and maps the outcome to an exit code. It knows nothing about Mage, so that targets, demo and tests call
// it alike.
package invocation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/term"

	"github.com/talos-mage/talos-mage/internal/base/clock"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/discover/leases"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/steps/workspace"
)

// Invocation is where a call gets its settings from and where it writes.
type Invocation struct {
	Environ []string
	Workdir string
	// Called is what people type in front of a target: mage if it is empty.
	Called string
	// Alias is what stands before the names of targets in a magefile that imports them under one: "up:".
	Alias string
	// Words are all that mage was called with; this call is for one target of them.
	Words []string
	// In is where a person answers; nil if there is none.
	In io.Reader
	// Out gets results alone, Err logs and progress. Where they are terminals there is colour, and live lines.
	Out, Err io.Writer
	// Embedded is set where a program calls, in a person's place.
	Embedded *Embedded
}

// Embedded is what a program has a say in that runs steps as part of itself. Signals and its own terminal are its own.
type Embedded struct {
	// Judge refuses steps before anything else is done.
	Judge func([]steps.Step) error
	// Prepare is given the run before its first step.
	Prepare func(*steps.Run) error
	// Agree agrees to the loss of what has that name, or says why not; nil where nothing may be lost.
	Agree func(name string) error
	// Next is what to do in the program, for problems that flags help with on a command line.
	Next map[diagnosis.ID]string
	// Names are the program's for what it gives in the place of flags, by these: "-node".
	Names map[string]string
}

// Failure is how a call ended if not well.
type Failure struct {
	Code diagnosis.ExitCode
	// Message names each node that failed with step, cause and next command, one a line.
	Message string
	// Err is what a run failed with, or the reason why it was stopped; nil for what went wrong before it. Its text may
	// hold secrets.
	Err error
}

// FromProcess is the invocation that the process itself is, of a target.
func FromProcess(target string) Invocation {
	workdir, err := os.Getwd()
	if err != nil {
		workdir = "."
	}

	made := Invocation{
		Environ: os.Environ(),
		Workdir: workdir,
		Called:  Called(),
		Alias:   settings.AliasIn(os.Args[1:], target),
		Words:   mageWords(),
		Out:     os.Stdout,
		Err:     os.Stderr,
	}

	if Terminal() {
		made.In = os.Stdin
	}

	return made
}

// Execute runs the steps that a target consists of.
func (i Invocation) Execute(ctx context.Context, target string, flags settings.Overrides,
	list func(*settings.Settings) []steps.Step) *Failure {
	if i.Embedded == nil {
		var stop context.CancelFunc

		ctx, stop = withSignals(ctx)
		defer stop()
	}

	run, planned, failure := i.start(ctx, target, flags, list)
	if failure != nil {
		return failure
	}

	for _, warning := range settings.Retired(i.Environ) {
		run.Log.Warn().Msg(warning)
	}

	err := steps.Execute(ctx, run, planned...)
	closing := end(run, i.failure(ctx, target, steps.Closing(run, err)))

	i.conclude(ctx, run, planned, err)

	return i.ended(ctx, run, target, err).and(i.unwrittenReport(run, closing))
}

// unwrittenReport is the failure of a run that did all that it should, and could not tell it to REPORT_FILE; nil if it
// could.
func (i Invocation) unwrittenReport(run *steps.Run, err error) *Failure {
	if err == nil {
		return nil
	}

	if run.Settings.ReportFile == "" {
		return i.badInput(diagnosis.Unwritable("the output", err))
	}

	return i.badInput(unwritableReport(run.Settings.ReportFile, err))
}

func unwritableReport(path string, err error) *diagnosis.Problem {
	problem := diagnosis.Unwritable(path, err)
	problem.Next += ", or point REPORT_FILE elsewhere"
	return problem
}

// and adds what went wrong besides: the first failure's code counts.
func (f *Failure) and(other *Failure) *Failure {
	switch {
	case f == nil:
		return other
	case other == nil:
		return f
	default:
		return &Failure{Code: f.Code, Message: f.Message + "\n" + other.Message, Err: f.Err}
	}
}

// Status shows all nodes at once.
func (i Invocation) Status(ctx context.Context, flags settings.Overrides) *Failure {
	ctx, stop := withSignals(ctx)
	defer stop()

	run, _, failure := i.start(ctx, "status", flags, func(*settings.Settings) []steps.Step { return nil })
	if failure != nil {
		return failure
	}

	status := steps.ReadStatus(ctx, run)
	closing := end(run, i.failure(ctx, "status", nil))

	if ctx.Err() != nil {
		return i.failure(ctx, "status", context.Cause(ctx))
	}

	i.columns(status.Rows())

	for _, finding := range status.Findings {
		i.say("\n%s  %s  %s\n", finding.Severity, finding.ID, finding.Cause)

		if finding.Next != status.Next {
			i.say("    next: %s\n", finding.Next)
		}
	}

	i.say("\nnext: %s\n", status.Next)

	return i.unwrittenReport(run, closing)
}

// EtcdStatus shows how etcd is on all control planes.
func (i Invocation) EtcdStatus(ctx context.Context, flags settings.Overrides) *Failure {
	return i.table(ctx, "etcd:status", flags, steps.EtcdStatus)
}

// EtcdMembers shows the members that etcd lists.
func (i Invocation) EtcdMembers(ctx context.Context, flags settings.Overrides) *Failure {
	return i.table(ctx, "etcd:members", flags, steps.EtcdList)
}

// table shows what was asked of the nodes.
func (i Invocation) table(ctx context.Context, target string, flags settings.Overrides,
	ask func(context.Context, *steps.Run) ([][]string, []diagnosis.Finding, error)) *Failure {
	ctx, stop := withSignals(ctx)
	defer stop()

	run, _, failure := i.start(ctx, target, flags, func(*settings.Settings) []steps.Step { return nil })
	if failure != nil {
		return failure
	}

	rows, findings, err := ask(ctx, run)
	for _, finding := range findings {
		run.Report.Finding(target, finding)
	}

	closing := end(run, i.failure(ctx, target, err))

	if ctx.Err() != nil {
		return i.failure(ctx, target, context.Cause(ctx))
	}

	if err != nil {
		return i.failure(ctx, target, err)
	}

	i.columns(rows)

	return i.unwrittenReport(run, closing)
}

// VerifyNodes shows whether the machines of nodes.yaml answer; without that file those of the inventory.
func (i Invocation) VerifyNodes(ctx context.Context, flags settings.Overrides) *Failure {
	ctx, stop := withSignals(ctx)
	defer stop()

	loaded, err := i.load(ctx, flags)
	if err != nil {
		return i.badInput(err)
	}

	machines, err := i.machines(ctx, loaded)
	if err != nil {
		return i.failure(ctx, "verifyNodes", err)
	}

	found, err := leases.Read(nil, leases.Path(loaded.TalosDir))
	if err != nil {
		return i.failure(ctx, "verifyNodes", workspace.BadInput(err))
	}

	rows, silent := steps.ProbeMachines(ctx, loaded, found, machines)
	if ctx.Err() != nil {
		return i.failure(ctx, "verifyNodes", context.Cause(ctx))
	}

	i.columns(rows)

	if len(silent) == 0 {
		return nil
	}

	return i.fail(diagnosis.ExitPreflight,
		fmt.Sprintf("%d of %d machines do not answer as Talos nodes: %s. Next: boot them, or check their addresses",
			len(silent), len(machines), strings.Join(silent, ", ")))
}

// machines are names and addresses from nodes.yaml beside or below the root folder, else from the inventory.
func (i Invocation) machines(ctx context.Context, loaded *settings.Settings) ([]inventory.Machine, error) {
	path := filepath.Join(loaded.RootDir, "nodes.yaml")
	if _, err := os.Stat(path); err == nil {
		machines, err := inventory.ReadNodesFile(nil, path)
		if err != nil {
			return nil, workspace.BadInput(err)
		}

		return machines, nil
	}

	cluster, err := workspace.New(ctx, loaded, i.Environ).Inventory()
	if err != nil {
		return nil, err
	}

	machines := make([]inventory.Machine, 0, len(cluster.Nodes))
	for _, node := range cluster.Nodes {
		machines = append(machines, inventory.Machine{Name: node.Name, Address: node.Address})
	}

	return machines, nil
}

// start reads the settings and the cluster's files, and opens the report.
func (i Invocation) start(ctx context.Context, target string, flags settings.Overrides,
	list func(*settings.Settings) []steps.Step) (*steps.Run, []steps.Step, *Failure) {
	loaded, err := i.load(ctx, flags)
	if err != nil {
		return nil, nil, i.badInput(err)
	}

	if i.Embedded != nil {
		loaded.Rename(i.Embedded.Names)
	}

	planned := list(loaded)
	if err := i.judge(loaded, target, planned); err != nil {
		return nil, nil, i.badInput(err)
	}

	run, failure := i.open(ctx, opening{target: target, settings: loaded, brief: len(planned) > 1,
		unrecorded: len(planned) == 0, start: steps.New})

	return run, planned, failure
}

// judge refuses steps that an embedding program must not ask for, and those that nobody can agree to.
func (i Invocation) judge(loaded *settings.Settings, target string, planned []steps.Step) error {
	if i.Embedded == nil {
		return loaded.RefuseUnasked(target, i.In != nil) //nolint:wrapcheck // it names the setting
	}

	if err := i.Embedded.Judge(planned); err != nil {
		return err
	}

	for _, step := range planned {
		err := loaded.RefuseUnasked(step.Name(), i.Embedded.Agree != nil)
		if problem, ok := diagnosis.AsProblem(err); ok {
			problem.Next = cmp.Or(i.Embedded.Next[problem.ID], problem.Next)
		}

		if err != nil {
			return err //nolint:wrapcheck // it names the step
		}
	}

	return nil
}

// opening is how a run begins.
type opening struct {
	target   string
	settings *settings.Settings
	// brief is the console's: there are several steps.
	brief bool
	// unrecorded is for what only shows something, in no step.
	unrecorded bool
	start      func(context.Context, *settings.Settings, []string, *report.Recorder, zerolog.Logger,
		clock.Clock) (*steps.Run, error)
}

// Names are those of the cluster and of its nodes that the files declare; none if they can't be read.
func (i Invocation) Names(ctx context.Context) (cluster string, nodes []string) {
	loaded, err := settings.Load(i.Environ, nil, i.Workdir)
	if err != nil {
		return "", nil
	}

	declared, err := workspace.New(ctx, loaded, i.Environ).Inventory()
	if err != nil {
		return "", nil
	}

	for _, node := range declared.Nodes {
		nodes = append(nodes, node.Name)
	}

	return declared.Name, nodes
}

// open opens the report of a run, and starts the run with it.
func (i Invocation) open(ctx context.Context, of opening) (*steps.Run, *Failure) {
	timepiece := clock.Scaled(of.settings.ClockScale)

	options := i.consoleOptions(of.settings, timepiece)
	options.Brief = of.brief
	console := report.NewConsole(options)

	sinks, err := i.sinks(of.settings, console)
	if err != nil {
		_ = console.Close()

		return nil, i.badInput(err)
	}

	if !of.unrecorded {
		sinks = append(sinks, recording(of.settings, console.Logger())...)
		sinks = append(sinks, i.tracing(ctx, console.Logger())...)
	}

	recorder := report.NewRecorder(time.Now, sinks...)
	recorder.Reword = i.hint
	recorder.Begin(report.Began{Target: of.target, Version: ownVersion(), Settings: shown(of.settings)})

	run, err := of.start(ctx, of.settings, i.Environ, recorder, console.Logger(), timepiece)
	if err == nil && i.Embedded != nil {
		run.Agree, run.Unheard = i.Embedded.Agree, true
		err = i.Embedded.Prepare(run)
	}

	if err != nil {
		failure := i.badInput(err)
		if ctx.Err() != nil {
			failure = i.failure(ctx, of.target, err)
		}

		_ = end(&steps.Run{Report: recorder}, failure)

		return nil, failure
	}

	run.Echo = console.Echo()

	if i.In != nil {
		run.Ask = func(ctx context.Context, question string) (string, error) {
			return console.Ask(ctx, i.In, i.told(question))
		}
	}

	return run, nil
}

// sinks are what receives the run's events: the console, the log, and the file that was asked for.
func (i Invocation) sinks(loaded *settings.Settings, console *report.Console) ([]report.Sink, error) {
	sinks := []report.Sink{console}

	if !i.watched(loaded) || loaded.Detailed() {
		sinks = append(sinks, report.NewLogSink(console.Logger()))
	}

	if loaded.ReportFile == "" {
		return sinks, nil
	}

	path := loaded.ReportFile
	if !filepath.IsAbs(path) {
		path = filepath.Join(i.Workdir, path)
	}

	file, err := report.AppendJSONLines(path)
	if err != nil {
		return nil, unwritableReport(path, err)
	}

	return append(sinks, file), nil
}

// end closes the report of a run that ended so. Its error is that of writing it.
func end(run *steps.Run, failure *Failure) error {
	ended := report.Ended{}
	if failure != nil {
		ended = report.Ended{Code: failure.Code, Message: failure.Message}
	}

	run.Report.End(ended)

	return run.Report.Close() //nolint:wrapcheck // it names the file
}

// watched reports whether a person sees results and live lines on one terminal; log lines of the same events would say
// everything twice.
func (i Invocation) watched(loaded *settings.Settings) bool {
	return i.consoleOptions(loaded, clock.Scaled(loaded.ClockScale)).Story
}

func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd())) //nolint:gosec // a descriptor fits
}

func (i Invocation) consoleOptions(loaded *settings.Settings, timepiece clock.Clock) report.ConsoleOptions {
	options := report.ConsoleOptions{Out: i.Out, Err: i.Err}

	out, outIsFile := i.Out.(*os.File)
	errs, errIsFile := i.Err.(*os.File)
	if outIsFile && errIsFile {
		options = report.Terminals(out, errs, loaded.NoColor)
	}

	options.LogFormat, options.LogLevel = loaded.LogFormat, loaded.LogLevel
	options.Now, options.Wall, options.Emulated = timepiece.Now, time.Now, loaded.ClockScale != 1
	options.Story = options.Story && loaded.LogFormat != "json"
	options.Verbose = loaded.Detailed()
	options.Workflow = workflow(loaded)

	return options
}

// workflow is set in a job of GitHub Actions.
func workflow(loaded *settings.Settings) *report.Workflow {
	if !loaded.GitHubActions {
		return nil
	}

	return &report.Workflow{Root: loaded.RootDir, Checkout: loaded.GitHubWorkspace}
}

// conclude writes what a person wants to read last.
func (i Invocation) conclude(ctx context.Context, run *steps.Run, planned []steps.Step, err error) {
	results := run.Report.Results()

	if err == nil && ctx.Err() == nil && !run.Settings.DryRun {
		i.overview(ctx, run, planned)
	}

	if drifted := steps.Drifted(results); drifted > 0 {
		i.say("\n%s from %s\n", differ(drifted), run.Cluster.Files.Shown(run.Settings.ClusterConfigDir))
	}

	if joining := steps.Joining(results); len(joining) > 0 {
		i.say("\nstill joining: %s; see mage verify\n", strings.Join(joining, ", "))
	}

	switch {
	case run.Outdated != nil && ctx.Err() == nil:
		i.say("\n%s\nnext: %s\n", run.Outdated.Cause, run.Outdated.Next)
	case err == nil && ctx.Err() == nil && steps.Mutates(planned) && nothingDone(results):
		i.say("\nnothing to do\n")
	}
}

// say writes what a person reads, broken between words where that is a terminal.
func (i Invocation) say(format string, args ...any) {
	fmt.Fprint(i.Out, report.Wrap(i.told(fmt.Sprintf(format, args...)), report.Width(i.Out)))
}

func differ(nodes int) string {
	if nodes == 1 {
		return "1 node differs"
	}

	return fmt.Sprintf("%d nodes differ", nodes)
}

// overview shows what a bring-up ends with: the etcd members and where the kubeconfig is. One who watches has read the
// latter, and needs no table of members that are as they should be.
func (i Invocation) overview(ctx context.Context, run *steps.Run, planned []steps.Step) {
	folded := i.watched(run.Settings) && !run.Settings.Detailed()

	for _, step := range planned {
		switch step.(type) {
		case steps.Bootstrap:
			i.members(steps.EtcdMembers(ctx, run), folded)
		case steps.Kubeconfig:
			if !folded {
				i.say("\nkubeconfig: %s\n", run.Settings.Kubeconfig)
			}
		}
	}
}

func (i Invocation) members(rows [][]string, folded bool) {
	if names := steps.WholeMembers(rows); folded && len(names) > 0 {
		i.say("\netcd: %s, healthy voters all\n", strings.Join(names, ", "))
		return
	}

	fmt.Fprintln(i.Out)
	i.columns(rows)
}

// nothingDone reports whether no step changed anything or would have to.
func nothingDone(results []report.Result) bool {
	for _, result := range results {
		switch result.Status {
		case report.OK, report.Skipped, report.Warned:
		default:
			return false
		}
	}

	return len(results) > 0
}

// ended is how a run's call ends. One who watches has read all that happened, and is told once more, so that it stands
// out, what the run failed for.
func (i Invocation) ended(ctx context.Context, run *steps.Run, target string, err error) *Failure {
	troubles := steps.Troubles(run, err)
	if len(troubles) == 0 || !i.watched(run.Settings) {
		return i.failure(ctx, target, steps.Closing(run, err))
	}

	for n := range troubles {
		for _, text := range []*string{&troubles[n].Cause, &troubles[n].Evidence, &troubles[n].Next} {
			*text = i.hint(*text)
		}
	}

	report.ShowTroubles(i.Err, i.consoleOptions(run.Settings, run.Clock), troubles)

	if run.Unheard {
		return i.failure(ctx, target, steps.Closing(run, err))
	}

	told := errors.New(target + " failed, as told above")

	return i.failure(ctx, target, &steps.Failure{Code: steps.CodeOf(err), Err: told})
}

func (i Invocation) failure(ctx context.Context, target string, err error) *Failure {
	if code, reason := interruption(ctx); code != diagnosis.ExitOK {
		return i.interrupted(ctx, target, code, reason)
	}

	if err == nil {
		return nil
	}

	failed := i.fail(steps.CodeOf(err), err.Error())
	failed.Err = err

	return failed
}

func (i Invocation) interrupted(ctx context.Context, target string, code diagnosis.ExitCode, reason error) *Failure {
	text := fmt.Sprintf("%s; what was done is shown above. Next: mage %s continues from here", reason, target)

	if i.Embedded != nil {
		reason = context.Cause(ctx)
		text = fmt.Sprintf("stopped: %v. Next: the same run again continues from here", reason)
	}

	failed := i.fail(code, text)
	failed.Err = reason

	return failed
}

func (i Invocation) badInput(err error) *Failure {
	code := diagnosis.ExitBadInput

	if problem, ok := diagnosis.AsProblem(err); ok {
		code = problem.ExitCode()
	}

	return i.fail(code, err.Error())
}

// columns writes rows with aligned columns.
func (i Invocation) columns(rows [][]string) {
	fmt.Fprint(i.Out, report.Scrub(report.Columns(rows, report.Width(i.Out), nil)))
}
