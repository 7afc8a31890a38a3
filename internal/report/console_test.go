package report_test

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/syncbuffer"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/test/fakeclock"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

var start = time.Date(2026, 1, 4, 17, 40, 35, 0, time.UTC)

// play sends the events of a small bring-up, in which cp2 is slow and worker1 fails, to a recorder.
func play(clk *fakeclock.Clock, recorder *report.Recorder) {
	nodes := []string{"cp1", "cp2", "worker1"}

	recorder.Start("preflight", nodes...)
	recorder.Finding("preflight", diagnosis.Finding{ID: "TM071", Cause: "all files are of one cluster"})
	recorder.Finding("preflight", diagnosis.Finding{
		ID: "TM047", Severity: diagnosis.Failure, Node: "worker1", Address: "192.0.2.21",
		Cause: "two disks match the selector:\nvda  10 GB  would be wiped\nvdb  20 GB  holds an ext4 filesystem",
		Next:  "mage preflight -node=worker1 -allowAmbiguousDisk",
	})
	recorder.Finding("preflight",
		diagnosis.Finding{ID: "TM044", Node: "cp1", Address: "192.0.2.11", Cause: "runs Talos v1.13.9"})
	recorder.Finding("preflight", diagnosis.Finding{
		ID: "TM054", Severity: diagnosis.Warning, Node: "cp2", Address: "192.0.2.12", Cause: "has no link ens19",
		Skipped: true,
	})
	clk.Advance(400 * time.Millisecond)
	recorder.Finish("preflight", 400*time.Millisecond, errors.New("1 failure"))

	recorder.Start("apply", nodes...)
	recorder.Progress("apply", report.Progress{Node: "cp1", Text: "applying", Since: clk.Now()})
	recorder.Progress("apply", report.Progress{Node: "cp1", Text: "applying", Since: clk.Now()})
	clk.Advance(12 * time.Second)
	recorder.Result(report.Result{
		Node: "worker1", Address: "192.0.2.21", Step: "apply", Status: report.Failed, Attempts: 6, Duration: 93 * time.Second,
		Err: &diagnosis.Problem{Step: "apply", Finding: diagnosis.Finding{
			ID: "TM080", Severity: diagnosis.Failure, Node: "worker1", Address: "192.0.2.21",
			Cause: "the connection is refused", Next: "mage applySequential -node=worker1", Exit: diagnosis.ExitApply,
		}},
	})
	recorder.Result(report.Result{
		Node: "cp2", Address: "192.0.2.12", Step: "apply", Status: report.Applied, Attempts: 2, Duration: 12 * time.Second,
		Detail: "config sent",
	})
	recorder.Result(report.Result{
		Node: "cp1", Address: "192.0.2.11", Step: "apply", Status: report.Applied, Attempts: 1, Duration: 2 * time.Second,
		Detail: "config sent",
	})
	recorder.Finish("apply", 95*time.Second, errors.New("worker1 failed"))

	recorder.Start("kubeconfig")
	recorder.Result(report.Result{Step: "kubeconfig", Status: report.OK, Duration: 250 * time.Millisecond,
		Detail: "context admin@lab"})
	recorder.Finish("kubeconfig", 250*time.Millisecond, nil)

	recorder.Start("secrets")
	recorder.Finish("secrets", time.Second, errors.New("sops is not on the PATH"))

	recorder.Start("verify", nodes...)
	recorder.Result(report.Result{Node: "cp1", Address: "192.0.2.11", Step: "verify", Status: report.Drifted,
		Duration: 3700 * time.Second})
}

