package preflight_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	preflight "github.com/talos-mage/talos-mage/internal/check/nodes"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// The inventory's own reading of a generated cluster's files passes, not only one that a test made up.
func TestGeneratedLayoutPasses(t *testing.T) {
	t.Parallel()

	f := newFixture(t)
	dir := t.TempDir()
	require.NoError(t, f.generated.WriteLayout(dir))

	cluster, err := inventory.Load(inventory.Options{TalosDir: dir, ConfigDir: filepath.Join(dir, "clusterconfig")})
	require.NoError(t, err)

	configs := make(map[string]*machineconfig.Config)

	for _, node := range cluster.Nodes {
		configs[node.Name], err = machineconfig.Load(node.ConfigFile)
		require.NoError(t, err)
	}

	findings := preflight.Cluster(t.Context(), cluster, configs, f.credentials, f.options)

	require.Empty(t, failures(findings), "%+v", findings)
	require.Empty(t, warnings(findings), "%+v", findings)

	facts := goodFacts()
	findings = preflight.Node(t.Context(), cluster, cluster.Node("cp1"), configs["cp1"], facts, f.options)

	require.Empty(t, failures(findings), "%+v", findings)
}
