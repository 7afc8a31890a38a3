package migrate_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/test/golden"
)

// declaredVersion is the line that a repository changes first.
var declaredVersion = regexp.MustCompile(`(?m)^(talosVersion|TALOS_VERSION): .*$`)

// ofRelease114 is a copy of a repository that declares Talos 1.14.
func ofRelease114(t *testing.T, from string) string {
	t.Helper()

	folder := t.TempDir()
	require.NoError(t, os.CopyFS(folder, os.DirFS(from)))

	for _, name := range []string{"talconfig.yaml", "talenv.yaml"} {
		path := filepath.Join(folder, name)

		data, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue
		}

		require.NoError(t, err)

		data = declaredVersion.ReplaceAllFunc(data, func(line []byte) []byte {
			if strings.Contains(string(line), "${") {
				return line
			}

			name, _, _ := strings.Cut(string(line), ":")

			return []byte(name + ": v1.14.1")
		})

		require.NoError(t, os.WriteFile(path, data, 0o600))
	}

	return folder
}

// Repositories of many shapes are migrated, or it is said what a person has to decide. The golden file has it.
func TestShapes(t *testing.T) {
	folders, err := filepath.Glob(filepath.Join("..", "..", "..", "testdata", "clusters", "*"))
	require.NoError(t, err)
	require.NotEmpty(t, folders)

	var told strings.Builder

	for _, from := range folders {
		folder := ofRelease114(t, from)

		plan, err := planned(t, folder, false)
		require.NoError(t, err, from)
		require.Empty(t, plan.Differences, from)

		fmt.Fprintf(&told, "%s: %d fields moved, %d files changed\n", filepath.Base(from), len(plan.Moves), len(plan.Files))

		for _, note := range plan.Decisions {
			fmt.Fprintf(&told, "  decide %s:%d:%d %s\n", relative(folder, note.Path), note.Line, note.Column, note.Text)
		}

		for _, note := range plan.Kept {
			fmt.Fprintf(&told, "  kept %s:%d:%d %s\n", relative(folder, note.Path), note.Line, note.Column, note.Text)
		}

		take(t, plan)

		again, err := planned(t, folder, false)
		require.NoError(t, err, from)
		require.False(t, again.Changes(), from)
	}

	golden.Assert(t, filepath.Join("testdata", "shapes.txt"), told.String())
}

func relative(folder, path string) string {
	if short, err := filepath.Rel(folder, path); err == nil && filepath.IsAbs(path) {
		return short
	}

	return path
}
