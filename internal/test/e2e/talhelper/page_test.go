package talhelper_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/test/golden"
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
