package nodes_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// The inventory's own reading of a generated cluster's files passes, not only one that a test made up.
func TestGeneratedLayoutPasses(t *testing.T) {
	t.Parallel()

	f := newFixture(t)
	dir := t.TempDir()
	require.NoError(t, f.generated.Write(dir))

	cluster, err := inventory.Load(inventory.Options{TalosDir: dir, ConfigDir: filepath.Join(dir, "clusterconfig")})
	require.NoError(t, err)

	configs := make(map[string]*machineconfig.Config)

	for _, node := range cluster.Nodes {
		configs[node.Name], err = machineconfig.Load(node.ConfigFile)
		require.NoError(t, err)
	}

	findings := table.Run(t.Context(), check.Read(check.Options{TalosDir: dir, Root: dir, Checks: f.options})).Findings

	require.Empty(t, failures(findings), "%+v", findings)

	findings = table.Node(t.Context(), &check.Node{
		Node: cluster.Node("cp1"), Cluster: cluster, Config: configs["cp1"], Facts: goodFacts(), Settings: f.options,
	})

	require.Empty(t, failures(findings), "%+v", findings)
}
