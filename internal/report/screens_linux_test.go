package report_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/test/fakeclock"
	"github.com/talos-mage/talos-mage/internal/test/golden"
	"github.com/talos-mage/talos-mage/internal/test/tmux"
)

// playing names the scene that this test's program plays on its terminal, instead of running tests.
const playing = "REPORT_SCENE"

func TestMain(m *testing.M) {
	if scene := os.Getenv(playing); scene != "" {
		play := newPlay()
		scenes[scene](play)
		os.Exit(0) //nolint:forbidigo // no test was run
	}

	os.Exit(m.Run()) //nolint:forbidigo // as without this function
}

// scenePlay is a run that a scene makes up.
type scenePlay struct {
	*report.Recorder
	clock   *fakeclock.Clock
	options report.ConsoleOptions
	log     zerolog.Logger
	keys    *bufio.Reader
}

func newPlay() *scenePlay {
	clk := fakeclock.New(start)
	options := report.Terminals(os.Stdout, os.Stderr, os.Getenv("NO_COLOR") != "")
	options.Now, options.Brief = clk.Now, true
	options.Verbose = os.Getenv("VERBOSE") != ""
	options.Emulated = os.Getenv("EMULATED") != ""

	console := report.NewConsole(options)
	sinks := []report.Sink{console}

	if options.Verbose {
		sinks = append(sinks, report.NewLogSink(console.Logger()))
	}

	return &scenePlay{Recorder: report.NewRecorder(clk.Now, sinks...), clock: clk, options: options,
		log: console.Logger(), keys: bufio.NewReader(os.Stdin)}
}

// untilKey goes on when the test has looked, and presses Enter.
func (p *scenePlay) untilKey() { _, _ = p.keys.ReadString('\n') }

// named are so many nodes, with their addresses.
func named(count int) (names []string, address func(node string) string) {
	addresses := map[string]string{}

	for i := range count {
		name := fmt.Sprintf("worker%d", i-2)
		if i < 3 {
			name = fmt.Sprintf("cp%d", i+1)
		}

		names = append(names, name)
		addresses[name] = fmt.Sprintf("192.0.2.%d", 11+i)
	}

	return names, func(node string) string { return addresses[node] }
}

// all has nodes come to the same.
func (p *scenePlay) all(step string, nodes []string, address func(string) string, status report.Status, detail string) {
	p.Start(step, nodes...)

	for _, node := range nodes {
		p.Result(report.Result{Node: node, Address: address(node), Step: step, Status: status, Detail: detail,
			Attempts: 1, Duration: 100 * time.Millisecond})
	}

	p.Finish(step, 200*time.Millisecond, nil)
}

// cluster has a step come to something for the cluster.
func (p *scenePlay) cluster(step string, status report.Status, detail string) {
	p.Start(step)
	p.Result(report.Result{Step: step, Status: status, Detail: detail})
	p.Finish(step, 0, nil)
}

// silent is what the last worker of a bring-up fails with.
func silent(node, address string) *diagnosis.Problem {
	return diagnosis.Finding{
		ID: "TM080", Severity: diagnosis.Failure, Node: node, Address: address,
		Cause: "it gave no answer for 15m0s, and the machine at its address may be switched off, or in another network " +
			"than this computer can reach\nlast seen  2026-01-04 17:40:35  installing",
		Next: "switch it on, then mage applySequential -node=" + node + " -discover -certFingerprints=YWJjZGVmZ2hpams=",
	}.Problem("verify", nil)
}

