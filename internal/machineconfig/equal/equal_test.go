package equal_test

import (
	"testing"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/throwaway"
	"github.com/talos-mage/talos-mage/internal/machineconfig/equal"
)

var _ = container.New

func TestShow(t *testing.T) {
	all, err := equal.Accessors()
	require.NoError(t, err)
	t.Log(len(all))

	bundle, err := throwaway.Secrets()
	require.NoError(t, err)

	for _, role := range []machine.Type{machine.TypeControlPlane, machine.TypeWorker} {
		var made []talosconfig.Provider

		for _, contract := range []*talosconfig.VersionContract{talosconfig.TalosVersion1_13, talosconfig.TalosVersion1_14} {
			input, err := generate.NewInput("lab", "https://192.0.2.10:6443", "1.36.3", generate.WithVersionContract(contract),
				generate.WithSecretsBundle(bundle), generate.WithInstallDisk("/dev/sda"), generate.WithInstallImage("factory.talos.dev/x:v1"))
			require.NoError(t, err)

			config, err := input.Config(role)
			require.NoError(t, err)

			made = append(made, config)
		}

		found, err := equal.Configs(made[0], made[1])
		require.NoError(t, err)

		for _, one := range found {
			t.Log(role, one.Accessor, "\n   ", one.Before, "\n   ", one.After)
		}
	}
}
