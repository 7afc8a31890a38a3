package layout_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// notOurs are folders of a checkout that no commit holds.
var notOurs = []string{".git", ".cache", ".task", "bin", "node_modules"}

// Everything that the repository needs or speaks of lies in it, so that a clone is whole.
func TestNothingNamesWhatLiesOutsideTheRepository(t *testing.T) {
	t.Parallel()

	// In parts, so that this file doesn't name them either.
	outside := regexp.MustCompile(`(^|[^\w.])/` + `work/|\.\./` + `shared\b`)

	for name, text := range textsOf(t, filepath.Join("..", "..", "..")) {
		for number, line := range strings.Split(text, "\n") {
			require.False(t, outside.MatchString(line), "%s:%d: %s", name, number+1, strings.TrimSpace(line))
		}
	}
}

// textsOf reads the Go, Markdown, YAML and shell files below root, by their path from it.
func textsOf(t *testing.T, root string) map[string]string {
	t.Helper()

	texts := map[string]string{}

	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		if entry.IsDir() {
			if slices.Contains(notOurs, entry.Name()) {
				return filepath.SkipDir
			}

			return nil
		}

		kinds := []string{".go", ".md", ".yaml", ".yml", ".sh"}
		if !entry.Type().IsRegular() ||
			!slices.Contains(kinds, filepath.Ext(path)) && filepath.Base(filepath.Dir(path)) != ".ci" {
			return nil
		}

		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}

		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}

		texts[filepath.ToSlash(name)] = string(text)

		return nil
	})
	require.NoError(t, err)
	require.Contains(t, texts, "internal/test/layout/outside_test.go")

	return texts
}