var scenes = map[string]func(*scenePlay){
	// A bring-up of six nodes, whose last worker never answers.
	"failing": func(p *scenePlay) {
		nodes, address := named(6)
		p.cluster("secrets", report.Skipped, "talos/talsecret.sops.yaml is there")
		p.Start("preflight", nodes...)
		p.Finding("preflight", diagnosis.Finding{ID: "TM044", Node: "cp1", Cause: "runs Talos v1.14.1"})
		p.Finding("preflight", diagnosis.Finding{
			ID: "TM054", Severity: diagnosis.Warning, Node: "cp2", Address: address("cp2"),
			Cause: "has no link ens19, which /home/somebody/clusters/production/talos/patches/controlplane-network.yaml names",
			Next:  "correct the patch, then mage config:generate",
		})

		for _, node := range nodes {
			p.Result(report.Result{Node: node, Address: address(node), Step: "preflight", Status: report.OK,
				Detail: "maintenance"})
		}

		p.Finish("preflight", 400*time.Millisecond, nil)
		p.all("applySequential", nodes, address, report.Applied, "config sent")
		p.Start("verify", nodes...)
		p.Progress("verify", report.Progress{Node: "cp2", Text: "installing", Since: p.clock.Now(), Left: 30 * time.Minute})
		p.Progress("verify", report.Progress{Node: "cp1", Text: "waits after failed attempt 2", Since: p.clock.Now(),
			Left: 12 * time.Second})
		p.Progress("verify", report.Progress{Node: "cp3", Text: "waiting for trustd, whose port 50001 the control planes " +
			"have not opened yet, as their firewall's rules tell", Since: p.clock.Now(), Left: 15 * time.Minute})
		p.clock.Advance(5 * time.Second)
		p.Result(report.Result{Node: "worker3", Address: address("worker3"), Step: "verify", Status: report.Failed,
			Attempts: 3, Duration: 5 * time.Second, Err: silent("worker3", address("worker3"))})
		p.log.Warn().Str("node", "cp1").Msg("the node warns: its disk is slow")
		p.untilKey()

		for _, node := range []string{"cp1", "cp2", "cp3", "worker1"} {
			p.Result(report.Result{Node: node, Address: address(node), Step: "verify", Status: report.OK, Detail: "running",
				Attempts: 1, Duration: 5 * time.Second})
		}

		p.Result(report.Result{Node: "worker2", Address: address("worker2"), Step: "verify", Status: report.Drifted,
			Detail: "running, differs from talos/clusterconfig/lab-worker2.yaml", Duration: 5 * time.Second})
		p.Finish("verify", 5*time.Second, silent("worker3", address("worker3")))
		_ = p.Close()
		report.ShowTroubles(os.Stderr, p.options, []report.Trouble{report.TroubleOf(silent("worker3", address("worker3")),
			[]string{"worker3 (" + address("worker3") + ")"}, p.Results())})
	},
	// A second run that finds nothing to do.
	"nothing to do": func(p *scenePlay) {
		nodes, address := named(6)
		p.cluster("secrets", report.Skipped, "talos/talsecret.sops.yaml is there")
		p.cluster("configs", report.Skipped, "6 machine configs and the talosconfig are as declared")
		p.all("preflight", nodes, address, report.OK, "running")
		p.all("applySequential", nodes, address, report.Skipped, "has its config")
		p.all("verify", nodes, address, report.OK, "running")
		p.Start("bootstrap", nodes[:3]...)

		for i, node := range nodes[:3] {
			p.Result(report.Result{Node: node, Address: address(node), Step: "bootstrap", Status: report.Skipped,
				Detail: fmt.Sprintf("etcd member %016x", 1000+i)})
		}

		p.Finish("bootstrap", 0, nil)
		p.cluster("kubeconfig", report.Skipped, "kubeconfig is good")
		p.cluster("applySequential", report.Skipped, "no worker had to wait for bootstrap")
		p.Start("verifyWorkers", nodes[3:]...)
		p.Finding("verifyWorkers", diagnosis.Finding{ID: "TM139",
			Cause: "6 nodes NotReady: expected until a CNI is installed (CNI none)", Next: "install your CNI"})
		p.Finish("verifyWorkers", 0, nil)
		_ = p.Close()
	},
	// A hundred nodes, of which most are busy, and more have failed than find room.
	"a hundred": func(p *scenePlay) {
		nodes, address := named(100)
		p.Start("verify", nodes...)

		for i, node := range nodes {
			switch {
			case i < 3:
				p.Result(report.Result{Node: node, Address: address(node), Step: "verify", Status: report.OK, Detail: "running"})
			case i < 20:
				p.Result(report.Result{Node: node, Address: address(node), Step: "verify", Status: report.Failed,
					Err: silent(node, address(node))})
			case i < 60:
				p.Progress("verify", report.Progress{Node: node, Text: "installing", Since: p.clock.Now(), Left: 30 * time.Minute})
			case i < 90:
				p.Progress("verify", report.Progress{Node: node, Text: "no answer", Since: p.clock.Now(), Left: 15 * time.Minute})
			}
		}

		p.clock.Advance(42 * time.Second)
		p.untilKey()
		p.Finish("verify", 42*time.Second, errors.New("17 nodes failed"))
		_ = p.Close()
	},
}

