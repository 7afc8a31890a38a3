package faults_test

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/syncbuffer"
	"github.com/talos-mage/talos-mage/internal/cli/invocation"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/test/emulatortest"
)

const (
	// timeScale is how many times faster than the wall clock machines live, and runs wait.
	timeScale = 50
	// atOnce is how many tests run at the same time: most of the time they wait.
	atOnce = 20
	// patience is a limit of the wall clock that no run comes near, however busy the computer.
	patience = 5 * time.Minute
)

func TestMain(m *testing.M) {
	if err := proxy.start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	os.Exit(emulatortest.Run(m, atOnce))
}

// playedTalos is the release that machines run, and files are for, where a fault does not say: the one that
// FAULTS_TALOS names, as in FAULTS_TALOS=v1.14.1.
func playedTalos() string { return cmp.Or(os.Getenv("FAULTS_TALOS"), emulator.DefaultTalosVersion) }

// playedContract is the form of its machine configs: FAULTS_CONTRACT=v1.14 has them made in documents.
func playedContract() string { return os.Getenv("FAULTS_CONTRACT") }

// newerThan112 reports whether the machines run a Talos that takes one apply at a time.
func newerThan112() bool { return !strings.HasPrefix(playedTalos(), "v1.12.") }

// olderForm reports whether machine configs are in the form up to Talos 1.13, with an install section.
func olderForm() bool { return playedContract() == "" }

// showsInstalling reports whether machines have an API, and a stage of their own, while they install.
func showsInstalling() bool { return newerThan112() && olderForm() }

// world is a cluster of emulated machines and the folder that an operator works in.
type world struct {
	*labcluster.Cluster
	// root is the operator's repository.
	root string
	// settings are those of every run.
	settings []string
	// secrets must not be in any output.
	secrets []string
	// others are machines of the lab that are not the inventory's.
	others []string
	// restores is how many etcd clusters the target that is run is to make from snapshots.
	restores int
}

// newWorld writes the files of a cluster and switches its machines on, each as edit makes it. No number of control
// planes means one, and no number of workers none. The machines have yet to boot.
func newWorld(t *testing.T, options labcluster.Options,
	edit func(t *testing.T, w *world, machine *emulator.NodeOptions)) *world {
	t.Helper()

	if options.ControlPlanes == 0 {
		options.ControlPlanes = 1
	}

	if options.Workers == 0 {
		options.Workers = -1
	}

	if options.TalosVersion == "" {
		options.TalosVersion, options.Contract = playedTalos(), playedContract()
	}

	options.Off = true
	if options.LabOptions.TimeScale == 0 {
		options.LabOptions.TimeScale = timeScale
	}

	// Long enough for every test: the limits that a fault needs are set with it.
	if options.Timing.EtcdJoinLimit == 0 {
		options.Timing.EtcdJoinLimit = 24 * time.Hour
	}

	root := t.TempDir()
	made, err := labcluster.New(filepath.Join(root, "talos"), options)
	require.NoError(t, err)

	w := &world{Cluster: made, root: root}
	t.Cleanup(func() { w.close(t) })

	w.settings = []string{
		"ROOT_DIR=" + root,
		"TALOS_DIR=" + made.Dir,
		"TALOSCONFIG=" + made.Talosconfig(),
		"KUBECONFIG=" + filepath.Join(root, "kubeconfig"),
		"PATH=" + filepath.Join(root, "bin"),
		"CLOCK_SCALE=" + strconv.FormatFloat(made.Scale, 'f', -1, 64),
		// Clusters of one test process share a certificate authority, by which the lock's file is named.
		"TMPDIR=" + root,
		// Limits of a single call are the wall's time. They are waited for only where a machine does not answer.
		"DIAL_TIMEOUT=" + dialTimeout,
		"APPLY_TIMEOUT=" + applyTimeout,
		"NODE_REACHABILITY_RETRIES=1",
		"APPLY_MODE=parallel",
		"MAX_PARALLEL=100%",
	}
	w.secrets = secretsOf(t, made)

	for _, spec := range made.Generated.Options.Nodes {
		machine := emulator.NodeOptions{
			Name: spec.Name, Address: netip.MustParseAddr(spec.Declared), Links: labcluster.Links(spec), Timing: options.Timing,
			TalosVersion: options.TalosVersion,
		}

		if edit != nil {
			edit(t, w, &machine)
		}

		_, err := made.Lab.Start(machine)
		require.NoError(t, err)
	}

	return w
}

// close switches the machines off. Of a test that failed it shows what they lived through.
func (w *world) close(t *testing.T) {
	t.Helper()

	if t.Failed() {
		for _, node := range w.Lab.Nodes() {
			t.Logf("%s, %s, changed by %v:\n%s", node.Name(), node.Stage(), node.MutatingCalls(),
				strings.Join(node.Console(), "\n"))
		}
	}

	require.NoError(t, w.Close())
}