// Checks that were not run are one line a reason; their ids are for those who ask for all.
func TestChecksThatWereNotRunAreOneLineAReason(t *testing.T) {
	t.Parallel()

	for verbose, want := range map[bool]string{
		false: "not run  2 checks need a node's answer: mage preflight\nnot run  1 check of cp1: no file\n",
		true: "not run  2 checks need a node's answer: mage preflight  [TM044 TM047]\n" +
			"not run  1 check of cp1: no file  [TM044]\n",
	} {
		var out bytes.Buffer

		console := report.NewConsole(report.ConsoleOptions{Out: &out, Err: &out, Verbose: verbose})
		recorder := report.NewRecorder(time.Now, console)
		recorder.Start("preflight")

		for _, finding := range []diagnosis.Finding{
			{ID: "TM047", Cause: "needs a node's answer: mage preflight"}, {ID: "TM044", Node: "cp1", Cause: "no file"},
			{ID: "TM044", Cause: "needs a node's answer: mage preflight"},
		} {
			finding.Severity = diagnosis.NotRun
			recorder.Finding("preflight", finding)
		}

		recorder.Finish("preflight", time.Second, nil)
		require.NoError(t, recorder.Close())
		require.Contains(t, out.String(), want)
		require.Contains(t, out.String(), "3 checks not run")
	}
}

// A finding, the result that follows from it, and the other nodes that have it: the cause is said once.
func TestACauseIsSaidOnce(t *testing.T) {
	t.Parallel()

	var out, errs syncbuffer.Buffer

	console := report.NewConsole(report.ConsoleOptions{Out: &out, Err: &errs})
	recorder := report.NewRecorder(time.Now, console, report.NewLogSink(console.Logger()))
	recorder.Start("preflight", "cp1", "cp2", "cp3")

	unknown := diagnosis.Finding{ID: "TM082", Severity: diagnosis.Failure, Cause: "its cluster is not known",
		Next: "set TALOSCONFIG"}

	for _, node := range []string{"cp1", "cp2", "cp3"} {
		unknown.Node = node
		require.Equal(t, node != "cp1", recorder.Told(unknown.Problem("preflight", nil)))
		recorder.Finding("preflight", unknown)
	}

	for _, node := range []string{"cp1", "cp2", "cp3"} {
		unknown.Node = node
		recorder.Result(report.Result{Node: node, Step: "preflight", Status: report.Failed,
			Err: unknown.Problem("preflight", nil)})
	}

	recorder.Finish("preflight", time.Second, errors.New("failed"))
	require.NoError(t, recorder.Close())
	require.Equal(t, `failure  TM082  cp1, cp2, cp3  its cluster is not known
    next: set TALOSCONFIG
failed   preflight  cp1  told above [TM082]  (0.0s)
failed   preflight  cp2  told above [TM082]  (0.0s)
failed   preflight  cp3  told above [TM082]  (0.0s)
preflight: 3 of 3 nodes failed; 3 failures (1.0s)
`, out.String())
	require.Equal(t, 3, strings.Count(errs.String(), "its cluster is not known"), "a log line of each node is whole")
}

// What came out later of a node counts.
func TestALaterResultOfANodeTakesThePlaceOfAnEarlierOne(t *testing.T) {
	t.Parallel()

	var out, errs syncbuffer.Buffer

	recorder := report.NewRecorder(time.Now, report.NewConsole(report.ConsoleOptions{Out: &out, Err: &errs}))
	recorder.Start("verifyWorkers", "worker1")
	recorder.Result(report.Result{Node: "worker1", Step: "verifyWorkers", Status: report.OK, Detail: "running"})
	recorder.Result(report.Result{Node: "worker1", Step: "verifyWorkers", Status: report.Failed,
		Err: errors.New("not registered")})
	recorder.Finish("verifyWorkers", time.Second, errors.New("failed"))
	require.NoError(t, recorder.Close())
	require.Equal(t, "failed   verifyWorkers  worker1  not registered  (0.0s)\n"+
		"verifyWorkers: 1 of 1 node failed (1.0s)\n", out.String())
}

