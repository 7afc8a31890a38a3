package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// importer is a magefile of the example, and the cache of the mage that is called for it.
type importer struct {
	// magefile is the folder that it lies in, elsewhere one that has no cluster.
	magefile, elsewhere string
	env                 []string
	cache               string
}

// newImporter compiles nothing yet. In a workspace the targets are the same packages as in this repository's own
// programs, whatever the flags of the build are, so only the magefile is ever compiled, once.
func newImporter(t *testing.T, folder string) importer {
	t.Helper()

	work, cache := filepath.Join(t.TempDir(), "go.work"), t.TempDir()
	module := filepath.Join(repository(t), "examples", "magefile")
	write(t, work, goVersion(t)+"\n\nuse (\n\t"+repository(t)+"\n\t"+module+"\n)\n")

	return importer{filepath.Join(module, folder), t.TempDir(),
		[]string{"GOWORK=" + work, "MAGEFILE_CACHE=" + cache, "MAGEFILE_HASHFAST=1"}, cache}
}

// mage calls it as `mage words…`.
func (i importer) mage(t *testing.T, words ...string) outcome {
	t.Helper()

	return run(t, command{dir: filepath.Join(repository(t), "examples", "magefile"), env: i.env,
		args: append([]string{"go", "tool", "mage", "-d", i.magefile, "-w", i.elsewhere}, words...)})
}

// compiled calls what mage has compiled under a name of its own, as `mage -compile` leaves it.
func (i importer) compiled(t *testing.T, words ...string) outcome {
	t.Helper()

	program := filepath.Join(t.TempDir(), "ours")
	made, err := filepath.Glob(filepath.Join(i.cache, "*"))
	require.NoError(t, err)
	require.Len(t, made, 1)
	require.NoError(t, os.Symlink(made[0], program))

	return run(t, command{dir: i.elsewhere, args: append([]string{program}, words...)})
}

func TestAMagefileRunsItsOwnTargetsAndOurs(t *testing.T) {
	t.Parallel()

	got := newImporter(t, "magefiles").mage(t, "backup", "runs")
	require.Equal(t, 0, got.code, got.stderr)
	require.Regexp(t, `^backed up\nno run is recorded in .*\n$`, got.stdout)
}

func TestUnderAnAliasTargetsStandBesideOnesOfTheSameNames(t *testing.T) {
	t.Parallel()

	importer := newImporter(t, "alias")

	// Ours leaves those that are not ours alone, and Mage runs all one by one.
	got := importer.mage(t, "reset", "up:runs", "upgrade")
	require.Equal(t, 0, got.code, got.stderr)
	require.Regexp(t, `(?s)^our database is empty\nno run is recorded in .*\nour charts are upgraded\n$`, got.stdout)

	for own, says := range map[string]string{
		"health": "our services are healthy\n", "report": "our report is written\n", "reset": "our database is empty\n",
		"runs": "our pipelines: none\n", "upgrade": "our charts are upgraded\n",
	} {
		require.Equal(t, outcome{0, says, ""}, importer.compiled(t, own))

		help := importer.compiled(t, "-h", "up:"+own)
		require.Equal(t, 0, help.code, help.stderr)
		require.Contains(t, help.stdout, "mage up:"+own)
	}

	got = importer.mage(t, "up:health")
	require.Equal(t, 2, got.code)
	require.Contains(t, got.stderr, "talconfig.yaml")

	// What it says to type is ours, not the repository's own.
	got = importer.compiled(t, "up:reset")
	require.Equal(t, 2, got.code)
	require.Contains(t, got.stderr, "ours up:reset -node=<node>")

	t.Run("who judges the rest of the command line", importer.judged)
}

// judged holds what the page on importing says of the whole command line.
func (i importer) judged(t *testing.T) {
	doomed := []string{"up:runs", "up:reset", "-cluster=lab"}

	for caller, want := range map[string]struct {
		got  outcome
		runs bool // whether the first target has run
		says string
	}{
		"mage: the first of ours judges the second": {i.mage(t, doomed...), false, "nobody can be asked"},
		"mage: nobody judges what is no target": {i.mage(t, "up:runs", "tlaos"), true,
			`Unknown target specified: "tlaos"`},
		"compiled: each is judged when it is its turn": {i.compiled(t, doomed...), true, "nobody can be asked"},
	} {
		require.Equal(t, 2, want.got.code, caller)
		require.Equal(t, want.runs, strings.Contains(want.got.stdout, "no run is recorded"), caller)
		require.Contains(t, want.got.stderr, want.says, caller)
	}
}

// Mage's own words for a clash, which the page on importing quotes.
func TestWithoutAnAliasMageNamesTheTargetsThatClash(t *testing.T) {
	t.Parallel()

	importer := newImporter(t, "alias")
	text, err := os.ReadFile(filepath.Join(importer.magefile, "magefile.go"))
	require.NoError(t, err)

	importer.magefile = filepath.Join(t.TempDir(), "magefile")
	write(t, filepath.Join(importer.magefile, "magefile.go"), strings.Replace(string(text), "//mage:import up\n", "//mage:import\n", 1))

	got := importer.mage(t, "-l")
	require.Equal(t, 1, got.code)

	page, err := os.ReadFile(filepath.Join(repository(t), "docs", "importing.md"))
	require.NoError(t, err)

	for _, name := range []string{"health", "report", "reset", "runs", "upgrade"} {
		require.Contains(t, got.stderr, `"`+name+`" target has multiple definitions: <current>.`)
	}

	const quoted = `"health" target has multiple definitions: <current>.Health, github.com/talos-mage/talos-mage/targets.Health`

	require.Contains(t, got.stderr, "Error parsing magefiles: "+quoted)
	require.Contains(t, string(page), "    Error parsing magefiles: "+quoted)
}