// targets are what can be typed, and the steps of each.
var targets = map[string]func(*settings.Settings) []steps.Step{
	"talos":           steps.Talos,
	"preflight":       only(steps.Preflight{}),
	"applySequential": only(steps.Apply{}),
	"applyParallel":   only(steps.Apply{Parallel: true}),
	"verify":          only(steps.Verify{}),
	"bootstrap":       only(steps.Bootstrap{}),
	"kubeconfig":      only(steps.Kubeconfig{}),
	"upgradeK8s":      only(steps.UpgradeK8s{}),
	"reset":           only(steps.Reset{}),
	upgradeTarget:     only(steps.Upgrade{}),
	"health":          func(*settings.Settings) []steps.Step { return []steps.Step{&steps.Health{}} },
	rotateTarget:      only(steps.Rotate{}),
	appsTarget:        only(steps.Apps{}),

	snapshotTarget:      only(steps.EtcdSnapshot{}),
	defragTarget:        only(steps.EtcdDefrag{}),
	"etcd:removeMember": only(steps.EtcdRemoveMember{}),
	"etcd:recover":      only(steps.EtcdRecover{}),
	"replaceNode":       steps.ReplaceNode,
}

func only(step steps.Step) func(*settings.Settings) []steps.Step {
	return func(*settings.Settings) []steps.Step { return []steps.Step{step} }
}

// outcome is how a run ended, and everything that a person could have seen of it.
type outcome struct {
	target string
	code   diagnosis.ExitCode
	// message is what is said last: a line for each thing that failed.
	message        string
	stdout, stderr string
	// events are those of the report.
	events []event
}

// told is everything at once, for a look at a run that went otherwise than expected.
func (o outcome) told() string {
	return fmt.Sprintf("exit code %d\n--- stdout\n%s--- stderr\n%s--- message\n%s", o.code, o.stdout, o.stderr, o.message)
}

// run makes one call of the program in this process. Overrides go over the world's settings.
func (w *world) run(t *testing.T, target string, overrides ...string) outcome {
	t.Helper()

	require.Contains(t, targets, target)

	folder := t.TempDir()
	reports := filepath.Join(folder, "report.jsonl")

	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()

	var out, errs syncbuffer.Buffer

	environ, flags := emulatortest.Settings(slices.Concat([]string{"REPORT_FILE=" + reports}, w.settings, overrides))
	call := invocation.Invocation{Environ: environ, Workdir: w.root, Out: &out, Err: &errs}
	failure := call.Execute(ctx, target, flags, targets[target])

	got := outcome{target: target, stdout: out.String(), stderr: errs.String(), events: readEvents(t, reports)}
	if failure != nil {
		got.code, got.message = failure.Code, failure.Message
	}

	require.NoError(t, ctx.Err(), "the run went on for %s of the wall clock\n%s", patience, got.told())
	w.holdsSecrets(t, got, reports)

	return got
}

// ends is a run that has to end with a code.
func (w *world) ends(t *testing.T, code diagnosis.ExitCode, target string, overrides ...string) outcome {
	t.Helper()

	got := w.run(t, target, overrides...)
	require.Equal(t, code, got.code, "mage %s\n%s", target, got.told())

	return got
}

// eventually waits for something that nobody announces.
func eventually(t *testing.T, holds func() bool, what ...any) {
	t.Helper()
	require.Eventually(t, holds, labcluster.Deadline, 2*time.Millisecond, what...)
}

// until waits for a machine.
func until(t *testing.T, node *emulator.Node, condition func(*emulator.Node) bool) {
	t.Helper()

	waiting, stop := context.WithTimeout(t.Context(), labcluster.Deadline)
	defer stop()

	require.NoError(t, node.WaitFor(waiting, condition))
}

// inStage reports whether a machine is in a stage.
func inStage(stage string) func(*emulator.Node) bool {
	return func(node *emulator.Node) bool { return node.Stage() == stage }
}

// inMaintenance waits until machines can take a config.
func (w *world) inMaintenance(t *testing.T, names ...string) {
	t.Helper()

	for _, name := range names {
		until(t, w.Node(name), inStage("maintenance"))
	}
}

// fault makes calls of a machine go wrong.
func (w *world) fault(name string, faults ...emulator.CallFault) {
	w.Node(name).Set(func(f *emulator.Faults) { f.Calls = append(f.Calls, faults...) })
}

// heal takes all faults of a machine away.
func (w *world) heal(name string) {
	w.Node(name).Set(func(f *emulator.Faults) { *f = emulator.Faults{} })
}

// dial opens a connection as any client does.
func dial(t *testing.T, address string) (net.Conn, error) {
	t.Helper()

	return (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "tcp", address)
}
