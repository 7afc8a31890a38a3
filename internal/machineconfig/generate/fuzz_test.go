package generate_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/machineconfig/generate"
	"github.com/talos-mage/talos-mage/internal/test/fuzztest"
)

// FuzzMachineConfigs makes machine configs of any text: either they are there, or mistakes that can be shown.
func FuzzMachineConfigs(f *testing.F) {
	// Keys take time, which is not that of the first input.
	_, err := bundle()
	require.NoError(f, err)

	for _, folder := range []string{"configs", "mistakes"} {
		for _, files := range cases(f, folder) {
			f.Add(files["talconfig.yaml"], files["patches/a.yaml"])
		}
	}

	f.Fuzz(func(t *testing.T, talconfig, patch string) {
		source := sourceOf(t, map[string]string{"talconfig.yaml": talconfig, "patches/a.yaml": patch}, environ...)

		fuzztest.Bounded(t, func() {
			output, err := generate.Talconfig(source)
			if err != nil {
				require.NotEmpty(t, yamlfile.Errors(err), err)

				return
			}

			require.NotEmpty(t, output.Configs)
			require.NotEmpty(t, output.Talosconfig)
		})
	})
}
