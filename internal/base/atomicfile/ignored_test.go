package atomicfile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/atomicfile"
)

func TestAFolderIsKeptOutOfGit(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		name          string
		present, want string
	}{
		{name: "a new one", want: "*\n"},
		{name: "one whose list a kill cut short", present: "", want: "*\n"},
		{name: "one with its owner's list", present: "*.html\n", want: "*.html\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			folder := filepath.Join(t.TempDir(), "kept")
			list := filepath.Join(folder, ".gitignore")

			if test.name != "a new one" {
				require.NoError(t, os.Mkdir(folder, 0o700))
				require.NoError(t, os.WriteFile(list, []byte(test.present), 0o600))
			}

			require.NoError(t, atomicfile.KeepOutOfGit(folder))
			requireContent(t, list, test.want)
			requireMode(t, folder, 0o700)
			requireMode(t, list, 0o600)
			requireOnly(t, folder, ".gitignore")
		})
	}
}
