package nodes_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
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

		for _, node := range cluster.Nodes {
			if err := os.MkdirAll(filepath.Dir(node.ConfigFile), 0o700); err == nil {
				_ = os.WriteFile(node.ConfigFile, config, 0o600) // a name that no file can have
			}
		}

		fuzztest.Bounded(t, func() {
			in := check.Read(check.Options{TalosDir: dir, Root: dir, Checks: check.Settings{Now: time.Now()}})

			for _, finding := range table.Run(t.Context(), in).Findings {
				require.NotEmpty(t, finding.ID)
				require.NotEmpty(t, finding.Cause)
			}
		})
	})
}
