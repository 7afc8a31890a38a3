package record_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The page of a run with failures, in a browser: with a mouse, the keyboard, a small screen and on paper, in light and
// dark, and as axe judges it for those who do not see it. -artifacts keeps pictures of it.
func TestThePageInABrowser(t *testing.T) {
	t.Parallel()

	const modules = "testdata/browser/node_modules"

	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("NOT RUN: there is no chromium here (apt-get install chromium)")
	}

	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("NOT RUN: there is no node here (apt-get install nodejs)")
	}

	if _, err := os.Stat(modules); err != nil {
		t.Skip("NOT RUN: there is no " + modules + " (npm ci --ignore-scripts, beside its package.json)")
	}

	page := filepath.Join(recorded(t), "report.html")
	command := exec.CommandContext(t.Context(), "node", "testdata/browser/page.mjs", page, program, t.ArtifactDir())
	faults, err := command.CombinedOutput()
	require.NoError(t, err, string(faults))
}
