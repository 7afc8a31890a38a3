package steps_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/clock"
	"github.com/talos-mage/talos-mage/internal/base/syncbuffer"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/test/emulatortest"
	"github.com/talos-mage/talos-mage/internal/test/recording"
)

// atOnce is how many tests run at the same time: they wait most of the time, so more of them than there are processors.
const atOnce = 16

func TestMain(m *testing.M) {
	recording.Serve()

	if folder := os.Getenv(labFolder); folder != "" {
		os.Exit(serveLab(folder))
	}

	if folder := os.Getenv(victimFolder); folder != "" {
		os.Exit(runUntilKilled(folder))
	}

	os.Exit(emulatortest.Run(m, atOnce))
}

// scale is how many times faster than the wall clock the machines live and the steps wait.
const scale = 40

// lab is a cluster of emulated machines, and the files that an operator has for it.
type lab struct {
	*labcluster.Cluster
	folder string
}

// newLab switches machines on; no workers means none.
func newLab(tb testing.TB, controlPlanes, workers int, change ...func(*labcluster.Options)) *lab {
	tb.Helper()

	if workers == 0 {
		workers = -1
	}

	folder := tb.TempDir()
	options := labcluster.Options{ControlPlanes: controlPlanes, Workers: workers,
		LabOptions: emulator.LabOptions{TimeScale: scale}}

	for _, change := range change {
		change(&options)
	}

	cluster, err := labcluster.New(filepath.Join(folder, "talos"), options)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		if tb.Failed() {
			for _, node := range cluster.Nodes {
				tb.Logf("%s, %s, calls %v", node.Name(), node.Stage(), changesOf(node))
			}
		}

		require.NoError(tb, cluster.Close())
	})

	return &lab{cluster, folder}
}

// edit changes one machine before it is switched on.
func edit(name string, change func(*emulator.NodeOptions)) func(*labcluster.Options) {
	return func(options *labcluster.Options) {
		before := options.Edit
		options.Edit = func(node *emulator.NodeOptions) {
			if before != nil {
				before(node)
			}

			if node.Name == name {
				change(node)
			}
		}
	}
}

// patience is a limit of the wall clock that no run comes near, however busy the machine.
const patience = 5 * time.Minute

// applyTimeout bounds a call whose reply is lost: like all limits of a single call it is the wall's time.
const applyTimeout = "APPLY_TIMEOUT=10s"

// session is one run of some steps, with everything a person would see of it.
type session struct {
	*steps.Run
	*report.Recorder
	out   *syncbuffer.Buffer
	lines *board
	err   error
}

// environ are the settings that suit a test, with these over them.
func (l *lab) environ(over ...string) []string {
	return append([]string{
		"PATH=" + filepath.Join(l.folder, "bin"),
		"TMPDIR=" + l.folder,
		"ROOT_DIR=" + l.folder,
		"TALOS_DIR=" + l.Dir,
		"KUBECONFIG=" + filepath.Join(l.folder, "kubeconfig"),
		"LOG_LEVEL=debug",
		dialTimeout,
		applyTimeout,
		"NODE_REACHABILITY_RETRIES=1",
	}, over...)
}

// session reads the files as the program does, with these settings over the ones that suit a test.
func (l *lab) session(tb testing.TB, over ...string) *session {
	tb.Helper()

	environ, flags := emulatortest.Settings(l.environ(over...))

	loaded, err := settings.Load(environ, flags, l.folder)
	require.NoError(tb, err)

	s := &session{out: &syncbuffer.Buffer{}, lines: &board{}}
	timepiece := clock.Scaled(l.Scale)
	console := report.NewConsole(report.ConsoleOptions{Out: s.out, Err: s.out, LogFormat: loaded.LogFormat,
		LogLevel: loaded.LogLevel, Now: timepiece.Now})
	s.Recorder = report.NewRecorder(timepiece.Now, console, report.NewLogSink(console.Logger()), s.lines)

	s.Run, err = steps.New(tb.Context(), loaded, environ, s.Recorder, console.Logger(), timepiece)
	require.NoError(tb, err)

	s.NewSecrets = func(string) (*secrets.Bundle, error) { return clusterfiles.NewSecrets() }

	return s
}

// do executes steps and keeps their error.
func (s *session) do(tb testing.TB, list ...steps.Step) *session {
	tb.Helper()

	ctx, stop := context.WithTimeout(tb.Context(), patience)
	defer stop()

	s.err = steps.Execute(ctx, s.Run, list...)
	require.NoError(tb, ctx.Err(), "it went on for %s of the wall clock\n%s", patience, s.out)
	require.NoError(tb, s.Recorder.Close())

	return s
}

// succeeds executes steps that have to end well.
func (s *session) succeeds(tb testing.TB, list ...steps.Step) *session {
	tb.Helper()

	s.do(tb, list...)
	require.NoError(tb, s.err, s.out)

	return s
}

