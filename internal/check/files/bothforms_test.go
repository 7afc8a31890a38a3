package files_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

var (
	anyTalos      = regexp.MustCompile(`v1\.1[0-4]\.\d+`)
	anyKubernetes = regexp.MustCompile(`v1\.3[0-7]\.\d+`)
)

// Example clusters without patches of replaced fields are judged alike in both forms of machine configs.
func TestExampleClustersAreJudgedAlikeInBothForms(t *testing.T) {
	t.Parallel()

	for _, name := range []string{"secureboot", "single-node", "volumes"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			folder := filepath.Join("..", "..", "..", "testdata", "clusters", name)
			require.Equal(t, troublesIn(t, folder, "v1.13"), troublesIn(t, folder, "v1.14"))
		})
	}
}

// troublesIn are the findings of a cluster that runs Talos 1.14, by what they are about, with configs of a form.
func troublesIn(t *testing.T, folder, contract string) []string {
	t.Helper()

	target := t.TempDir()
	require.NoError(t, os.CopyFS(target, os.DirFS(folder)))

	for _, name := range []string{"talconfig.yaml", "talenv.yaml"} {
		path := filepath.Join(target, name)

		text, err := os.ReadFile(path)
		if err != nil {
			require.ErrorIs(t, err, os.ErrNotExist)
		}

		text = anyKubernetes.ReplaceAll(anyTalos.ReplaceAll(text, []byte("v1.14.1")), []byte("v1.37.0"))
		if name == "talenv.yaml" {
			text = append(text, "\ntalosContract: "+contract+"\n"...)
		}

		require.NoError(t, os.WriteFile(path, text, 0o600))
	}

	var found []string

	for _, finding := range table.Run(t.Context(), check.Read(madeInMemory(t, target))).Findings {
		if finding.Severity != diagnosis.OK {
			found = append(found, fmt.Sprintf("%s %s %s", finding.ID, finding.Node, finding.Cause))
		}
	}

	slices.Sort(found)

	return found
}
