package invocation_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

func TestSchemasArePrintedForEditors(t *testing.T) {
	t.Parallel()

	for file, key := range map[string]string{"": "clusterName", "talconfig.yaml": "clusterName",
		"cluster.yaml": "regenerate_secrets"} {
		flags := settings.Overrides{"of": file}
		made, out, errs := call(t)
		require.Nil(t, made.Schema(flags), file)
		require.Empty(t, errs.String())

		var schema struct{ Properties map[string]any }

		require.NoError(t, json.Unmarshal(out.Bytes(), &schema))
		require.Contains(t, schema.Properties, key)
	}

	made, out, _ := call(t)
	failure := made.Schema(settings.Overrides{"of": "cluster.yml"})
	require.Equal(t, diagnosis.ExitBadInput, failure.Code)
	require.Contains(t, failure.Message, "-of=cluster.yaml")
	require.Empty(t, out.String())
}

func TestImagesAreNamedNodeByNode(t *testing.T) {
	t.Parallel()

	made, out, _ := call(t)
	require.Nil(t, made.Images(t.Context(), nil))
	require.Regexp(t, `(?m)^node +schematic +installer +boot image$`, out.String())
	require.Regexp(t, `(?m)^\S+ +\S+ +factory\.talos\.dev/\S+:v1\.\d+\.\d+ +https?://\S+$`, out.String())
}
