package faults_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

// record is what came of a fault.
type record struct {
	fault
	// cause is what the run said, without what differs from run to run; next what the run after it did.
	cause, next string
}

// records are those of all faults that were played, by title.
type records struct {
	mu      sync.Mutex
	byTitle map[string]record
}

func (r *records) add(title string, of record) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.byTitle == nil {
		r.byTitle = map[string]record{}
	}

	r.byTitle[title] = of
}

// The table stands between these lines of the page.
const (
	tableBegins = "<!-- The table is made from the tests: go test ./internal/test/e2e/faults -update -->\n"
	tableEnds   = "<!-- Here the table ends. -->\n"
)

// assertPage compares the table of docs/reliability.md with what was recorded; with -update it writes it. A run of some
// of the faults alone says nothing about the others.
func (r *records) assertPage(t *testing.T) {
	t.Helper()

	if playedTalos() != emulator.DefaultTalosVersion {
		t.Skip("the page is about the usual release")
	}

	if !r.complete() {
		t.Skip("not every fault was played: the page is compared when all are")
	}

	path := filepath.Join("..", "..", "..", "..", "docs", "reliability.md")
	page, err := os.ReadFile(path)
	require.NoError(t, err)

	before, rest, found := strings.Cut(string(page), tableBegins)
	require.True(t, found, "%s has lost the line before its table", path)

	_, after, found := strings.Cut(rest, tableEnds)
	require.True(t, found, "%s has lost the line after its table", path)

	golden.Assert(t, path, before+tableBegins+r.table(t)+tableEnds+after)
}

func (r *records) complete() bool {
	for _, section := range sections() {
		for _, f := range section.faults {
			if _, played := r.byTitle[f.title]; !played {
				return false
			}
		}
	}

	return true
}

// table has a row for each fault. Those of a group share one, as they come to the same.
func (r *records) table(t *testing.T) string {
	t.Helper()

	var table strings.Builder

	for _, section := range sections() {
		fmt.Fprintf(&table, "\n### %s\n\n", section.title)
		table.WriteString("| fault | what a client can tell | seen | said | exit code | the next run " +
			"|\n|---|---|---|---|---|---|\n")

		groups := map[string]string{}

		for _, f := range section.faults {
			row := r.byTitle[f.title].row()

			switch same, begun := groups[f.group]; {
			case f.group == "":
				fmt.Fprintf(&table, "| %s (`%s`) | %s\n", cell(f.title), cell(f.knob), row)
			case begun:
				require.Equal(t, same, row, "%s does not come to the same as the rest of its group", f.title)
			default:
				groups[f.group] = row
				fmt.Fprintf(&table, "| %s (`%s`) | %s\n", cell(f.group), cell(f.knob), row)
			}
		}
	}

	table.WriteString("\n")

	return table.String()
}

// row are a record's cells after the fault itself.
func (r record) row() string {
	return fmt.Sprintf("%s | %s | %s | %d | %s |", cell(r.class), cell(orNothing(r.seen)), cell(r.said()), r.code,
		cell(r.next))
}

// said is the kind of trouble and the cause.
func (r record) said() string {
	if r.id == "" {
		return orNothing("")
	}

	subject := ""
	if r.node != "" {
		subject = r.node + ": "
	}

	return fmt.Sprintf("[%s](diagnoses.md#%s) %s%s", r.id, strings.ToLower(string(r.id)), subject, r.cause)
}

func orNothing(text string) string {
	if text == "" {
		return "nothing"
	}

	return text
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// unsteady is what differs from run to run.
var unsteady = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`\b(\d+h)?(\d+m)?\d+(\.\d+)?m?s\b`), "<time>"},
	{regexp.MustCompile(`(52:54:0[0-9a-f])(:[0-9a-f]{2}){3}`), "$1:00:00:00"},
	{regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`), "<UUID>"},
	{regexp.MustCompile(`[A-Za-z0-9+/]{43}=`), "<fingerprint>"},
	{regexp.MustCompile(`\b20\d\d-\d\d-\d\d\b`), "<date>"},
	{regexp.MustCompile(`process \d+`), "process <pid>"},
	{regexp.MustCompile(`/\S*/TestFaults[^/\s]*/\d+`), "<folder>"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "127.0.0.1:<port>"},
	{regexp.MustCompile(`sha256 [0-9a-f]{8}`), "sha256 <sum>"},
	{regexp.MustCompile(`after \d+ attempts`), "after <n> attempts"},
	{regexp.MustCompile(`talos-mage-[0-9a-f]{16}\.lock`), "talos-mage-<hash>.lock"},
	{regexp.MustCompile(`<([a-zA-Z]+)>`), "‹$1›"},
}

// plain is a text of a run without what differs from run to run.
func (w *world) plain(text string) string {
	prefix := w.Lab.Prefix().Addr().String()
	text = strings.ReplaceAll(text, strings.TrimSuffix(prefix, "0"), "192.0.2.")
	text = strings.ReplaceAll(text, w.root, "<root>")

	for _, what := range unsteady {
		text = what.pattern.ReplaceAllString(text, what.instead)
	}

	return text
}
