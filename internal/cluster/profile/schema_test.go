package profile_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/profile"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

// The file is published: editors are pointed at it. `go test ./internal/cluster/profile -update` renews it.
func TestPublishedSchemaOfTheProfileIsTheReaders(t *testing.T) {
	t.Parallel()

	schema, err := profile.JSONSchema()
	require.NoError(t, err)

	golden.Assert(t, "../../../docs/schemas/cluster.schema.json", string(schema))

	var parsed struct {
		Required    []string
		Properties  map[string]any
		Definitions map[string]struct {
			Properties           map[string]any
			AdditionalProperties bool
		}
	}

	require.NoError(t, json.Unmarshal(schema, &parsed))
	require.Equal(t, []string{"name", "network", "nodes", "talos"}, parsed.Required)
	require.False(t, parsed.Definitions["talos"].AdditionalProperties)
	require.True(t, parsed.Definitions["assignment"].AdditionalProperties, "other programs keep keys there")
	require.Contains(t, parsed.Definitions["assignment"].Properties, "mac")
}
