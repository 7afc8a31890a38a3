package diagnosis

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/test/golden"
)

// declared reads the ids of the package's constants out of its sources, by the constant's name.
func declared(t *testing.T) map[string]ID {
	t.Helper()

	files, err := filepath.Glob("*.go")
	require.NoError(t, err)

	ids := map[string]ID{}

	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)

		ast.Inspect(file, func(node ast.Node) bool {
			spec, ok := node.(*ast.ValueSpec)
			if !ok {
				return true
			}

			if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "ID" || len(spec.Values) != len(spec.Names) {
				return true
			}

			for i, constant := range spec.Names {
				if literal, ok := spec.Values[i].(*ast.BasicLit); ok {
					id, err := strconv.Unquote(literal.Value)
					require.NoError(t, err)

					ids[constant.Name] = ID(id)
				}
			}

			return true
		})
	}

	return ids
}

func TestEveryIDHasOneEntry(t *testing.T) {
	t.Parallel()

	entries := map[ID]bool{}

	for _, entry := range Catalogue() {
		require.False(t, entries[entry.ID], "%s has two entries", entry.ID)
		entries[entry.ID] = true
	}

	names := map[ID]string{}

	for name, id := range declared(t) {
		require.Empty(t, names[id], "%s and %s are both %s", name, names[id], id)
		names[id] = name

		require.True(t, entries[id], "%s (%s) has no entry", name, id)
	}

	for id := range entries {
		require.NotEmpty(t, names[id], "%s has an entry and no constant", id)
	}
}

func TestIDsAreInTheRangeOfTheirAreaAndAscend(t *testing.T) {
	t.Parallel()

	number := func(id ID) int {
		require.Regexp(t, regexp.MustCompile(`^TM\d{3}$`), string(id))

		n, err := strconv.Atoi(strings.TrimPrefix(string(id), "TM"))
		require.NoError(t, err)

		return n
	}

	for name, area := range map[string]struct {
		first, last int
		entries     []Entry
	}{
		"files":      {1, 39, fileEntries},
		"making":     {1, 39, makingEntries},
		"settings":   {1, 39, settingEntries},
		"preflight":  {40, 79, preflightEntries},
		"nodes":      {80, 119, nodeEntries},
		"bring-up":   {80, 119, bringUpEntries},
		"kubernetes": {120, 139, kubernetesEntries},
		"API":        {120, 139, apiEntries},
		"updating":   {140, 159, updatingEntries},
		"addresses":  {200, 214, addressEntries},
		"endpoint":   {215, 224, endpointEntries},
		"networks":   {225, 234, networkEntries},
		"names":      {235, 244, nameEntries},
		"interfaces": {245, 259, interfaceEntries},
		"disks":      {260, 274, diskEntries},
		"secrets":    {315, 329, secretEntries},
	} {
		require.NotEmpty(t, area.entries, name)

		for i, entry := range area.entries {
			require.GreaterOrEqual(t, number(entry.ID), area.first, "%s: %s", name, entry.ID)
			require.LessOrEqual(t, number(entry.ID), area.last, "%s: %s", name, entry.ID)

			if i > 0 {
				require.Greater(t, entry.ID, area.entries[i-1].ID, name)
			}
		}
	}

	require.True(t, slices.IsSortedFunc(Catalogue(), func(a, b Entry) int { return number(a.ID) - number(b.ID) }))
}

func TestEveryEntryIsComplete(t *testing.T) {
	t.Parallel()

	known := map[ExitCode]bool{}
	for _, code := range ExitCodes() {
		known[code.Code] = true
	}

	for _, entry := range Catalogue() {
		require.NotEmpty(t, entry.Title, entry.ID)
		require.False(t, strings.HasSuffix(entry.Title, "."), "%s: a title is no sentence", entry.ID)
		require.NotContains(t, entry.Title, "\n", entry.ID)
		require.True(t, strings.HasSuffix(entry.Cause, "."), "%s: the cause is not a sentence: %q", entry.ID, entry.Cause)
		require.NotEmpty(t, entry.Remedy, entry.ID)
		require.NotEmpty(t, entry.Source, entry.ID)
		require.True(t, known[entry.Exit], "%s: there is no exit code %d", entry.ID, entry.Exit)

		if entry.Severity == Failure {
			require.NotEqual(t, ExitOK, entry.Exit, "%s: a failure ends with a code", entry.ID)
		}
	}
}

func TestLookup(t *testing.T) {
	t.Parallel()

	entry, found := Lookup(BadSetting)
	require.True(t, found)
	require.Equal(t, BadSetting, entry.ID)

	_, found = Lookup("TM999")
	require.False(t, found)
}

