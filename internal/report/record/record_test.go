package record_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/report/record"
	"github.com/talos-mage/talos-mage/internal/test/fakeclock"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

var start = time.Date(2026, 1, 4, 17, 40, 35, 0, time.UTC)

// secrets are planted in every text of an event.
const (
	secret = "AGE-SECRET-KEY-1PLANTEDPLANTEDPLANTEDPLANTED"
	token  = "abcdef.planted0planted0"
)

func open(t *testing.T, runs string, keep int) *record.Writer {
	t.Helper()

	writer, err := record.New(runs, keep, start, func(err error) { t.Error("a warning:", err) })
	require.NoError(t, err)

	return writer
}

// recorded is the folder of a run in which worker1 fails after a retry, cp2 is slow, and somebody pasted secrets.
func recorded(t *testing.T) (folder string) {
	t.Helper()

	runs := t.TempDir()
	clk := fakeclock.New(start)
	recorder := report.NewRecorder(clk.Now, open(t, runs, 5))
	nodes := []string{"cp1", "cp2", "worker1"}
	pause := func(d time.Duration) { clk.Advance(d) }

	recorder.Begin(report.Began{Target: "talos", Version: "v1.2.3", Settings: []report.Setting{
		{Name: "NODE_WAIT", Value: "15m0s"}, {Name: "LOG_LEVEL", Value: "debug", Given: true},
		{Name: "-node", Value: secret, Given: true}, {Name: "CLOCK_SCALE", Value: "60", Given: true},
	}})

	recorder.Start("preflight", nodes...)
	pause(time.Second)
	recorder.Finding("preflight", diagnosis.Finding{ID: "TM071", Cause: "all files are of one cluster"})
	recorder.Finding("preflight", diagnosis.Finding{
		ID: "TM036", Severity: diagnosis.Warning, Node: "cp2", Address: "192.0.2.12",
		Cause: "two disks match <selector>:\nvda  10 GB  would be wiped\nvdb  20 GB  " + token, Next: "mage preflight -node=cp2",
		At: diagnosis.Location{Path: "talos/talconfig.yaml", Line: 12, Column: 3, Text: "  installDisk: /dev/vda"},
	})

	for _, node := range []string{"cp1", "worker1"} {
		recorder.Finding("preflight", diagnosis.Finding{ID: "TM037", Severity: diagnosis.NotRun, Node: node,
			Cause: "the node does not answer"})
	}

	recorder.Result(report.Result{Node: "cp1", Address: "192.0.2.11", Step: "preflight", Status: report.OK})
	recorder.Finish("preflight", time.Second, nil)

	recorder.Start("apply", nodes...)
	recorder.Progress("apply", report.Progress{Node: "cp2", Text: "port refused: installing or booting", Since: clk.Now()})
	pause(10 * time.Second)
	recorder.Progress("apply", report.Progress{Node: "worker1", Text: "waits after failed attempt 1",
		Failed: "the connection is refused " + secret})
	recorder.Progress("apply", report.Progress{Node: "cp2", Text: "port refused: installing or booting", Since: clk.Now()})
	pause(20 * time.Second)
	recorder.Progress("apply", report.Progress{Node: "cp2", Text: "installing", Since: clk.Now()})
	pause(30 * time.Second)
	recorder.Result(report.Result{Node: "cp2", Address: "192.0.2.12", Step: "apply", Status: report.Applied, Attempts: 2,
		Duration: time.Minute, Detail: "config sent"})

	problem := diagnosis.NewProblem("TM001", "no answer\nport 50000: "+token, "mage applySequential -node=worker1").In("apply")
	problem.Node, problem.Address = "worker1", "192.0.2.21"
	recorder.Result(report.Result{Node: "worker1", Address: "192.0.2.21", Step: "apply", Status: report.Failed,
		Attempts: 6, Duration: 93 * time.Second, Err: problem})
	recorder.Finish("apply", time.Minute, problem)
	recorder.End(report.Ended{Code: diagnosis.ExitApply, Message: problem.Error()})
	require.NoError(t, recorder.Close())

	names, err := record.List(runs)
	require.NoError(t, err)
	require.Equal(t, []string{"2026-01-04T17-40-35Z"}, names)

	return filepath.Join(runs, names[0])
}

func text(t *testing.T, folder, name string) string {
	t.Helper()

	data, err := os.ReadFile(filepath.Join(folder, name))
	require.NoError(t, err)

	return string(data)
}

