package preflight_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	preflight "github.com/talos-mage/talos-mage/internal/check/nodes"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/test/fuzztest"
)

// FuzzClusterChecks judges any text as a talconfig.yaml, with any text as the machine config of all its nodes, wherever
// both can be read.
func FuzzClusterChecks(f *testing.F) {
	const config = "version: v1alpha1\nmachine: {type: controlplane, install: {image: a/b:v1.13.9}}\ncluster: " +
		"{controlPlane: {endpoint: https://192.0.2.10:6443}}\n"

	for _, data := range fuzztest.Seeds(f, ".yaml", ".yml") {
		f.Add(data, []byte(config))
	}

	f.Fuzz(func(t *testing.T, talconfig, config []byte) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, inventory.TalconfigName), talconfig, 0o600))

		cluster, err := inventory.Load(inventory.Options{TalosDir: dir})
		if err != nil {
			return
		}

		configs := map[string]*machineconfig.Config{}

		if parsed, err := machineconfig.FromBytes("fuzz.yaml", config); err == nil {
			for _, node := range cluster.Nodes {
				configs[node.Name] = parsed
			}
		}

		fuzztest.Bounded(t, func() {
			for _, finding := range preflight.Cluster(t.Context(), cluster, configs, nil, preflight.Options{Now: time.Now()}) {
				require.NotEmpty(t, finding.ID)
				require.NotEmpty(t, finding.Cause)
			}
		})
	})
}
