package inventory_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/inventory"
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
}

// requireSound holds for whatever was read: a cluster that can be used, or mistakes that can be shown.
func requireSound(t *testing.T, dir string) {
	t.Helper()

	cluster, err := inventory.Load(inventory.Options{TalosDir: dir, Root: dir})
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

	require.NotEmpty(t, cluster.CrossCheck(filepath.Join(dir, "talosconfig")))
}

// FuzzTalconfig reads any text as talconfig.yaml.
func FuzzTalconfig(f *testing.F) {
	seeds(f, func(talconfig, _ string) { f.Add([]byte(talconfig)) })

	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "talconfig.yaml"), data, 0o600))
		requireSound(t, dir)
	})
}

// FuzzTalenv reads any text as talenv.yaml, under a talconfig.yaml that uses its variables.
func FuzzTalenv(f *testing.F) {
	seeds(f, func(_, talenv string) { f.Add([]byte(talenv)) })

	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		talconfig := strings.NewReplacer("demo", "${NAME:-demo}", "192.0.2.21", "$A", "true", "${CP-true}").Replace(twoNodes)

		require.NoError(t, os.WriteFile(filepath.Join(dir, "talconfig.yaml"), []byte(talconfig), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "talenv.yaml"), data, 0o600))
		requireSound(t, dir)
	})
}