// onTerminal plays a scene.
func onTerminal(t *testing.T, scene string, width, height int, environ ...string) *tmux.Terminal {
	t.Helper()

	return tmux.Start(t, width, height, os.Args[0], append(environ, playing+"="+scene)...)
}

func assertScreen(t *testing.T, name, shown string) {
	t.Helper()
	golden.Assert(t, filepath.Join("testdata", "screens", name+".txt"), shown)
}

// What a person sees of a bring-up whose last worker never answers, while it runs and after it.
func TestAFailingRunOnATerminal(t *testing.T) {
	t.Parallel()

	for name, look := range map[string]struct {
		width   int
		environ []string
	}{
		"80":       {80, []string{"NO_COLOR=1"}},
		"200":      {200, nil},
		"ascii":    {80, []string{"LC_ALL=C", "NO_COLOR=1"}},
		"emulated": {100, []string{"EMULATED=1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			terminal := onTerminal(t, "failing", look.width, 40, look.environ...)
			assertScreen(t, "failing-"+name+"-live", terminal.Shows("1 failed"))
			terminal.Press("Enter")
			assertScreen(t, "failing-"+name, terminal.Shows("end 0"))
		})
	}
}

func TestColoursOnATerminal(t *testing.T) {
	t.Parallel()

	terminal := onTerminal(t, "failing", 80, 40)
	terminal.Shows("1 failed")
	terminal.Press("Enter")
	terminal.Shows("end 0")
	assertScreen(t, "failing-painted", terminal.Painted())
}

// A second run fits on the screen that every terminal has.
func TestARunWithNothingToDoFitsOnAScreen(t *testing.T) {
	t.Parallel()

	shown := onTerminal(t, "nothing to do", 80, 24).Shows("end 0")
	require.LessOrEqual(t, strings.Count(shown, "\n"), 24-4, "the program's last words follow")
	assertScreen(t, "nothing-to-do", shown)
}

// Those that failed and those that are busy are shown as far as there is room; the rest is counted.
func TestAHundredNodesOnATerminal(t *testing.T) {
	t.Parallel()

	terminal := onTerminal(t, "a hundred", 80, 24)
	assertScreen(t, "hundred-live", terminal.Shows("more failed"))
	terminal.Press("Enter")
	assertScreen(t, "hundred", terminal.Shows("end 0"))
}

// Whatever size the terminal gets meanwhile, no live line stays behind, and none is broken.
func TestATerminalThatIsResized(t *testing.T) {
	t.Parallel()

	terminal := onTerminal(t, "a hundred", 120, 30)
	terminal.Shows("more failed")

	for _, size := range [][2]int{{60, 30}, {100, 12}, {45, 20}, {120, 30}} {
		terminal.Resize(size[0], size[1])

		shown := terminal.Shows("more failed")
		require.Equal(t, 1, strings.Count(shown, "verify"), shown)
		require.LessOrEqual(t, strings.Count(shown, "\n"), size[1], shown)
	}

	terminal.Press("Enter")

	shown := terminal.Shows("end 0")
	require.NotContains(t, shown, "installing", "live lines are left")
	require.NotContains(t, shown, "done", "live lines are left")
}

// -v brings back the log lines, and folds nothing.
func TestAVerboseRunOnATerminal(t *testing.T) {
	t.Parallel()

	terminal := onTerminal(t, "nothing to do", 120, 60, "VERBOSE=1")
	terminal.Shows("end 0")

	shown := terminal.All()
	require.Contains(t, shown, "INFO skipped step=\"applySequential\" node=\"cp1\"")
	require.Contains(t, shown, "skipped  cp1 (192.0.2.11)  has its config")
	require.Contains(t, shown, "\nnode ", "the table of all steps")
}

// A path and a command are copied whole, however narrow the terminal.
func TestNoPathAndNoCommandIsBroken(t *testing.T) {
	t.Parallel()

	terminal := onTerminal(t, "failing", 50, 60)
	terminal.Shows("1 failed")
	terminal.Press("Enter")
	terminal.Shows("end 0")

	shown := terminal.All()
	require.Contains(t, shown, "/home/somebody/clusters/production/talos/patches/controlplane-network.yaml")
	require.Contains(t, shown, "mage applySequential -node=worker3 -discover -certFingerprints=YWJjZGVmZ2hpams=")
}

func TestStoriesNeedATerminal(t *testing.T) {
	t.Parallel()

	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)

	defer file.Close() //nolint:errcheck // nothing is lost

	require.False(t, report.Terminals(file, file, false).Story)
}
