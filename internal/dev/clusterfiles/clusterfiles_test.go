package clusterfiles_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/siderolabs/crypto/x509"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
)

// demo is a cluster of two control planes, one with DHCP, and a worker.
func demo() clusterfiles.Options {
	return clusterfiles.Options{
		ClusterName: "demo",
		Endpoint:    "https://192.0.2.10:6443",
		VIP:         netip.MustParseAddr("192.0.2.10"),
		CNI:         "none",
		Nodes: []clusterfiles.Node{
			{
				Name: "cp1", Role: machine.TypeControlPlane, Address: netip.MustParsePrefix("192.0.2.11/24"),
				MAC: "02:00:00:00:00:11", Gateway: netip.MustParseAddr("192.0.2.1"),
			},
			{Name: "cp2", Role: machine.TypeControlPlane, Declared: "192.0.2.12"},
			{Name: "w1", Role: machine.TypeWorker, Address: netip.MustParsePrefix("192.0.2.21/24"), Link: "ens3"},
		},
	}
}

func TestFilesAreForTheVersionsAskedFor(t *testing.T) {
	t.Parallel()

	for talos, kubernetes := range map[string]string{"v1.13.9": "1.36.3", "v1.12.1": "1.35.0", "v1.11.6": "1.34.0"} {
		t.Run(talos, func(t *testing.T) {
			t.Parallel()

			options := demo()
			options.TalosVersion = talos

			made, err := clusterfiles.Make(options)
			require.NoError(t, err)
			require.Len(t, made.Configs, 3)
			require.Equal(t, kubernetes, made.Options.KubernetesVersion, "the newest that this Talos takes")

			for _, config := range made.Configs {
				provider, err := configloader.NewFromBytes(config.Bytes)
				require.NoError(t, err)
				require.Equal(t, config.Node.Name, provider.NetworkHostnameConfig().Hostname())
				require.Equal(t, clusterfiles.DefaultImage+":"+talos, provider.Machine().Install().Image())
			}
		})
	}
}

func TestWhatHoldsSecretsIsPrivate(t *testing.T) {
	t.Parallel()

	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such modes")
	}

	made, err := clusterfiles.Make(demo())
	require.NoError(t, err)

	dir := t.TempDir()
	require.NoError(t, made.Write(dir))

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

func TestHostNamesCanBeLeftToTheMachines(t *testing.T) {
	t.Parallel()

	options := demo()
	options.AutoHostnames = true

	made, err := clusterfiles.Make(options)
	require.NoError(t, err)
	require.Contains(t, string(made.Configs[0].Bytes), "auto: stable")
	require.NotContains(t, string(made.Configs[0].Bytes), "hostname: cp1")
}

func TestNoKeyIsRSA(t *testing.T) {
	t.Parallel()

	bundle, err := clusterfiles.NewSecrets()
	require.NoError(t, err)
	require.NoError(t, bundle.Validate(talosconfig.TalosVersion1_13))

	key, err := bundle.Certs.K8sServiceAccount.GetKey()
	require.NoError(t, err)
	require.IsType(t, &x509.ECDSAKey{}, key)
}

func TestClustersOfAProcessShareTheirCAsAndNothingElse(t *testing.T) {
	t.Parallel()

	one, err := clusterfiles.Secrets()
	require.NoError(t, err)
	two, err := clusterfiles.Secrets()
	require.NoError(t, err)
	foreign, err := clusterfiles.ForeignSecrets()
	require.NoError(t, err)

	require.Equal(t, one.Certs.OS.Crt, two.Certs.OS.Crt)
	require.NotEqual(t, one.Certs.OS.Crt, foreign.Certs.OS.Crt)
	require.NotEqual(t, one.Cluster.ID, two.Cluster.ID)
	require.NotEqual(t, one.TrustdInfo.Token, two.TrustdInfo.Token)
}
