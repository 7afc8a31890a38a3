package machineconfig_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/test/fuzztest"
)

// configs are the machine configs of a control plane and a worker, and all test data.
func configs(f *testing.F) [][]byte {
	f.Helper()

	generated, err := clusterfiles.Make(clusterfiles.Options{
		ClusterName: "demo", Endpoint: "https://192.0.2.10:6443", VIP: netip.MustParseAddr("192.0.2.10"), CNI: "none",
		Nodes: []clusterfiles.Node{
			{Name: "cp1", Role: machine.TypeControlPlane, Address: netip.MustParsePrefix("192.0.2.11/24"),
				MAC: "02:00:00:00:00:01"},
			{Name: "worker1", Role: machine.TypeWorker, Address: netip.MustParsePrefix("192.0.2.12/24"),
				MAC: "02:00:00:00:00:02"},
		},
	})
	require.NoError(f, err)

	return append(fuzztest.Seeds(f, ".yaml", ".yml"), generated.Configs[0].Bytes, generated.Configs[1].Bytes)
}

// FuzzMachineConfig holds for any text: nothing panics, a marked secret is never shown, and a config is the same as
// itself.
func FuzzMachineConfig(f *testing.F) {
	f.Add([]byte(""))
	f.Add([]byte("machine:\n  token: s3cr3t0001\n"))
	f.Add([]byte("version: v1alpha1\nmachine: {token: &a s3cr3t0001, files: [*a]}\ncluster: {secret: *a}\n"))
	f.Add([]byte("---\napiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\naddresses: [{address: 192.0.2.1/24}]\n"))
	f.Add([]byte("? [s3cr3t0001]\n: {<<: {token: s3cr3t0001}}\n"))
	f.Add([]byte("machine: !!binary s3cr3t0001\n"))
	f.Add([]byte("machine:\n  env: {\"s3cr3t0001\": x}\n# s3cr3t0001\n"))

	for _, data := range configs(f) {
		f.Add(data)
	}

	f.Fuzz(func(t *testing.T, data []byte) { fuzztest.Bounded(t, func() { requireReadable(t, data) }) })
}

// FuzzDiff shows how any text differs from a machine config, and the other way round.
func FuzzDiff(f *testing.F) {
	seeds := configs(f)
	for _, data := range seeds {
		f.Add(data)
	}

	declared, err := machineconfig.FromBytes("declared.yaml", seeds[len(seeds)-2])
	require.NoError(f, err)

	secrets := declared.SharedSecrets()

	f.Fuzz(func(t *testing.T, data []byte) {
		config, err := machineconfig.FromBytes("fuzz.yaml", data)
		if err != nil {
			return
		}

		fuzztest.Bounded(t, func() {
			for _, diff := range []string{machineconfig.Diff(config, declared), machineconfig.Diff(declared, config)} {
				require.Equal(t, machineconfig.Same(config, declared), diff == "", "only what is the same has no differences")
			}

			config.SharedSecrets().Differing(secrets)
		})
	})
}

// requireReadable holds for any text.
func requireReadable(t *testing.T, data []byte) {
	t.Helper()

	// A secret in a secret's place, whatever else is in the text.
	marked := append([]byte("---\nmachine: {token: s3cr3t-of-a-test, files: [{content: s3cr3t-of-a-test}]}\n---\n"),
		data...)
	if !strings.Contains(string(data), "s3cr3t") {
		require.NotContains(t, string(machineconfig.Mask(marked)), "s3cr3t")
	}

	machineconfig.Placeholders(data)

	config, err := machineconfig.FromBytes("fuzz.yaml", data)
	if err != nil {
		require.NotEmpty(t, err.Error())

		return
	}

	require.True(t, machineconfig.Same(config, config))
	require.Empty(t, machineconfig.Diff(config, config))

	config.Role()
	config.Hostname()
	config.Addresses()
	config.VIPs()
	config.Gateways()
	config.Links()
	config.MACs()
	config.CNI()
	config.PodSubnets()
	config.ServiceSubnets()
	config.HasTPMKeys()
	config.TalosContract()
	config.DiskSelector()
	config.UsesDHCP()
	config.Validate(machineconfig.Mode{Metal: true}) //nolint:errcheck // that it ends is enough
}
