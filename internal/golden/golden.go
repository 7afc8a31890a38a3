// Package golden compares what a test got with a file kept in testdata, so that texts people read are reviewed as files.
//
// Only tests import it. `go test ./internal/... -update` rewrites the files; the difference is then read in the commit.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// update is false unless a test run was given -update, which makes Assert write instead of compare.
var update = flag.Bool("update", false, "rewrite golden files with what the tests got")

// Assert fails the test unless the file at path, relative to the test's package, has exactly the text got.
// With -update it writes the file, and its folder, instead.
func Assert(t testing.TB, path, got string) {
	t.Helper()

	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))

		return
	}

	want, err := os.ReadFile(path)
	require.NoError(t, err, "no golden file yet: run the test with -update and review what it writes")
	require.Equal(t, string(want), got, "%s differs: if the new text is right, run the test with -update", path)
}
