package talhelper_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/test/golden"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

// The page's tables are the lists that the tests hold true.
func TestPageListsTheDifferences(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile(filepath.Join("testdata", "talconfig.md"))
	require.NoError(t, err)

	golden.Assert(t, filepath.Join(repository, "docs", "talconfig.md"), strings.NewReplacer(
		"{{differences}}\n", differencesTable(), "{{refusals}}\n", refusalsTable(), "{{drawn}}", strconv.Itoa(drawnCount),
	).Replace(string(text)))
}

// replaced is a command of talhelper that a page has another one for, with its flags.
var replaced = regexp.MustCompile(`\x60talhelper ([a-z0-9 -]+?)(?: >.*?| \\?\|.*?|)\x60`)

// What the page about migrating replaces, talhelper has.
func TestWhatIsReplacedTalhelperHas(t *testing.T) {
	t.Parallel()

	program := tool.Find(t, "talhelper")
	page, err := os.ReadFile(filepath.Join(repository, "docs", "migrating.md"))
	require.NoError(t, err)

	commands := replaced.FindAllStringSubmatch(string(page), -1)
	require.Greater(t, len(commands), 12)

	for _, command := range commands {
		words, flags := command[1], ""
		if at := strings.Index(words, " -"); at >= 0 {
			words, flags = words[:at], words[at:]
		}

		asking := exec.CommandContext(t.Context(), program, append(strings.Fields(words), "--help")...) //nolint:gosec // the page's
		asking.Env = environment()

		help, err := asking.CombinedOutput()
		require.NoError(t, err, "%s\n%s", command[0], help)
		require.Contains(t, string(help), "Usage:\n  talhelper "+words, command[0])

		for _, flag := range strings.Fields(flags) {
			if strings.HasPrefix(flag, "-") && flag != "--insecure" { // which is for talosctl
				require.Regexp(t, `(?m)^ .*`+flag+`\b`, string(help), command[0])
			}
		}
	}
}

func differencesTable() string {
	var table strings.Builder

	table.WriteString("| what | talhelper | here | why |\n|---|---|---|---|\n")

	for _, known := range knownDifferences {
		fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", known.title, known.talhelpers, known.ours, known.reason)
	}

	return table.String()
}

func refusalsTable() string {
	var table strings.Builder

	table.WriteString("| what | why |\n|---|---|\n")

	for _, refusal := range refusals {
		fmt.Fprintf(&table, "| %s | %s |\n", refusal.title, refusal.reason)
	}

	return table.String()
}
