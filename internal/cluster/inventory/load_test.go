package inventory_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// sharedSecrets is one bundle for the whole test process.
var sharedSecrets = sync.OnceValues(clusterfiles.NewSecrets)

// demoOptions is a cluster of two control planes and a worker, one control plane with DHCP.
func demoOptions(t *testing.T) clusterfiles.Options {
	t.Helper()

	bundle, err := sharedSecrets()
	require.NoError(t, err)

	return clusterfiles.Options{
		ClusterName: "demo",
		Endpoint:    "https://192.0.2.10:6443",
		VIP:         netip.MustParseAddr("192.0.2.10"),
		CNI:         "none",
		Secrets:     bundle,
		Nodes: []clusterfiles.Node{
			{
				Name: "cp1", Role: inventory.ControlPlane, Address: netip.MustParsePrefix("192.0.2.11/24"),
				MAC: "02:00:00:00:00:11", Gateway: netip.MustParseAddr("192.0.2.1"),
			},
			{Name: "cp2", Role: inventory.ControlPlane, Declared: "192.0.2.12"},
			{Name: "w1", Role: inventory.Worker, Address: netip.MustParsePrefix("192.0.2.21/24"), Link: "ens3"},
		},
	}
}

// writeDemo writes the demo cluster's files into a folder of its own.
func writeDemo(t *testing.T, options clusterfiles.Options) string {
	t.Helper()

	generated, err := clusterfiles.Make(options)
	require.NoError(t, err)

	dir := t.TempDir()
	require.NoError(t, generated.Write(dir))

	return dir
}

// load reads files, given by name and content, from a folder of their own. Paths in errors are bare names.
func load(t *testing.T, files map[string]string, environ ...string) (*inventory.Cluster, error) {
	t.Helper()

	dir := t.TempDir()

	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}

	return inventory.Load(inventory.Options{TalosDir: dir, Environ: environ, Files: reading.New(dir, nil)})
}

func TestLoadReadsWhatGenerateWrote(t *testing.T) {
	t.Parallel()

	dir := writeDemo(t, demoOptions(t))

	cluster, err := inventory.Load(inventory.Options{TalosDir: dir})
	require.NoError(t, err)

	require.Equal(t, "demo", cluster.Name)
	require.Equal(t, "https://192.0.2.10:6443", cluster.Endpoint.String())
	require.Equal(t, machineconfig.DefaultTalosVersion, cluster.TalosVersion)
	require.True(t, strings.HasPrefix(cluster.KubernetesVersion, "v1."))
	require.Equal(t, "none", cluster.CNI)
	require.True(t, cluster.HasVIP())
	require.Equal(t, "10.244.0.0/16", cluster.PodSubnets[0].String())
	require.Equal(t, "10.96.0.0/12", cluster.ServiceSubnets[0].String())
	require.Len(t, cluster.ControlPlanes(), 2)
	require.Len(t, cluster.Workers(), 1)

	cp1 := cluster.Node("cp1")
	require.Equal(t, "192.0.2.11", cp1.Address)
	require.Equal(t, []string{"02:00:00:00:00:11"}, cp1.MACs)
	require.Equal(t, []netip.Addr{netip.MustParseAddr("192.0.2.10")}, cp1.VIPs)
	require.Equal(t, "/dev/vda", cp1.InstallDisk)
	require.Equal(t, clusterfiles.DefaultImage, cp1.ImageURL)
	require.Equal(t, filepath.Join(dir, "clusterconfig", "demo-cp1.yaml"), cp1.ConfigFile)
	require.FileExists(t, cp1.ConfigFile)
	require.Empty(t, cluster.Node("w1").VIPs)
	require.Same(t, cp1, cluster.Node("192.0.2.11"))
	require.Nil(t, cluster.Node("cp9"))
}

func overwrite(t *testing.T, dir, name, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
}

// Facts that a patch sets are in the machine configs alone.
func TestLoadLearnsFromMachineConfigs(t *testing.T) {
	t.Parallel()

	options := demoOptions(t)
	options.Nodes[1].MAC = "02:00:00:00:00:12"
	dir := writeDemo(t, options)

	overwrite(t, dir, "talconfig.yaml", `clusterName: demo
endpoint: https://192.0.2.10:6443
nodes:
  - {hostname: cp1, ipAddress: 192.0.2.11, controlPlane: true}
  - {hostname: cp2, ipAddress: 192.0.2.12, controlPlane: true}
  - {hostname: w1, ipAddress: 192.0.2.21}
`)

	cluster, err := inventory.Load(inventory.Options{TalosDir: dir})
	require.NoError(t, err)
	require.Equal(t, "none", cluster.CNI)
	require.Equal(t, []string{"02:00:00:00:00:12"}, cluster.Node("cp2").MACs)
	require.Equal(t, []netip.Addr{netip.MustParseAddr("192.0.2.10")}, cluster.Node("cp1").VIPs)
}