func TestNodesAreCountedAsPeopleWouldSay(t *testing.T) {
	t.Parallel()

	for want, statuses := range map[string][]report.Status{
		"2 of 2 nodes with a warning":            {report.Warned, report.Warned},
		"1 of 2 nodes refused, 1 failed":         {report.Failed, report.Refused},
		"1 of 3 nodes applied, 2 with a warning": {report.Warned, report.Applied, report.Warned},
	} {
		var out, errs syncbuffer.Buffer

		recorder := report.NewRecorder(time.Now, report.NewConsole(report.ConsoleOptions{Out: &out, Err: &errs}))
		recorder.Start("upgrade", "cp1", "cp2", "cp3")

		for i, status := range statuses {
			recorder.Result(report.Result{Node: fmt.Sprintf("cp%d", i+1), Step: "upgrade", Status: status})
		}

		recorder.Finish("upgrade", time.Second, nil)
		require.NoError(t, recorder.Close())
		require.Contains(t, out.String(), "\nupgrade: "+want+" (1.0s)\n")
	}
}

func TestConsoleWritesResultsInTheOrderOfTheNodes(t *testing.T) {
	t.Parallel()

	for name, color := range map[string]bool{"plain": false, "color": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var out, errs syncbuffer.Buffer

			clk := fakeclock.New(start)
			console := report.NewConsole(report.ConsoleOptions{Out: &out, Err: &errs, Color: color, Now: clk.Now})
			recorder := report.NewRecorder(clk.Now, console)

			play(clk, recorder)
			require.NoError(t, recorder.Close())

			golden.Assert(t, filepath.Join("testdata", "console-"+name+".golden"), out.String())
			require.Empty(t, errs.String(), "results are on Out alone")
			require.Equal(t, color, strings.Contains(out.String(), "\x1b"))
		})
	}
}

func TestConsoleWithOneStepHasNoTable(t *testing.T) {
	t.Parallel()

	var out syncbuffer.Buffer

	clk := fakeclock.New(start)
	recorder := report.NewRecorder(clk.Now, report.NewConsole(report.ConsoleOptions{Out: &out, Err: &out, Now: clk.Now}))

	recorder.Start("apply", "cp1")
	recorder.Result(report.Result{Node: "cp1", Address: "192.0.2.11", Step: "apply", Status: report.Skipped,
		Detail: "has its config"})
	recorder.Finish("apply", time.Second, nil)
	require.NoError(t, recorder.Close())

	require.Equal(t, "skipped  apply  cp1 (192.0.2.11)  has its config  (0.0s)\napply: 1 of 1 node skipped (1.0s)\n",
		out.String())
}

func TestADryRunThatWouldChangeNodesIsNoFailure(t *testing.T) {
	t.Parallel()

	var out syncbuffer.Buffer

	clk := fakeclock.New(start)
	console := report.NewConsole(report.ConsoleOptions{Out: &out, Err: &out, Now: clk.Now, Color: true})
	recorder := report.NewRecorder(clk.Now, console, report.NewLogSink(console.Logger()))

	recorder.Start("configs")
	recorder.Finish("configs", time.Second, &diagnosis.Problem{Finding: diagnosis.Finding{
		Severity: diagnosis.Warning, Cause: "dry run: two files would change", Exit: diagnosis.ExitDryRun,
	}})
	require.NoError(t, recorder.Close())

	require.Contains(t, out.String(), "configs: dry run: two files would change (1.0s)\n")
	require.NotContains(t, out.String(), "failed")
	require.NotContains(t, out.String(), "ERROR")
}

func TestConsoleMasksSecrets(t *testing.T) {
	t.Parallel()

	var out, errs, lines syncbuffer.Buffer

	clk := fakeclock.New(start)
	console := report.NewConsole(report.ConsoleOptions{Out: &out, Err: &errs, Now: clk.Now, LogLevel: "debug"})
	recorder := report.NewRecorder(clk.Now, console, report.NewLogSink(console.Logger()), report.NewJSONLines(&lines))

	const secret = "abcdef.0123456789abcdef"

	recorder.Start("apply", "cp1")
	recorder.Progress("apply", report.Progress{Node: "cp1", Text: "token " + secret})
	recorder.Finding("apply", diagnosis.Finding{ID: "TM001", Node: "cp1", Cause: "token " + secret, Next: "use " + secret})
	recorder.Result(report.Result{Node: "cp1", Step: "apply", Detail: "token " + secret,
		Err: errors.New("token " + secret)})
	recorder.Finish("apply", time.Second, errors.New("token "+secret))
	require.NoError(t, recorder.Close())

	for _, text := range []string{out.String(), errs.String(), lines.String()} {
		require.NotContains(t, text, secret)
		require.Contains(t, text, "token (masked)")
	}
}

