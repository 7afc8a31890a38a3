package layout_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// olderForm is a read of what the document without a kind says, and that alone: it sees nothing of the documents that
// say the same since Talos 1.14.
var olderForm = regexp.MustCompile(`\.RawV1Alpha1\(\)|\b[pP]rovider\.(Machine|Cluster)\(\)|\bConfig\(\)\.(Machine|Cluster)\(\)`)

// mayReadOlderForm are the folders whose code does so, and why.
var mayReadOlderForm = map[string]string{
	"internal/machineconfig":          "its accessors know both forms, for everybody else",
	"internal/machineconfig/generate": "it writes that form",
	"internal/dev/emulator":           "it plays releases that know no other form, and reads as each of them does",
}

func TestOnlyAccessorsReadTheOlderFormOfMachineConfigs(t *testing.T) {
	t.Parallel()

	root := filepath.Join("..", "..", "..")
	used := map[string]bool{}

	for file := range importsOf(t, root) {
		text, err := os.ReadFile(filepath.Join(root, file))
		require.NoError(t, err)

		for i, line := range strings.Split(string(text), "\n") {
			if !olderForm.MatchString(line) {
				continue
			}

			folder := permittedFolder(filepath.ToSlash(file))
			require.NotEmpty(t, folder, "%s:%d reads one form of machine configs: take an accessor of internal/machineconfig",
				file, i+1)

			used[folder] = true
		}
	}

	for folder := range mayReadOlderForm {
		require.True(t, used[folder], "%s does not read the older form: the permission can go", folder)
	}
}

// permittedFolder is the folder with a permission that a file is in; empty if there is none. What is below accessors is
// not the accessors.
func permittedFolder(file string) string {
	for folder := range mayReadOlderForm {
		own := filepath.ToSlash(filepath.Dir(file)) == folder
		if own || folder == "internal/dev/emulator" && isBelow(file, folder) {
			return folder
		}
	}

	return ""
}
