// Package tool finds the programs of others that tests run: those that `.ci/run tools` builds, or the machine's own.
package tool

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Find is the path of a program. The test is skipped where there is none.
func Find(tb testing.TB, name string) string {
	tb.Helper()

	path := Look(tb, name)
	if path == "" {
		tb.Skipf("SKIP: no %s, neither in bin/ nor on the PATH: `.ci/run tools` makes it", name)
	}

	return path
}

// Look is the path of a program in the repository's bin/, else on the PATH; empty without one.
func Look(tb testing.TB, name string) string {
	tb.Helper()

	for _, place := range []string{filepath.Join(repository(tb), "bin", name), name} {
		if path, err := exec.LookPath(place); err == nil {
			return path
		}
	}

	return ""
}

// repository is the folder with go.mod above the test's own.
func repository(tb testing.TB) string {
	tb.Helper()

	folder, err := os.Getwd()
	require.NoError(tb, err)

	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder
		}

		require.NotEqual(tb, folder, filepath.Dir(folder), "there is no go.mod above the test")
		folder = filepath.Dir(folder)
	}
}
