package faults_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// event is a line of the report, as far as tests look at it.
type event struct {
	Event    string       `json:"event"`
	Step     string       `json:"step"`
	Node     string       `json:"node"`
	Text     string       `json:"text"`
	ID       diagnosis.ID `json:"id"`
	Severity string       `json:"severity"`
	Cause    string       `json:"cause"`
	Status   string       `json:"status"`
	Detail   string       `json:"detail"`
}

// readEvents reads a report. A run that bad input ended at once has made none.
func readEvents(t *testing.T, path string) []event {
	t.Helper()

	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	require.NoError(t, err)

	defer file.Close()

	var events []event

	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)

	for lines.Scan() {
		var e event

		require.NoError(t, json.Unmarshal(lines.Bytes(), &e))

		events = append(events, e)
	}

	require.NoError(t, lines.Err())

	return events
}

// said is one thing that a run said about a node, or about the cluster.
type said struct {
	id    diagnosis.ID
	node  string
	cause string
}

// lastLine is a line of what a run says last: the nodes with their addresses or "cluster", the step, the cause, the id
// and what to do next. What concerns the cluster in a step begins with the step.
var lastLine = regexp.MustCompile(`^(?:((?:\S+ \([^)]*\)(?:, | and )?)+|[a-z0-9]+(?::[a-zA-Z]+)?): )?(?:(\w+(?::\w+)?): )?(.*?) \[(TM\d{3})\](?:\. Next: .*)?$`)

// failures are what the run gave as the reasons for its end, in that order.
func (o outcome) failures() []said {
	var found []said

	for line := range strings.Lines(o.message) {
		parts := lastLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if parts == nil {
			continue
		}

		for subject := range strings.SplitSeq(strings.ReplaceAll(parts[1], " and ", ", "), ", ") {
			node, _, _ := strings.Cut(subject, " (")
			if node == "cluster" || slices.Contains(clusterSteps, node) {
				node = ""
			}

			found = append(found, o.inFull(said{id: diagnosis.ID(parts[4]), node: node, cause: parts[3]}))
		}
	}

	return found
}

// inFull has the cause that stands above where the last line leaves it out.
func (o outcome) inFull(last said) said {
	if !strings.HasSuffix(last.cause, "ed, as told above") {
		return last
	}

	for _, e := range o.events {
		if e.ID == last.id && e.Node == last.node && e.Cause != "" {
			last.cause, _, _ = strings.Cut(e.Cause, "\n")
		}
	}

	return last
}

// clusterSteps are the steps that speak of the cluster as a whole.
var clusterSteps = []string{"reset", "secrets", "configs", "preflight", "bootstrap", "kubeconfig", "verify", "lock",
	upgradeTarget, appsTarget, "etcd:removeMember", "etcd:recover", snapshotTarget, defragTarget, rotateTarget}

// findings are what the run remarked without failing for it.
func (o outcome) findings() []said {
	var found []said

	nothing := []string{diagnosis.OK.String(), diagnosis.NotRun.String()}

	for _, e := range o.events {
		if e.Event == "finding" && !slices.Contains(nothing, e.Severity) {
			cause, _, _ := strings.Cut(e.Cause, "\n")
			found = append(found, said{id: e.ID, node: e.Node, cause: cause})
		}
	}

	return found
}

// saw reports whether a text is in anything that the run told about a node, or about any, while it went on: progress,
// results, findings, log lines.
func (o outcome) saw(node, text string) bool {
	for _, e := range o.events {
		if (node == "" || e.Node == node) && strings.Contains(strings.Join([]string{e.Text, e.Cause, e.Detail}, "\n"), text) {
			return true
		}
	}

	for line := range strings.Lines(o.stderr + o.message) {
		if strings.Contains(line, text) && (node == "" || strings.Contains(line, node)) {
			return true
		}
	}

	return false
}
