package states_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/test/e2e/program"
	"github.com/talos-mage/talos-mage/internal/test/emulatortest"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

const (
	// timeScale is how many times faster than the wall clock nodes live, and the program waits.
	timeScale = 50
	// atOnce is how many tests run at the same time: most of the time they wait.
	atOnce = 6
)

// talosMage is the compiled program.
var talosMage string

func TestMain(m *testing.M) {
	os.Exit(compileAndRun(m))
}

func compileAndRun(m *testing.M) int {
	path, err := program.Compile(filepath.Join("..", "..", "..", ".."))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)

		return 1
	}
	defer os.RemoveAll(filepath.Dir(path))

	talosMage = path

	if err := lieBeside(path, "talosctl", "kubectl"); err != nil {
		fmt.Fprintln(os.Stderr, err)

		return 1
	}

	return emulatortest.Run(m, atOnce)
}

// lieBeside makes programs be there for whoever looks: the operator of these tests has all that hints name.
func lieBeside(path string, names ...string) error {
	for _, name := range names {
		if err := os.Symlink(path, filepath.Join(filepath.Dir(path), name)); err != nil {
			return err
		}
	}

	return nil
}

// world is a cluster of emulated machines and the folder that an operator works in.
type world struct {
	*labcluster.Cluster
	// root is the operator's repository.
	root string
	// settings are those of every command.
	settings []string
}

// newWorld writes the files of a cluster and switches its machines on, each as edit makes it, until they can be asked.
// No workers means none.
func newWorld(t *testing.T, options labcluster.Options, edit func(w *world, machine *emulator.NodeOptions)) *world {
	t.Helper()

	if options.Workers == 0 {
		options.Workers = -1
	}

	options.Off, options.LabOptions.TimeScale = true, timeScale
	root := t.TempDir()

	made, err := labcluster.New(filepath.Join(root, "talos"), options)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			for _, node := range made.Lab.Nodes() {
				t.Logf("%s, %s:\n%s", node.Name(), node.Stage(), strings.Join(node.Console(), "\n"))
			}
		}

		require.NoError(t, made.Close())
	})

	w := &world{Cluster: made, root: root}
	w.settings = []string{
		"ROOT_DIR=" + root,
		"TALOS_DIR=" + made.Dir,
		"KUBECONFIG=" + w.kubeconfig(),
		"CLOCK_SCALE=" + strconv.Itoa(timeScale),
		// Clusters of one test process share a certificate authority, by which the lock's file is named.
		"TMPDIR=" + t.TempDir(),
		"PATH=" + filepath.Dir(talosMage) + string(filepath.ListSeparator) + os.Getenv("PATH"),
	}

	for _, spec := range made.Generated.Options.Nodes {
		machine := emulator.NodeOptions{
			Name: spec.Name, Address: netip.MustParseAddr(spec.Declared), Links: []emulator.Link{{Name: "eth0", MAC: spec.MAC}},
			Timing:       options.Timing,
			TalosVersion: made.Generated.Options.TalosVersion,
		}

		if edit != nil {
			edit(w, &machine)
		}

		_, err := made.Lab.Start(machine)
		require.NoError(t, err)
	}

	for _, node := range made.Lab.Nodes() {
		settled(t, node)
	}

	return w
}

func (w *world) kubeconfig() string { return filepath.Join(w.root, "kubeconfig") }

// start starts a command; env goes over the world's settings.
func (w *world) start(t *testing.T, env []string, args ...string) *program.Process {
	t.Helper()

	process, err := program.Start(w.root, program.Environment(append(w.settings, env...)...),
		append([]string{talosMage}, args...)...)
	require.NoError(t, err)
	t.Cleanup(func() { process.Signal(os.Kill) }) //nolint:errcheck // it has ended, as a rule

	return process
}

// run runs a command to its end.
func (w *world) run(t *testing.T, env []string, args ...string) program.Outcome {
	t.Helper()

	return ended(t, w.start(t, env, args...))
}

func ended(t *testing.T, process *program.Process) program.Outcome {
	t.Helper()

	got, err := process.Wait()
	require.NoError(t, err)
	require.NotContains(t, got.Stderr, "goroutine ", "no stack trace is for people")

	return got
}

// ends runs a command and requires its exit code.
func (w *world) ends(t *testing.T, code int, env []string, args ...string) program.Outcome {
	t.Helper()

	got := w.run(t, env, args...)
	require.Equal(t, code, got.Code, "%v\n%s%s", args, got.Stdout, got.Stderr)

	return got
}

// changes are the calls that changed a machine, as "cp1 ApplyConfiguration", machine by machine and in the order they
// came.
func (w *world) changes() []string {
	made := []string{}

	for _, node := range w.Lab.Nodes() {
		for _, call := range node.MutatingCalls() {
			made = append(made, node.Name()+" "+call.Name())
		}
	}

	return made
}

// since are the changes that came after earlier ones.
func (w *world) since(earlier []string) []string {
	counts := map[string]int{}
	for _, change := range earlier {
		counts[change]++
	}

	made := []string{}

	for _, change := range w.changes() {
		if counts[change]--; counts[change] < 0 {
			made = append(made, change)
		}
	}

	return made
}

