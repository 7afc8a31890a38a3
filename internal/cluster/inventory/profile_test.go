package inventory_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
)

const someProfile = `name: demo
network: {api_endpoint: 192.0.2.10, pod_cidr: 10.20.0.0/16}
talos:
  version: 1.13.9
  kubernetes_version: 1.36.3
  factory: {schematic_id: ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515}
  vip: {interface: eth0, ip: 192.0.2.10}
  config_dir: configs
nodes:
  controlplane:
    assignments:
      - {name: cp1, ip: 192.0.2.11, mac: "02:00:5E:10:00:01"}
  workers:
    assignments:
      - {name: w1, ip: 192.0.2.21, uuid: 4C4C4544-0042-4B10-8053-B3C04F4D3532}
`

const someTalconfig = `clusterName: other
endpoint: https://192.0.2.10:6443
nodes: [{hostname: cp1, ipAddress: 192.0.2.11, controlPlane: true}]
`

func folderWith(t *testing.T, files map[string]string) string {
	t.Helper()

	dir := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}

	return dir
}

func TestAProfileIsAnInventory(t *testing.T) {
	t.Parallel()

	dir := folderWith(t, map[string]string{"cluster.yaml": someProfile})

	cluster, err := inventory.Load(inventory.Options{TalosDir: dir, ConfigDir: filepath.Join(dir, "clusterconfig")})
	require.NoError(t, err)

	require.Equal(t, "demo", cluster.Name)
	require.Equal(t, "https://192.0.2.10:6443", cluster.Endpoint.String())
	require.Equal(t, "v1.13.9", cluster.TalosVersion)
	require.Equal(t, "flannel", cluster.CNI)
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.20.0.0/16")}, cluster.PodSubnets)
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}, cluster.ServiceSubnets)
	require.Equal(t, filepath.Join(dir, "configs"), cluster.ConfigDir)
	require.True(t, cluster.HasVIP())
	require.Len(t, cluster.Nodes, 2)

	cp1, w1 := cluster.ControlPlanes()[0], cluster.Workers()[0]
	require.Equal(t, "192.0.2.11", cp1.Address)
	require.Equal(t, []string{"02:00:5e:10:00:01"}, cp1.MACs)
	require.Equal(t, filepath.Join(dir, "configs", "demo-cp1.yaml"), cp1.ConfigFile)
	require.Equal(t, "factory.talos.dev/installer/ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515",
		cp1.ImageURL)
	require.Equal(t, 12, cp1.Line)
	require.Empty(t, w1.VIPs)
	require.Equal(t, "4c4c4544-0042-4b10-8053-b3c04f4d3532", w1.UUID)
}

func TestAChosenConfigFolderGoesBeforeTheProfiles(t *testing.T) {
	t.Parallel()

	dir := folderWith(t, map[string]string{"cluster.yaml": someProfile})

	cluster, err := inventory.Load(inventory.Options{TalosDir: dir, ConfigDir: filepath.Join(dir, "elsewhere")})
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "elsewhere"), cluster.ConfigDir)
}

func TestTheSourceIsWhatIsThereOrWhatWasChosen(t *testing.T) {
	t.Parallel()

	tests := map[string]struct {
		files []string
		kind  inventory.Kind
		name  string // of the cluster
		err   string
	}{
		"profile alone":        {[]string{"cluster.yaml"}, "", "demo", ""},
		"both":                 {[]string{"cluster.yaml", "talconfig.yaml"}, inventory.Auto, "other", ""},
		"both, profile chosen": {[]string{"cluster.yaml", "talconfig.yaml"}, inventory.Profile, "demo", ""},
		"talconfig chosen, not there": {[]string{"cluster.yaml"}, inventory.Talconfig, "",
			"talconfig.yaml: the inventory does not exist"},
		"profile chosen, not there": {[]string{"talconfig.yaml"}, inventory.Profile, "",
			"cluster.yaml: the profile does not exist"},
		"nothing": {nil, inventory.Auto, "", "talconfig.yaml: the inventory does not exist"},
		"topf": {[]string{"topf.yaml"}, inventory.Auto, "",
			"topf.yaml: is an input of topf, which is not read here"},
		"topf beside a profile": {[]string{"topf.yaml", "cluster.yaml"}, inventory.Auto, "demo", ""},
	}

	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			files := map[string]string{}
			for _, file := range test.files {
				files[file] = map[string]string{"cluster.yaml": someProfile, "talconfig.yaml": someTalconfig,
					"topf.yaml": "nodes: []\n"}[file]
			}

			cluster, err := inventory.Load(inventory.Options{TalosDir: folderWith(t, files), Source: test.kind})
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				require.NotEmpty(t, inventory.FileErrors(err)[0].Next)

				return
			}

			require.NoError(t, err)
			require.Equal(t, test.name, cluster.Name)
		})
	}
}
