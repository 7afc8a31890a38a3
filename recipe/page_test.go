package recipe_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/recipe"
)

// asOnThePage is what the page about importing shows.
func asOnThePage(ctx context.Context) (recipe.Result, error) {
	publish := func(context.Context, recipe.Cluster) error { return nil }
	askForTheWindow := func(context.Context, recipe.Point) error { return errors.New("not now") }

	bringUp := recipe.Talos()
	bringUp.Steps = append(bringUp.Steps, recipe.Func("dns", publish))
	bringUp.Hooks = []recipe.Hook{{Step: "bootstrap", Before: askForTheWindow}}

	result, err := bringUp.Run(ctx, recipe.Options{
		Dir:      "/srv/homelab",
		Settings: map[string]string{"APPLY_MODE": "parallel", "MAX_PARALLEL": "50%"},
	})

	return result, err
}

func TestTheCodeOnThePageRuns(t *testing.T) {
	t.Parallel()

	result, err := asOnThePage(t.Context())
	require.ErrorContains(t, err, "the inventory does not exist")
	require.Equal(t, recipe.ExitBadInput, result.ExitCode, "there is no such folder")

	page, err := os.ReadFile(filepath.Join("..", "docs", "importing.md"))
	require.NoError(t, err)

	code, err := os.ReadFile("page_test.go")
	require.NoError(t, err)

	_, section, found := strings.Cut(string(page), "\n## From Go\n")
	require.True(t, found)

	section, _, _ = strings.Cut(section, "\n## ")
	lines := 0

	for line := range strings.Lines(section) {
		if shown, ok := strings.CutPrefix(line, "    "); ok {
			lines++

			require.Contains(t, string(code), "\t"+strings.TrimSpace(shown)+"\n")
		}
	}

	require.Greater(t, lines, 5)
}
