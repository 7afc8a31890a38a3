// Package golden compares what a test got with a file kept in testdata, so that texts people read are reviewed as
// files.
//
// Only tests import it. `go test ./internal/... -update` rewrites the files; the difference is then read in the commit.
package golden

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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

	if string(want) != got {
		require.Fail(t, path+" differs: if the new text is right, run the test with -update",
			firstDifference(string(want), got))
	}
}

// AssertAlike is Assert for a text of which some is never the same twice, as how long something took: what common makes
// equal is equal. With -update a file that says the same stays as it is.
func AssertAlike(t testing.TB, path, got string, common func(string) string) {
	t.Helper()

	kept, err := os.ReadFile(path)
	if *update {
		if err != nil || common(string(kept)) != common(got) {
			Assert(t, path, got)
		}

		return
	}

	require.NoError(t, err, "no golden file yet: run the test with -update and review what it writes")

	if want, got := common(string(kept)), common(got); want != got {
		require.Fail(t, path+" differs: if the new text is right, run the test with -update", firstDifference(want, got))
	}
}

// firstDifference shows the first line that differs, with its number: whole pages side by side would hide it.
func firstDifference(want, got string) string {
	wanted, gotten := strings.SplitAfter(want, "\n"), strings.SplitAfter(got, "\n")

	for i := 0; ; i++ {
		var wantedLine, gottenLine string

		if i < len(wanted) {
			wantedLine = wanted[i]
		}

		if i < len(gotten) {
			gottenLine = gotten[i]
		}

		if wantedLine != gottenLine || i >= len(wanted) {
			return fmt.Sprintf("line %d of the file: %q\nthe test got:      %q", i+1, wantedLine, gottenLine)
		}
	}
}
