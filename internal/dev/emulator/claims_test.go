package emulator_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEveryClaimHasATest holds docs/node-behaviour.md and the tests that are named after its claims together.
func TestEveryClaimHasATest(t *testing.T) {
	t.Parallel()

	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "node-behaviour.md"))
	require.NoError(t, err)

	var claimed []string
	for _, match := range regexp.MustCompile(`(?m)^- \*\*(\d+\.\d\d)\*\*`).FindAllStringSubmatch(string(page), -1) {
		claimed = append(claimed, match[1])
	}

	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)

	var tested []string

	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)

		for _, match := range regexp.MustCompile(`(?m)^func TestClaim_(\d+_\d\d)_`).FindAllStringSubmatch(string(source),
			-1) {
			tested = append(tested, strings.ReplaceAll(match[1], "_", "."))
		}
	}

	slices.Sort(claimed)
	slices.Sort(tested)
	require.NotEmpty(t, claimed)
	require.Equal(t, claimed, tested)
}

// TestFewThingsAreNotPlayed keeps the list of what the emulator leaves out short, and every entry of it with its
// reason.
func TestFewThingsAreNotPlayed(t *testing.T) {
	t.Parallel()

	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "node-behaviour.md"))
	require.NoError(t, err)

	_, list, found := strings.Cut(string(page), "\n## Not played\n")
	require.True(t, found)
	require.NotContains(t, list, "\n## ", "it comes last")

	entries := strings.Split(list, "\n- ")[1:]
	require.NotEmpty(t, entries)

	const most = 15

	require.LessOrEqual(t, len(entries), most)

	for _, entry := range entries {
		require.True(t, strings.HasPrefix(entry, "not played: "), entry)
		require.Contains(t, strings.Join(strings.Fields(entry), " "), " because ")
	}
}
