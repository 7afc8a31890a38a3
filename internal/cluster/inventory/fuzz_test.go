package inventory_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/test/fuzztest"
)

// seeds adds the talconfigs of testdata.
func seeds(f *testing.F, add func(talconfig, talenv string)) {
	f.Helper()

	paths, err := filepath.Glob("testdata/mistakes/*.yaml")
	require.NoError(f, err)

	for _, path := range paths {
		content, err := os.ReadFile(path)
		require.NoError(f, err)

		talconfig, talenv, _ := strings.Cut(string(content), "======\n")
		add(talconfig, talenv)
	}

	add(twoNodes, "NAME: demo\n")

	for _, data := range fuzztest.Seeds(f, ".yaml", ".yml") {
		add(string(data), string(data))
	}
}

// requireSound holds for whatever was read: a cluster that can be used, or mistakes that can be shown.
func requireSound(t *testing.T, dir string) {
	t.Helper()

	cluster, err := inventory.Load(inventory.Options{TalosDir: dir, Files: reading.New(dir, nil)})
	if err != nil {
		mistakes := inventory.FileErrors(err)
		require.NotEmpty(t, mistakes)

		for _, mistake := range mistakes {
			require.NotEmpty(t, mistake.ID)
			require.NotEmpty(t, mistake.Message)
		}

		return
	}

	require.NotEmpty(t, cluster.Name)
	require.NotNil(t, cluster.Endpoint)
	require.NotEmpty(t, cluster.Nodes)

	names, addresses := map[string]bool{}, map[string]bool{}

	for _, node := range cluster.Nodes {
		require.NotEmpty(t, node.Name)
		require.NotEmpty(t, node.Address)
		require.False(t, names[node.Name] || addresses[node.Address], "names and addresses are unique")

		names[node.Name], addresses[node.Address] = true, true
	}
}

// FuzzTalconfig reads any text as talconfig.yaml.
func FuzzTalconfig(f *testing.F) {
	seeds(f, func(talconfig, _ string) { f.Add([]byte(talconfig)) })

	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "talconfig.yaml"), data, 0o600))
		fuzztest.Bounded(t, func() { requireSound(t, dir) })
	})
}

// FuzzTalenv reads any text as talenv.yaml, under a talconfig.yaml that uses its variables.
func FuzzTalenv(f *testing.F) {
	seeds(f, func(_, talenv string) { f.Add([]byte(talenv)) })

	talconfig := strings.NewReplacer("demo", "${NAME:-demo}", "192.0.2.21", "$A", "true", "${CP-true}").Replace(twoNodes)

	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "talconfig.yaml"), []byte(talconfig), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "talenv.yaml"), data, 0o600))
		fuzztest.Bounded(t, func() { requireSound(t, dir) })
	})
}

// FuzzNodesFile reads any text as nodes.yaml.
func FuzzNodesFile(f *testing.F) {
	f.Add([]byte("nodes:\n  - {name: cp1, address: 192.0.2.11}\n  - address: node2.example\n"))
	seeds(f, func(talconfig, _ string) { f.Add([]byte(talconfig)) })

	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "nodes.yaml")
		require.NoError(t, os.WriteFile(path, data, 0o600))

		fuzztest.Bounded(t, func() {
			machines, err := inventory.ReadNodesFile(nil, path)
			if err != nil {
				require.NotEmpty(t, inventory.FileErrors(err))

				return
			}

			require.NotEmpty(t, machines)

			for _, machine := range machines {
				require.NotEmpty(t, machine.Name)
				require.NotEmpty(t, machine.Address)
			}
		})
	})
}
