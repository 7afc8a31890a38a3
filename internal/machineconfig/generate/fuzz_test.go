package generate_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/test/fuzztest"
)

// FuzzMachineConfigs makes machine configs of any text: either they are there, or mistakes that can be shown.
func FuzzMachineConfigs(f *testing.F) {
	// Keys take time, which is not that of the first input.
	secrets, err := bundle()
	require.NoError(f, err)

	for _, folder := range []string{"configs", "mistakes"} {
		for _, files := range cases(f, folder) {
			f.Add(files["talconfig.yaml"], files["patches/a.yaml"])
		}
	}

	f.Fuzz(func(t *testing.T, talconfig, patch string) {
		dir := folderOf(t, map[string]string{"talconfig.yaml": talconfig, "patches/a.yaml": patch})

		fuzztest.Bounded(t, func() {
			output, err := configsIn(dir, secrets, environ...)
			if err != nil {
				require.NotEmpty(t, yamlfile.Errors(err), err)

				return
			}

			require.NotEmpty(t, output.Configs)
			require.NotEmpty(t, output.Talosconfig)
		})
	})
}
