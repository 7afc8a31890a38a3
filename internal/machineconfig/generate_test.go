package machineconfig_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/machineconfig/quicksecrets"
)

// sharedSecrets is one bundle for the whole test process.
var sharedSecrets = sync.OnceValues(quicksecrets.New)

// demoOptions is a cluster of two control planes, one with DHCP, and a worker.
func demoOptions(t *testing.T) machineconfig.GenerateOptions {
	t.Helper()

	bundle, err := sharedSecrets()
	require.NoError(t, err)

	return machineconfig.GenerateOptions{
		ClusterName: "demo",
		Endpoint:    "https://192.0.2.10:6443",
		VIP:         netip.MustParseAddr("192.0.2.10"),
		CNI:         "none",
		Secrets:     bundle,
		Nodes: []machineconfig.NodeSpec{
			{
				Name: "cp1", Role: machine.TypeControlPlane, Address: netip.MustParsePrefix("192.0.2.11/24"),
				MAC: "02:00:00:00:00:11", Gateway: netip.MustParseAddr("192.0.2.1"),
			},
			{Name: "cp2", Role: machine.TypeControlPlane, Declared: "192.0.2.12"},
			{Name: "w1", Role: machine.TypeWorker, Address: netip.MustParsePrefix("192.0.2.21/24"), Link: "ens3"},
		},
	}
}

func TestGeneratedClusterValidatesOnEveryVersion(t *testing.T) {
	t.Parallel()

	for version, kubernetes := range map[string]string{"v1.13.9": "1.36.3", "v1.12.1": "1.35.0", "v1.11.6": "1.34.0",
		"v1.99.0": "1.36.3"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()

			options := demoOptions(t)
			options.TalosVersion = version

			generated, err := machineconfig.GenerateCluster(options)
			require.NoError(t, err)
			require.Len(t, generated.Configs, 3)
			require.Equal(t, kubernetes, generated.Options.KubernetesVersion, "the newest that this Talos takes")

			for _, made := range generated.Configs {
				provider, err := configloader.NewFromBytes(made.Bytes)
				require.NoError(t, err)

				_, err = provider.Validate(machineconfig.Mode{Metal: true})
				require.NoError(t, err, made.FileName)
				require.Equal(t, made.Node.Name, provider.NetworkHostnameConfig().Hostname())
			}
		})
	}
}

func TestGeneratedTalosconfigNamesEndpointsAndNodes(t *testing.T) {
	t.Parallel()

	generated, err := machineconfig.GenerateCluster(demoOptions(t))
	require.NoError(t, err)

	client, err := config.FromBytes(generated.Talosconfig)
	require.NoError(t, err)
	require.Equal(t, []string{"192.0.2.11", "192.0.2.12"}, client.Contexts["demo"].Endpoints)
	require.Equal(t, []string{"192.0.2.11", "192.0.2.12", "192.0.2.21"}, client.Contexts["demo"].Nodes)
}

func TestWriteLayoutKeepsSecretsPrivate(t *testing.T) {
	t.Parallel()

	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such modes")
	}

	generated, err := machineconfig.GenerateCluster(demoOptions(t))
	require.NoError(t, err)

	dir := t.TempDir()
	require.NoError(t, generated.WriteLayout(dir))

	for name, mode := range map[string]os.FileMode{
		"talconfig.yaml":              0o644,
		"talenv.yaml":                 0o644,
		"clusterconfig/talosconfig":   0o600,
		"clusterconfig/demo-cp1.yaml": 0o600,
		"clusterconfig/demo-w1.yaml":  0o600,
		"clusterconfig/.gitignore":    0o644,
	} {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm(), name)
	}
}

func TestGenerateClusterRefusesWhatMakesNoCluster(t *testing.T) {
	t.Parallel()

	for name, spoil := range map[string]func(*machineconfig.GenerateOptions){
		"no nodes":        func(o *machineconfig.GenerateOptions) { o.Nodes = nil },
		"no name":         func(o *machineconfig.GenerateOptions) { o.ClusterName = "" },
		"no endpoint":     func(o *machineconfig.GenerateOptions) { o.Endpoint = "192.0.2.10" },
		"no node address": func(o *machineconfig.GenerateOptions) { o.Nodes[0].Address = netip.Prefix{} },
		"bad version":     func(o *machineconfig.GenerateOptions) { o.TalosVersion = "latest" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			options := demoOptions(t)
			spoil(&options)

			_, err := machineconfig.GenerateCluster(options)
			require.Error(t, err)
		})
	}
}