// brokenWriter is a reader that went away.
type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestCloseTellsThatResultsCouldNotBeWritten(t *testing.T) {
	t.Parallel()

	clk := fakeclock.New(start)

	for name, sink := range map[string]report.Sink{
		"console":    report.NewConsole(report.ConsoleOptions{Out: brokenWriter{}, Err: &syncbuffer.Buffer{}, Now: clk.Now}),
		"JSON lines": report.NewJSONLines(brokenWriter{}),
	} {
		recorder := report.NewRecorder(clk.Now, sink)
		recorder.Start("apply")
		recorder.Finish("apply", time.Second, nil)
		require.ErrorContains(t, recorder.Close(), "broken pipe", name)
	}
}

func TestTheRecorderKeepsResultsAndFindings(t *testing.T) {
	t.Parallel()

	clk := fakeclock.New(start)
	recorder := report.NewRecorder(clk.Now)
	play(clk, recorder)

	require.Len(t, recorder.Findings(), 4)
	require.Len(t, recorder.Results(), 5)
	require.Equal(t, "worker1", recorder.Results()[0].Node)
}

func TestTableOfNothingIsEmpty(t *testing.T) {
	t.Parallel()

	var out bytes.Buffer

	require.NoError(t, report.Table(&out, nil, false))
	require.Empty(t, out.String())
}

func TestTableShowsTheLastResultOfANode(t *testing.T) {
	t.Parallel()

	var out bytes.Buffer

	require.NoError(t, report.Table(&out, []report.Result{
		{Node: "cp1", Step: "verify", Status: report.Joining, Duration: time.Minute},
		{Node: "cp1", Step: "verify", Status: report.OK, Attempts: 3, Duration: 2 * time.Minute},
		{Node: "a-much-longer-name", Step: "verify", Status: report.Planned},
	}, false))

	require.Equal(t, ""+
		"node                verify\n"+
		"cp1                 ok ×3 2m00s\n"+
		"a-much-longer-name  would change 0.0s\n", out.String())
}

// Nodes report from many goroutines while others log.
func TestManyNodesReportAtOnce(t *testing.T) {
	t.Parallel()

	var out, errs syncbuffer.Buffer

	console := report.NewConsole(report.ConsoleOptions{Out: &out, Err: &errs})
	recorder := report.NewRecorder(time.Now, console, report.NewLogSink(console.Logger()))
	log := console.Logger()

	var nodes []string
	for i := range 50 {
		nodes = append(nodes, fmt.Sprintf("node%02d", i))
	}

	recorder.Start("apply", nodes...)

	var all sync.WaitGroup

	for _, node := range nodes {
		all.Go(func() {
			recorder.Progress("apply", report.Progress{Node: node, Text: "applying"})
			log.Info().Str("node", node).Msg("sending")
			recorder.Result(report.Result{Node: node, Step: "apply", Status: report.Applied})
		})
	}

	all.Wait()
	recorder.Finish("apply", time.Second, nil)
	require.NoError(t, recorder.Close())
	require.NoError(t, console.Close(), "closing again does nothing")

	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 51)

	for i, node := range nodes {
		require.Contains(t, lines[i], "apply  "+node)
		require.Contains(t, errs.String(), `INFO sending node="`+node+`"`)
	}

	require.Equal(t, "apply: 50 of 50 nodes applied (1.0s)", lines[50])
}