func TestARunIsRecordedInFourForms(t *testing.T) {
	t.Parallel()

	folder := recorded(t)

	for _, name := range []string{"events.jsonl", "report.html", "junit.xml", "summary.json"} {
		golden.Assert(t, filepath.Join("testdata", name+".golden"), text(t, folder, name))

		info, err := os.Stat(filepath.Join(folder, name))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "%s is for its owner alone", name)
	}
}

func TestNoFormHasASecret(t *testing.T) {
	t.Parallel()

	folder := recorded(t)

	for _, name := range []string{"events.jsonl", "report.html", "junit.xml", "summary.json"} {
		require.NotContains(t, text(t, folder, name), "PLANTED", name)
		require.NotContains(t, text(t, folder, name), "planted0", name)
	}
}

func TestDocumentsCanBeRead(t *testing.T) {
	t.Parallel()

	folder := recorded(t)

	var summary struct {
		Schema  int
		Outcome string
		Code    int
	}

	require.NoError(t, json.Unmarshal([]byte(text(t, folder, "summary.json")), &summary))
	require.Equal(t, report.Schema, summary.Schema)
	require.Equal(t, "failed", summary.Outcome)
	require.Equal(t, int(diagnosis.ExitApply), summary.Code)

	var junit struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Skipped  int `xml:"skipped,attr"`
	}

	require.NoError(t, xml.Unmarshal([]byte(text(t, folder, "junit.xml")), &junit))
	require.Equal(t, 1, junit.Failures, "worker1, once")
	require.Equal(t, 2, junit.Skipped, "checks that were not run")
	require.Equal(t, 7, junit.Tests)
}

// The page needs nothing else, and leads a screen reader and a keyboard to everything.
func TestThePageIsWholeAndAccessible(t *testing.T) {
	t.Parallel()

	source := text(t, recorded(t), "report.html")
	require.NotRegexp(t, `(src|href)="(https?:)?//`, source, "nothing is fetched")
	require.NotContains(t, source, "<selector>", "what nodes say is text, not markup")
	require.Contains(t, source, "&lt;selector&gt;")
	require.Contains(t, source, "60 times as fast", "emulated time says so")

	document, err := html.Parse(strings.NewReader(source))
	require.NoError(t, err)

	ids := map[string]bool{}

	var links, labels, headings []string

	for node := range document.Descendants() {
		attributes := map[string]string{}
		for _, attribute := range node.Attr {
			attributes[attribute.Key] = attribute.Val
		}

		if id := attributes["id"]; id != "" {
			require.False(t, ids[id], "%s is there twice", id)
			ids[id] = true
		}

		if target, isLink := strings.CutPrefix(attributes["href"], "#"); isLink {
			links = append(links, target)
		}

		if of := attributes["aria-labelledby"]; of != "" {
			links = append(links, of)
		}

		if attributes["role"] == "img" {
			require.NotEmpty(t, attributes["aria-label"])
			require.Contains(t, attributes, "tabindex", "the keyboard gets there")

			labels = append(labels, attributes["aria-label"])
		}

		if regexp.MustCompile(`^h[1-6]$`).MatchString(node.Data) {
			headings = append(headings, node.Data)
		}

		if node.Data == "th" {
			require.NotEmpty(t, attributes["scope"])
		}
	}

	for _, target := range links {
		require.True(t, ids[target], "nothing has the id %s", target)
	}

	require.Contains(t, labels, "apply: installing, for 30s from 31s")
	require.Contains(t, labels, "apply: failed: no answer\nport 50000: (masked), at 1m01s")
	require.Equal(t, "h1", headings[0])
	require.Equal(t, 1, strings.Count(strings.Join(headings, " "), "h1"))
}

func TestARunThatDidNothingIsAPageToo(t *testing.T) {
	t.Parallel()

	runs := t.TempDir()
	recorder := report.NewRecorder(fakeclock.New(start).Now, open(t, runs, 5))
	recorder.Begin(report.Began{Target: "talos"})
	recorder.End(report.Ended{Code: diagnosis.ExitBadInput, Message: "talos/talconfig.yaml:3:1: is not valid YAML"})
	require.NoError(t, recorder.Close())

	folder := filepath.Join(runs, "2026-01-04T17-40-35Z")
	require.Contains(t, text(t, folder, "report.html"), "failed, code 2")
	require.Contains(t, text(t, folder, "report.html"), "talconfig.yaml:3:1")
	require.Contains(t, text(t, folder, "junit.xml"), `<failure message="talos/talconfig.yaml:3:1: is not valid YAML">`)
}