func TestExitCodesAscend(t *testing.T) {
	t.Parallel()

	codes := ExitCodes()
	require.True(t, slices.IsSortedFunc(codes, func(a, b ExitMeaning) int { return int(a.Code - b.Code) }))

	for _, code := range codes {
		require.NotEmpty(t, code.Meaning)
	}
}

// Every id that a page, a message or the code names is in the catalogue.
func TestNobodyNamesAnUnknownID(t *testing.T) {
	t.Parallel()

	id := regexp.MustCompile(`\bTM\d{3}\b`)
	root := filepath.Join("..", "..")

	for _, dir := range []string{"docs", "internal", "targets", "scripts", ".taskfiles"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go") ||
				!slices.Contains([]string{".go", ".md", ".yaml", ".sh"}, filepath.Ext(path)) {
				return err
			}

			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}

			for line, text := range strings.Split(string(text), "\n") {
				if strings.Contains(text, " to TM") { // a range of ids
					continue
				}

				for _, named := range id.FindAllString(text, -1) {
					_, found := Lookup(ID(named))
					require.True(t, found, "%s:%d names %s", path, line+1, named)
				}
			}

			return nil
		})
		require.NoError(t, err)
	}
}

func TestThePagesAreTrue(t *testing.T) {
	t.Parallel()

	docs := filepath.Join("..", "..", "docs")

	golden.Assert(t, filepath.Join(docs, "diagnoses.md"), Markdown())
	golden.Assert(t, filepath.Join(docs, "exit-codes.md"), ExitCodesMarkdown())
}

func TestExitCodeOfAFinding(t *testing.T) {
	t.Parallel()

	require.Equal(t, ExitBadInput, Finding{ID: BadSetting}.ExitCode())
	require.Equal(t, ExitApply, Finding{ID: BadSetting, Exit: ExitApply}.ExitCode(), "a finding's own code goes first")
	require.Equal(t, ExitUnexpected, Finding{ID: "TM999"}.ExitCode())
}

func TestSubjectOfAFinding(t *testing.T) {
	t.Parallel()

	for want, finding := range map[string]Finding{
		"cluster":          {},
		"cp1":              {Node: "cp1"},
		"cp1 (192.0.2.11)": {Node: "cp1", Address: "192.0.2.11"},
		"cp[192.0.2.11]":   {Node: "cp[192.0.2.11]", Address: "192.0.2.11"},
	} {
		require.Equal(t, want, finding.Subject())
	}
}

func TestAProblemSaysWhereWhyAndWhatNext(t *testing.T) {
	t.Parallel()

	cause := os.ErrNotExist
	problem := &Problem{
		Step: "apply", Err: cause,
		Finding: Finding{ID: "TM090", Node: "cp1", Address: "192.0.2.11", Cause: "the connection is refused",
			Next: "mage verify"},
	}

	require.EqualError(t, problem, "cp1 (192.0.2.11): apply: the connection is refused [TM090]. Next: mage verify")
	require.ErrorIs(t, problem, cause)

	found, ok := AsProblem(fmt.Errorf("run apply: %w", problem))
	require.True(t, ok)
	require.Equal(t, problem, found)

	_, ok = AsProblem(cause)
	require.False(t, ok)

	require.EqualError(t, &Problem{Step: "settings", Finding: Finding{Cause: "no"}}, "settings: no")
	require.EqualError(t, &Problem{Finding: Finding{Cause: "no"}}, "cluster: no")
}

func TestJoin(t *testing.T) {
	t.Parallel()

	one, two := fmt.Errorf("node %d", 1), fmt.Errorf("node %d", 2)

	require.NoError(t, Join())
	require.NoError(t, Join(nil, nil))
	require.Equal(t, one, Join(nil, one))
	require.EqualError(t, Join(one, nil, two), "node 1\nnode 2")
	require.ErrorIs(t, Join(one, two), two)
	require.EqualError(t, Join(Join(one, two), one), "node 1\nnode 2\nnode 1", "joined errors are not nested")
}

func TestSeverityAsText(t *testing.T) {
	t.Parallel()

	require.Equal(t, []string{"ok", "warning", "failure", "severity 7"},
		[]string{OK.String(), Warning.String(), Failure.String(), Severity(7).String()})
}

func TestProblemShowsTheFirstLineOfItsCause(t *testing.T) {
	t.Parallel()

	problem := &Problem{Step: "preflight",
		Finding: Finding{ID: AlreadyInstalled, Node: "cp1", Cause: "two disks match\n  DISK  SIZE\n  sda   40 GB",
			Next: "mage preflight"}}

	require.Equal(t, "cp1: preflight: two disks match [TM050]. Next: mage preflight", problem.Error())
}
