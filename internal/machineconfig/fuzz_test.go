package machineconfig_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// FuzzMachineConfig holds for any text: nothing panics, a marked secret is never shown, and a config is the same as itself.
func FuzzMachineConfig(f *testing.F) {
	f.Add([]byte(""))
	f.Add([]byte("machine:\n  token: s3cr3t0001\n"))
	f.Add([]byte("version: v1alpha1\nmachine: {token: &a s3cr3t0001, files: [*a]}\ncluster: {secret: *a}\n"))
	f.Add([]byte("---\napiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\naddresses: [{address: 192.0.2.1/24}]\n"))
	f.Add([]byte("? [s3cr3t0001]\n: {<<: {token: s3cr3t0001}}\n"))
	f.Add([]byte("machine: !!binary s3cr3t0001\n"))
	f.Add([]byte("machine:\n  env: {\"s3cr3t0001\": x}\n# s3cr3t0001\n"))

	f.Fuzz(func(t *testing.T, data []byte) {
		// A secret in a secret's place, whatever else is in the text.
		marked := append([]byte("---\nmachine: {token: s3cr3t-of-a-test, files: [{content: s3cr3t-of-a-test}]}\n---\n"), data...)
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
		config.NodeIPSubnets()
		config.HasTPMKeys()
		config.TalosContract()
		config.DiskSelector()
		config.UsesDHCP()
	})
}