func TestAMalformedLineIsNamedAndTheRestIsShown(t *testing.T) {
	t.Parallel()

	folder := recorded(t)
	path := filepath.Join(folder, "events.jsonl")
	lines := strings.SplitAfter(text(t, folder, "events.jsonl"), "\n")
	whole, _, err := record.Read(folder)
	require.NoError(t, err)

	for broken, why := range map[string]string{
		"not JSON\n":            "it is no JSON object of an event",
		"[1]\n":                 "it is no JSON object of an event",
		"{\"event\":\"run\"}\n": "it has no event or no time",
		"\n":                    "it is no JSON object of an event",
		"\xff\x00\n":            "it is no JSON object of an event",
		`{"time":"2026-01-04T17:40:35Z","event":"run","schema":99}` + "\n": "its schema is 99, of a newer program",
	} {
		damaged := lines[0] + lines[1] + broken + strings.Join(lines[2:], "")
		require.NoError(t, os.WriteFile(path, []byte(damaged), 0o600))

		run, mistakes, err := record.Read(folder)
		require.NoError(t, err)
		require.Len(t, mistakes, 1)
		require.ErrorContains(t, mistakes[0], path+":3: "+why)
		require.Equal(t, whole.Results, run.Results, "the rest is there")
	}

	// What a killed run leaves.
	require.NoError(t, os.WriteFile(path, []byte(lines[0]+lines[1]+`{"time":"2026-`), 0o600))

	run, mistakes, err := record.Read(folder)
	require.NoError(t, err)
	require.Len(t, mistakes, 1)
	require.Equal(t, "unfinished", run.Word())
	require.Equal(t, "talos", run.Target)
}

func TestTheOldestRunsGo(t *testing.T) {
	t.Parallel()

	runs := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(runs, "mine"), 0o700))

	for range 4 {
		require.NoError(t, open(t, runs, 2).Close())
	}

	names, err := record.List(runs)
	require.NoError(t, err)
	require.Len(t, names, 2)
	require.Contains(t, names, "2026-01-04T17-40-35Z-04", "the newest stays")
	require.DirExists(t, filepath.Join(runs, "mine"), "what is no run's stays")
}

func TestARecordThatCannotBeWrittenIsWarnedOf(t *testing.T) {
	t.Parallel()

	blocked := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(blocked, nil, 0o600))

	_, err := record.New(filepath.Join(blocked, "runs"), 5, start, nil)
	require.ErrorContains(t, err, "not a directory")

	runs := t.TempDir()

	var warnings []error

	writer, err := record.New(runs, 5, start, func(err error) { warnings = append(warnings, err) })
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(runs))
	require.NoError(t, writer.Close(), "the run itself went well")
	require.Error(t, errors.Join(warnings...))
}

func TestRunsAreFoundByTheBeginningOfTheirNames(t *testing.T) {
	t.Parallel()

	runs := t.TempDir()

	_, err := record.Find(runs, "")
	require.ErrorContains(t, err, "no run is recorded in")

	for range 2 {
		require.NoError(t, open(t, runs, 5).Close())
	}

	for called, want := range map[string]string{
		"":                        "2026-01-04T17-40-35Z-02",
		"2026-01-04T17-40-35Z":    "2026-01-04T17-40-35Z",
		"2026-01-04T17-40-35Z-02": "2026-01-04T17-40-35Z-02",
	} {
		found, err := record.Find(runs, called)
		require.NoError(t, err)
		require.Equal(t, want, found)
	}

	_, err = record.Find(runs, "2026-01")
	require.ErrorContains(t, err, `2 runs begin with "2026-01"`)

	_, err = record.Find(runs, "../..")
	require.ErrorContains(t, err, `begins with "../.."`)
}

func TestOutcomesAreSummedByStepAndCause(t *testing.T) {
	t.Parallel()

	run, _, err := record.Read(recorded(t))
	require.NoError(t, err)

	golden.Assert(t, filepath.Join("testdata", "runs.golden"),
		report.Columns(record.Rows([]*record.Run{run}), 0, nil)+"\n"+
			report.Columns(record.Sums([]*record.Run{run, run}), 0, nil)+"\n"+run.Headline()+"\n")
}
