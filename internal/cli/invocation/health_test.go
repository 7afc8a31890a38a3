package invocation_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

func TestTheHealthOfAClusterInJSONIsADocumentAlone(t *testing.T) {
	t.Parallel()

	made, out, _ := call(t)
	failure := made.Health(t.Context(), settings.Overrides{"format": "json"})
	require.Equal(t, diagnosis.ExitKubernetes, failure.Code, failure.Message)

	var document struct {
		Healthy  bool
		Nodes    []struct{ Answers bool }
		Findings []struct{ ID string }
	}

	require.NoError(t, json.Unmarshal(out.Bytes(), &document), out.String())
	require.False(t, document.Healthy)
	require.NotEmpty(t, document.Nodes)
	require.NotEmpty(t, document.Findings)

	failure = made.Health(t.Context(), settings.Overrides{"format": "sarif"})
	require.Equal(t, diagnosis.ExitBadInput, failure.Code)
	require.Contains(t, failure.Message, "-format=sarif is for audits: health takes table or json")
}
