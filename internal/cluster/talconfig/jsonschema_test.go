package talconfig_test

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/talconfig"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

// schemaNode is what the test needs of a JSON schema.
type schemaNode struct {
	Ref                  string                 `json:"$ref"`
	Properties           map[string]*schemaNode `json:"properties"`
	Items                *schemaNode            `json:"items"`
	Definitions          map[string]*schemaNode `json:"definitions"`
	Type                 any                    `json:"type"`
	Description          string                 `json:"description"`
	AdditionalProperties json.RawMessage        `json:"additionalProperties"`
}

// has reports whether a key path, as nodes[].bond.mode, leads somewhere; a schema without a type allows everything
// below it.
func (n *schemaNode) has(root *schemaNode, path []string) bool {
	if name, ok := strings.CutPrefix(n.Ref, "#/definitions/"); ok {
		n = root.Definitions[name]
	}

	if len(path) == 0 || n.Type == nil {
		return true
	}

	name := strings.TrimSuffix(path[0], "[]")

	inner := n.Properties[name]
	if inner == nil {
		return n.Properties == nil && n.Type == "object"
	}

	if inner.Items != nil {
		inner = inner.Items
	}

	return inner.has(root, path[1:])
}

// The file is published: editors are pointed at it. `go test ./internal/cluster/talconfig -update` renews it.
func TestPublishedSchemaOfTalconfigHasEveryKeyOfTalhelper(t *testing.T) {
	t.Parallel()

	text, err := talconfig.JSONSchema()
	require.NoError(t, err)

	golden.Assert(t, "../../../docs/schemas/talconfig.schema.json", string(text))

	root := &schemaNode{}
	require.NoError(t, json.Unmarshal(text, root))

	file, err := os.Open("../inventory/testdata/talhelper-v3.1.16-keys.txt")
	require.NoError(t, err)

	defer file.Close() //nolint:errcheck // nothing was written

	keys := 0

	for lines := bufio.NewScanner(file); lines.Scan(); keys++ {
		path, _, _ := strings.Cut(lines.Text(), " ")
		require.True(t, root.has(root, strings.Split(path, ".")), path)
	}

	require.Greater(t, keys, 800)
	require.False(t, root.has(root, []string{"clusterNmae"}))
}

// An editor shows what a key means. Keys of Talos' own types get their words from talosKeys, which a newer machinery
// can add to.
func TestPublishedSchemaOfTalconfigSaysWhatEachKeyMeans(t *testing.T) {
	t.Parallel()

	text, err := talconfig.JSONSchema()
	require.NoError(t, err)

	root := &schemaNode{}
	require.NoError(t, json.Unmarshal(text, root))

	root.Definitions["the file"] = root

	for name, definition := range root.Definitions {
		for key, property := range definition.Properties {
			require.NotEmpty(t, property.Description, "%s.%s", name, key)
		}
	}
}
