package labcluster_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// A machine of a folder has the links that its machine config selects.
func TestMachinesHaveTheLinksThatAreSelected(t *testing.T) {
	t.Parallel()

	const aliases = `---
apiVersion: v1alpha1
kind: LinkAliasConfig
name: net0
selector: {match: 'mac(link.permanent_addr) == "02:00:00:00:00:01" && link.driver == "ixgbe"'}
---
apiVersion: v1alpha1
kind: LinkAliasConfig
name: net1
selector: {match: 'glob("52:54:00:*", mac(link.hardware_addr)) && glob("0000:03*", link.bus_path)'}
---
apiVersion: v1alpha1
kind: LinkAliasConfig
name: net2
selector: {match: 'link.type == 1'}
`

	dir := t.TempDir()
	generated, err := clusterfiles.Make(clusterfiles.Options{
		ClusterName: "declared", Endpoint: "https://192.0.2.11:6443", CNI: "none", InstallDisk: "/dev/vda",
		Nodes: []clusterfiles.Node{{Name: "cp1", Role: machine.TypeControlPlane, MAC: "02:00:00:00:00:01",
			Address: netip.MustParsePrefix("192.0.2.11/24")}},
	})
	require.NoError(t, err)
	require.NoError(t, generated.Write(dir))

	path := filepath.Join(dir, "clusterconfig", "declared-cp1.yaml")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, append(text, aliases...), 0o600))

	cluster, err := labcluster.FromDirectory(dir, nil, labcluster.Options{Off: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })

	require.Equal(t, []emulator.Link{
		{Name: "eth0", MAC: "02:00:00:00:00:01", Driver: "ixgbe"},
		{Name: "eth1", MAC: "52:54:00:5e:10:01", BusPath: "0000:03"},
	}, cluster.Node("cp1").Options().Links)
}
