package layout_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var link = regexp.MustCompile(`\]\(([^)#\s]+)(?:#[^)]*)?\)`)

// pages are the Markdown files that people read, by their path from root.
func pages(t *testing.T, root string) []string {
	t.Helper()

	var found []string

	for _, pattern := range []string{"*.md", "docs/*.md", "examples/*.md"} {
		matches, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)

		found = append(found, matches...)
	}

	require.NotEmpty(t, found)

	return found
}

func TestLinksBetweenPagesLeadSomewhere(t *testing.T) {
	t.Parallel()

	for _, page := range pages(t, filepath.Join("..", "..", "..")) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)

		for _, match := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(match[1], "://") {
				continue
			}

			require.FileExists(t, filepath.Join(filepath.Dir(page), match[1]), "%s links to %s", page, match[1])
		}
	}
}

// A task that a page tells people to type is one of the Taskfiles'.
func TestPagesNameTasksThatExist(t *testing.T) {
	t.Parallel()

	root := filepath.Join("..", "..", "..")
	named := regexp.MustCompile("`task (?:-x )?(bootstrap|talos|infra):([a-z0-9-]+)")
	folders := map[string]string{"bootstrap": "bootstrap", "talos": "talos", "infra": "infrastructure"}

	for _, page := range pages(t, root) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)

		for _, match := range named.FindAllStringSubmatch(string(text), -1) {
			taskfile, err := os.ReadFile(filepath.Join(root, ".taskfiles", folders[match[1]], "Taskfile.yaml"))
			require.NoError(t, err)
			require.Contains(
				t,
				string(taskfile),
				"\n  "+match[2]+":\n",
				"%s names task %s:%s",
				page,
				match[1],
				match[2],
			)
		}
	}
}
