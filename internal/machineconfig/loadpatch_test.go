package machineconfig_test

import (
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

func TestPatchesMayMergeKeys(t *testing.T) {
	t.Parallel()

	patch, err := machineconfig.LoadPatch([]byte(`cluster:
  apiServer:
    extraArgs: &gates {feature-gates: A=true, v: "2"}
  scheduler:
    extraArgs:
      <<: *gates
      v: "4"
  controllerManager:
    extraArgs:
      <<: [*gates, {v: "6", w: x}]
`))
	require.NoError(t, err)

	provider := patch.(configpatcher.StrategicMergePatch).Documents() //nolint:forcetypeassert // it is no list
	require.Len(t, provider, 1)

	for text, plain := range map[string]string{
		"a: &a {b: c}\nd:\n  <<: *a\n  e: f\n": "a: {b: c}\nd:\n  e: f\n  b: c\n",
		"a: '<<'\n":                            "a: '<<'\n",
		"a: [<<\n":                             "a: [<<\n",
	} {
		require.Equal(t, plain, string(machineconfig.WithoutMergeKeys([]byte(text))))
	}
}