// fails executes steps that have to end with a code, and with a problem of this kind, which it gives.
func (s *session) fails(t *testing.T, code diagnosis.ExitCode, id diagnosis.ID, list ...steps.Step) *diagnosis.Problem {
	t.Helper()

	s.do(t, list...)
	require.Error(t, s.err, s.out)
	require.Equal(t, code, steps.CodeOf(s.err), "%v\n%s", s.err, s.out)

	problem, ok := diagnosis.AsProblem(s.err)
	require.True(t, ok, s.err)
	require.Equal(t, id, problem.ID, "%v\n%s", s.err, s.out)

	return problem
}

// recipe is the whole bring-up.
func (s *session) recipe() []steps.Step { return steps.Talos(s.Settings) }

// status is how a step ended for a node; the last result counts.
func (s *session) status(step, node string) report.Status {
	var status report.Status

	for _, result := range s.Results() {
		if result.Step == step && result.Node == node {
			status = result.Status
		}
	}

	return status
}

// detail is what a step remarked about a node.
func (s *session) detail(step, node string) string {
	detail := ""

	for _, result := range s.Results() {
		if result.Step == step && result.Node == node {
			detail = result.Detail
		}
	}

	return detail
}

func changesOf(node *emulator.Node) []string {
	var names []string
	for _, call := range node.MutatingCalls() {
		names = append(names, call.Name())
	}

	return names
}

// calls counts the calls of a method that a machine received.
func calls(node *emulator.Node, method string) int {
	count := 0

	for _, call := range node.Calls() {
		if call.Name() == method {
			count++
		}
	}

	return count
}

// applied counts the configs that were sent to a machine, dry runs aside.
func applied(node *emulator.Node) int {
	return strings.Count(strings.Join(changesOf(node), " "), "ApplyConfiguration")
}

// bootstraps counts the Bootstrap calls that the lab's machines received, and those that took effect.
func (l *lab) bootstraps() (sent, effective int) {
	for _, node := range l.Nodes {
		for _, call := range node.Calls() {
			if call.Name() == "Bootstrap" {
				sent++

				if call.Succeeded() {
					effective++
				}
			}
		}
	}

	return sent, effective
}

// wait waits until a machine is in some condition.
func wait(tb testing.TB, node *emulator.Node, condition func(*emulator.Node) bool) {
	tb.Helper()

	ctx, stop := context.WithTimeout(tb.Context(), labcluster.Deadline)
	defer stop()

	require.NoError(tb, node.WaitFor(ctx, condition))
}

// inStage reports whether a machine is in a stage.
func inStage(stage string) func(*emulator.Node) bool {
	return func(node *emulator.Node) bool { return node.Stage() == stage }
}

// untilMaintenance waits for all machines that are on.
func (l *lab) untilMaintenance(tb testing.TB, except ...string) {
	tb.Helper()

	for _, node := range l.Nodes {
		if !strings.Contains(strings.Join(except, " "), node.Name()) {
			wait(tb, node, inStage("maintenance"))
		}
	}
}

// installed gives the machines their configs and waits until the control planes are installed and wait for a bootstrap.
func (l *lab) installed(t *testing.T) {
	t.Helper()

	l.untilMaintenance(t)
	l.session(t, "MAX_PARALLEL=100%").succeeds(t, steps.Apply{Parallel: true}, steps.Verify{})
}

// up brings the cluster up.
func (l *lab) up(t *testing.T) {
	t.Helper()

	l.untilMaintenance(t)
	s := l.session(t, "APPLY_MODE=parallel", "MAX_PARALLEL=100%")
	s.succeeds(t, s.recipe()...)
}

// changeFile replaces text in a machine's config file.
func (l *lab) changeFile(t *testing.T, name, before, after string) {
	t.Helper()

	data, err := l.Config(name)
	require.NoError(t, err)
	require.Contains(t, string(data), before)
	require.NoError(t, os.WriteFile(l.ConfigFile(name), []byte(strings.Replace(string(data), before, after, 1)), 0o600))
}

// tuned is a setting that tuned adds.
const tunedSetting = "net.core.somaxconn"

// tuned adds a kernel setting to a machine's config file: a change that needs no reboot.
func (l *lab) tuned(t *testing.T, name string) {
	t.Helper()

	l.changeFile(t, name, "machine:\n", "machine:\n  sysctls:\n    "+tunedSetting+": \"65535\"\n")
}

// fault makes calls of a machine go wrong.
func fault(node *emulator.Node, faults ...emulator.CallFault) {
	node.Set(func(f *emulator.Faults) { f.Calls = append(f.Calls, faults...) })
}

// seconds is a setting of so many seconds.
func seconds(name string, number int) string { return fmt.Sprintf("%s=%d", name, number) }

// applyInsecurely sends a config to a machine in maintenance, as another tool would.
func (l *lab) applyInsecurely(t *testing.T, name string, data []byte) {
	t.Helper()

	made, err := client.New(t.Context(),
		client.WithTLSConfig(&tls.Config{InsecureSkipVerify: true}), //nolint:gosec // a node in maintenance has a certificate of its own
		client.WithEndpoints(l.Node(name).Endpoint()))
	require.NoError(t, err)

	_, err = made.ApplyConfiguration(t.Context(),
		&machine.ApplyConfigurationRequest{Data: data, Mode: machine.ApplyConfigurationRequest_AUTO})
	require.NoError(t, err)
	require.NoError(t, made.Close())
}
