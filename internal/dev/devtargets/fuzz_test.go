package devtargets

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAllFuzzTargetsAreFound(t *testing.T) {
	t.Parallel()

	targets, err := fuzzTargets(filepath.Join("..", "..", ".."))
	require.NoError(t, err)

	names := map[string]string{}
	for _, target := range targets {
		require.Empty(t, names[target.name], "%s is there twice: -only could not tell which", target.name)
		names[target.name] = target.folder
	}

	require.Equal(t, "internal/cluster/inventory", names["FuzzTalconfig"])
	require.Equal(t, "internal/talos", names["FuzzProbe"])

	empty := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(empty, "internal"), 0o750))

	_, err = fuzzTargets(empty)
	require.ErrorContains(t, err, "run this in the root of talos-mage's repository")
}

func TestFuzzTargetsAreChosenByName(t *testing.T) {
	t.Parallel()

	all := []fuzzTarget{{name: "FuzzTalconfig"}, {name: "FuzzTalenv"}, {name: "FuzzProbe"}}

	for _, test := range []struct{ only, chosen, refused string }{
		{only: "FuzzProbe", chosen: "FuzzProbe"},
		{only: "Probe, Talenv", chosen: "FuzzProbe FuzzTalenv"},
		{only: "Talconfg", refused: "there is no fuzz target FuzzTalconfg; did you mean FuzzTalconfig?"},
		{only: "Sessions", refused: "there is no fuzz target FuzzSessions; there are FuzzTalconfig, FuzzTalenv, FuzzProbe"},
	} {
		t.Run(test.only, func(t *testing.T) {
			t.Parallel()

			chosen, err := named(all, strings.Split(test.only, ","))

			if test.refused != "" {
				require.EqualError(t, err, test.refused)

				return
			}

			require.NoError(t, err)

			var names []string
			for _, target := range chosen {
				names = append(names, target.name)
			}

			require.Equal(t, test.chosen, strings.Join(names, " "))
		})
	}
}

func TestAnInputThatBreaksAFuzzTargetIsNamed(t *testing.T) {
	t.Parallel()

	const target = `package broken

import "testing"

func FuzzSeed(f *testing.F) {
	f.Add("seed")
	f.Fuzz(func(t *testing.T, text string) { t.Fatal(text) })
}

func FuzzFound(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 3 {
			t.Fatal(text)
		}
	})
}
`

	root := t.TempDir()
	folder := filepath.Join(root, "internal", "broken")
	require.NoError(t, os.MkdirAll(folder, 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(root, "go.mod"), []byte("module example.test/broken\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "broken_test.go"), []byte(target), 0o600))

	targets, err := fuzzTargets(root)
	require.NoError(t, err)
	require.Len(t, targets, 2)

	programs, err := newFuzzPrograms(root)
	require.NoError(t, err)
	t.Cleanup(programs.remove)

	programs.cache = t.TempDir()

	var said strings.Builder

	crasher, err := targets[0].run(t.Context(), programs, time.Hour, &said)
	require.Error(t, err)
	require.Equal(t, "a seed breaks it; again: go test ./internal/broken -run 'FuzzSeed/seed#0'", crasher, said.String())

	crasher, err = targets[1].run(t.Context(), programs, time.Hour, &said)
	require.Error(t, err)

	inputs, globErr := filepath.Glob(filepath.Join(folder, "testdata", "fuzz", "FuzzFound", "*"))
	require.NoError(t, globErr)
	require.Len(t, inputs, 1, said.String())

	input := filepath.Base(inputs[0])
	require.Equal(t, "the input is internal/broken/testdata/fuzz/FuzzFound/"+input+
		"; again: go test ./internal/broken -run 'FuzzFound/"+input+"'", crasher)
}

func TestTheEndOfAFuzzersTimeIsNoFailure(t *testing.T) {
	t.Parallel()

	const (
		progress = "fuzz: elapsed: 2s, execs: 40304 (0/sec), new interesting: 104 (total: 108)\n"
		late     = progress + "--- FAIL: FuzzTalenv (2.04s)\n    context deadline exceeded\nFAIL\n"
	)

	require.True(t, timeWasUp(late))

	for name, said := range map[string]string{
		"an input": "Failing input written to testdata/fuzz/FuzzTalenv/12ab\n" + late,
		"a test's own deadline": progress + "--- FAIL: FuzzTalenv (2.04s)\n    talenv_test.go:12: context deadline " +
			"exceeded\nFAIL\n",
		"something else with it": progress + "--- FAIL: FuzzTalenv (2.04s)\n    context deadline exceeded\n    and " +
			"more\nFAIL\n",
		"a worker that went away": progress + "--- FAIL: FuzzTalenv (2.04s)\n    fuzzing process hung or terminated " +
			"unexpectedly: exit status 2\nFAIL\n",
	} {
		require.False(t, timeWasUp(said), name)
	}
}

func TestAFuzzersVerdictIsKeptUntilItIsJudged(t *testing.T) {
	t.Parallel()

	const (
		progress = "fuzz: elapsed: 0s\nfuzz: elapsed: 2s\n"
		failure  = "--- FAIL: FuzzTalenv (2.04s)\n    context deadline exceeded\nFAIL\n"
	)

	for _, size := range []int{1, 7, 1000} {
		var out strings.Builder

		verdict := &verdictLast{out: &out}
		for part := range slices.Chunk([]byte(progress+failure), size) {
			_, err := verdict.Write(part)
			require.NoError(t, err)
		}

		require.Equal(t, progress, out.String())
		require.Equal(t, failure, string(verdict.held))

		verdict.tell()
		require.Equal(t, progress+failure, out.String())
	}
}
