package e2e_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/test/golden"
)

// What another repository gets is what this list says: any exported function of the package that has a target's shape
// would show up.
func TestImportersGetTheseTargetsAndNoOthers(t *testing.T) {
	t.Parallel()

	got := run(t, command{dir: filepath.Join(repository(t), "testdata", "consumer"),
		args: []string{"go", "tool", "mage", "-l"}})
	require.Equal(t, 0, got.code, got.stderr)
	golden.Assert(t, filepath.Join("testdata", "consumer.golden"), got.stdout)
}

func TestThisRepositorysTargetsReadLikeATableOfContents(t *testing.T) {
	t.Parallel()

	got := run(t, command{dir: repository(t), args: []string{"go", "tool", "mage", "-l"}})
	require.Equal(t, 0, got.code, got.stderr)
	golden.Assert(t, filepath.Join("testdata", "repository.golden"), got.stdout)
}

func TestTheExampleMagefileListsTheSameTargets(t *testing.T) {
	t.Parallel()

	got := run(t, command{dir: repository(t), args: []string{"go", "tool", "mage", "-d", "examples/magefile", "-l"}})
	require.Equal(t, 0, got.code, got.stderr)

	consumer := run(t, command{dir: filepath.Join(repository(t), "testdata", "consumer"),
		args: []string{"go", "tool", "mage", "-l"}})
	require.Equal(t, names(consumer.stdout, "backup"), names(got.stdout))
}

// names are the targets that a listing names, without those that are left out.
func names(listing string, without ...string) []string {
	_, table, _ := strings.Cut(listing, "Targets:\n")

	var found []string

	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) == 0 || slices.Contains(without, fields[0]) {
			continue
		}

		found = append(found, fields[0])
	}

	return found
}
