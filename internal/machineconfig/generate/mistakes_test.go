package generate_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

// TestMistakes keeps the text of every kind of mistake, with its place: one talconfig and one golden file each in
// testdata/mistakes.
func TestMistakes(t *testing.T) {
	t.Parallel()

	for name, files := range cases(t, "mistakes") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			made, err := bundle()
			require.NoError(t, err)

			_, err = configsIn(folderOf(t, files), made, environ...)
			require.Error(t, err)

			mistakes := yamlfile.Errors(err)
			require.NotEmpty(t, mistakes, err)

			var text strings.Builder

			text.WriteString(err.Error() + "\n")

			for _, mistake := range mistakes {
				require.Equal(t, diagnosis.ExitBadInput, mistake.ExitCode())

				if mistake.Next != "" {
					text.WriteString("next: " + mistake.Next + "\n")
				}
			}

			require.NotContains(t, text.String(), "invented-", "no secrets")
			golden.Assert(t, filepath.Join("testdata", "mistakes", name+".golden"), text.String())
		})
	}
}
