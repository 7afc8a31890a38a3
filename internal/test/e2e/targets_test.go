package e2e_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/test/golden"
)

// What another repository gets is what this list says: any exported function of the package that has a target's shape
// would show up.
func TestImportersGetTheseTargetsAndNoOthers(t *testing.T) {
	t.Parallel()

	got := run(t, command{dir: filepath.Join(repository(t), "examples", "magefile"),
		args: []string{"go", "tool", "mage", "-l"}})
	require.Equal(t, 0, got.code, got.stderr)
	golden.Assert(t, filepath.Join("testdata", "importer.golden"), got.stdout)
}

func TestThisRepositorysTargetsReadLikeATableOfContents(t *testing.T) {
	t.Parallel()

	got := run(t, command{dir: repository(t), args: []string{"go", "tool", "mage", "-l"}})
	require.Equal(t, 0, got.code, got.stderr)
	golden.Assert(t, filepath.Join("testdata", "repository.golden"), got.stdout)
}