// files are the digests of every file of the operator but the records of runs.
func (w *world) files(t *testing.T) map[string]string {
	t.Helper()

	found := map[string]string{}

	require.NoError(t, filepath.WalkDir(w.root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || strings.Contains(path, ".talos-mage") {
			return err
		}

		data, err := os.ReadFile(path)
		found[path] = fmt.Sprintf("%x", sha256.Sum256(data))

		return err
	}))

	return found
}

// edit changes the text of a file.
func edit(t *testing.T, path string, change func(string) string) {
	t.Helper()

	data, err := os.ReadFile(path)
	require.NoError(t, err)

	changed := change(string(data))
	require.NotEqual(t, string(data), changed, "the change must hit something")
	require.NoError(t, os.WriteFile(path, []byte(changed), 0o600))
}

// replace is an edit of one text by another.
func replace(t *testing.T, path, old, new string) {
	t.Helper()

	edit(t, path, func(text string) string { return strings.ReplaceAll(text, old, new) })
}

// until waits for a machine.
func until(t *testing.T, node *emulator.Node, condition func(*emulator.Node) bool) {
	t.Helper()

	waiting, stop := context.WithTimeout(t.Context(), labcluster.Deadline)
	defer stop()

	require.NoError(t, node.WaitFor(waiting, condition))
}

// settled waits until a machine has come as far as it can without its cluster: in maintenance, running, with an etcd
// that waits for others, or with something else in its place.
func settled(t *testing.T, node *emulator.Node) {
	t.Helper()

	eventually(t, func() bool {
		if node.Faults().Impostor != emulator.NoImpostor {
			conn, err := net.Dial("tcp", node.Endpoint())
			if err == nil {
				conn.Close()
			}

			return err == nil
		}

		return inStage("maintenance", "running")(node) ||
			strings.Contains(strings.Join(node.Console(), "\n"), "etcd is waiting to join the cluster")
	})
}

func inStage(stages ...string) func(*emulator.Node) bool {
	return func(node *emulator.Node) bool {
		for _, stage := range stages {
			if node.Stage() == stage {
				return true
			}
		}

		return false
	}
}

// eventually waits for something that nobody announces.
func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, labcluster.Deadline, 5*time.Millisecond)
}

// logLine is a line of the old scripts' look.
var logLine = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ (DEBUG|INFO|WARN|ERROR) `)

// told is what a command tells a person: exit code, results, and the lines on stderr that are no log lines; without
// what differs from run to run.
func (w *world) told(got program.Outcome) string {
	var last strings.Builder

	for line := range strings.Lines(got.Stderr) {
		if !logLine.MatchString(line) {
			last.WriteString(line)
		}
	}

	return fmt.Sprintf("exit code %d\n--- stdout\n%s--- stderr, without log lines\n%s", got.Code, w.normal(got.Stdout),
		w.normal(last.String()))
}

var unsteady = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`\((\d+ attempts, )?[\dhms.]+s\)`), "(<time>)"},
	{regexp.MustCompile(`\b(\d+h)?(\d+m)?\d+(\.\d+)?s\b`), "<time>"},
	{regexp.MustCompile(`(52:54:0[01])(:[0-9a-f]{2}){2}`), "$1:00:00"},
	{regexp.MustCompile(`sha256 [0-9a-f]{8}`), "sha256 <sum>"},
	{regexp.MustCompile(`etcd member [0-9a-f]{16}`), "etcd member <id>"},
	{regexp.MustCompile(`(?m)^[0-9a-f]{16}  `), "<id>  "},
	{regexp.MustCompile(`:\d{5}->`), ":<port>->"},
	{regexp.MustCompile(`\b20\d\d-\d\d-\d\d\b`), "<date>"},
	{regexp.MustCompile(`gave up after \d+ attempts`), "gave up after <n> attempts"},
	{regexp.MustCompile(`(\S)   +`), "$1  "},
	{regexp.MustCompile(`  +\n`), "\n"},
}

func (w *world) normal(text string) string {
	prefix := w.Lab.Prefix().Addr().String()
	text = strings.ReplaceAll(text, strings.TrimSuffix(prefix, "0"), "192.0.2.")
	text = strings.ReplaceAll(text, w.root, "<root>")

	for _, what := range unsteady {
		text = what.pattern.ReplaceAllString(text, what.instead)
	}

	return text
}

// tells compares what a command told with the golden file of the test's name.
func (w *world) tells(t *testing.T, got program.Outcome) {
	t.Helper()
	w.tellsAs(t, "", got)
}

// tellsAs does so for a test of several commands.
func (w *world) tellsAs(t *testing.T, command string, got program.Outcome) {
	t.Helper()

	name := strings.NewReplacer(" ", "-", ",", "").Replace(filepath.Join(t.Name(), command))
	golden.Assert(t, filepath.Join("testdata", filepath.FromSlash(name)+".txt"), w.told(got))
}
