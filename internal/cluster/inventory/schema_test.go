package inventory_test

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
)

// schemaKey is one key path of talhelper's JSON schema and its type.
type schemaKey struct{ path, kind string }

func schemaKeys(t *testing.T) []schemaKey {
	t.Helper()

	file, err := os.Open("testdata/talhelper-v3.1.16-keys.txt")
	require.NoError(t, err)

	defer file.Close() //nolint:errcheck // nothing was written

	var keys []schemaKey

	for lines := bufio.NewScanner(file); lines.Scan(); {
		path, kind, _ := strings.Cut(lines.Text(), " ")
		keys = append(keys, schemaKey{path, kind})
	}

	require.Greater(t, len(keys), 800)

	return keys
}

// minimal is a talconfig that holds only what is needed.
func minimal() map[string]any {
	return map[string]any{
		"clusterName": "demo",
		"endpoint":    "https://192.0.2.10:6443",
		"nodes":       []any{map[string]any{"hostname": "cp1", "ipAddress": "192.0.2.11", "controlPlane": true}},
	}
}

// set puts a value at a key path such as "nodes[].bond.mode", making what lies on the way.
func set(into map[string]any, path string, value any) {
	head, rest, nested := strings.Cut(path, ".")
	name, isList := strings.CutSuffix(head, "[]")

	switch {
	case !nested && isList:
		into[name] = []any{value}
	case !nested:
		into[name] = value
	case isList:
		items, ok := into[name].([]any)
		if !ok {
			items = []any{map[string]any{}}
			into[name] = items
		}

		set(items[0].(map[string]any), rest, value) //nolint:forcetypeassert // made as such right above
	default:
		inner, ok := into[name].(map[string]any)
		if !ok {
			inner = map[string]any{}
			into[name] = inner
		}

		set(inner, rest, value)
	}
}

// TestEveryKeyOfTheSchemaIsKnown loads a talconfig for each key of the schema, with a value of its type.
func TestEveryKeyOfTheSchemaIsKnown(t *testing.T) {
	t.Parallel()

	special := map[string]any{ // values that are more than their type
		"endpoint":                         "https://192.0.2.10:6443",
		"nodes[].ipAddress":                "192.0.2.11",
		"nodes[].installDiskSelector.size": ">= 100GB",
		"clusterPodNets[]":                 "10.244.0.0/16",
		"clusterSvcNets[]":                 "10.96.0.0/12",
		"nodes":                            minimal()["nodes"],
		"clusterPodNets":                   []any{"10.244.0.0/16"},
		"clusterSvcNets":                   []any{"10.96.0.0/12"},
		"nodes[].filenameTmpl":             "{{ .Hostname }}.yaml",
	}

	values := map[string]any{
		"string": "text", "boolean": true, "integer": 1, "any": "text", "list": []any{}, "mapping": map[string]any{},
		"map": map[string]any{},
	}

	for _, key := range schemaKeys(t) {
		value, ok := special[key.path]
		if !ok {
			value = values[key.kind]
		}

		talconfig := minimal()
		set(talconfig, key.path, value)

		text, err := yaml.Marshal(talconfig)
		require.NoError(t, err)

		cluster, err := load(t, map[string]string{"talconfig.yaml": string(text)})

		require.NoError(t, err, key.path)
		require.NotEmpty(t, cluster.Nodes, key.path)
	}
}

// TestMisspeltKeysAreRefused takes a letter out of every key of the schema.
func TestMisspeltKeysAreRefused(t *testing.T) {
	t.Parallel()

	keys := schemaKeys(t)
	known := map[string]bool{}

	for _, key := range keys {
		known[key.path] = true
	}

	for _, key := range keys {
		dot := strings.LastIndex(key.path, ".") + 1
		parent, name := key.path[:dot], key.path[dot:]

		if strings.HasSuffix(name, "[]") || len(name) < 4 {
			continue
		}

		misspelt := name[:1] + name[2:]
		if known[parent+misspelt] {
			continue
		}

		talconfig := minimal()
		set(talconfig, parent+misspelt, "x")

		text, err := yaml.Marshal(talconfig)
		require.NoError(t, err)

		_, err = load(t, map[string]string{"talconfig.yaml": string(text)})

		// Under free-form maps, as nodeLabels and overlay options, every key is right.
		if strings.Contains(key.path, "overlay.options") {
			continue
		}

		found := false

		for _, mistake := range inventory.FileErrors(err) {
			if strings.Contains(mistake.Message, `unknown key "`+misspelt+`"`) {
				found = true

				require.NotEmpty(t, mistake.Suggestion, key.path)
				require.Positive(t, mistake.Line)
			}
		}

		require.True(t, found, "%s%s: %v", parent, misspelt, err)
	}
}
