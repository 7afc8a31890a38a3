package machineconfig_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/test/documents"
)

func TestChangedFieldsAreNamedByWhenTheyTakeEffect(t *testing.T) {
	t.Parallel()

	machine := func(text string) documents.Edit { return documents.Edit{"machine:\n", "machine:\n" + text} }

	for name, test := range map[string]struct {
		edit  documents.Edit
		wants map[machineconfig.Effect][]string
	}{
		"nothing": {documents.Edit{"cp1", "cp1"}, map[machineconfig.Effect][]string{}},
		"at once, a document": {documents.Tuned, map[machineconfig.Effect][]string{
			machineconfig.EffectAtOnce: {"SysctlConfig"},
		}},
		"at once, a field": {machine("    nodeLabels: {a: b}\n"), map[machineconfig.Effect][]string{
			machineconfig.EffectAtOnce: {"machine.nodeLabels"},
		}},
		"at a reboot, a document": {documents.NoIsolation, map[machineconfig.Effect][]string{
			machineconfig.EffectAtReboot: {"SecurityProfileConfig"},
		}},
		"at a reboot, a field": {machine("    env: {A: b}\n"), map[machineconfig.Effect][]string{
			machineconfig.EffectAtReboot: {"machine.env"},
		}},
		"at a reboot, below a field that takes effect at once": {
			documents.Edit{"    etcd:\n", "    etcd:\n        extraArgs: {a: b}\n"},
			map[machineconfig.Effect][]string{machineconfig.EffectAtReboot: {"cluster.etcd.extraArgs"}},
		},
		"nobody knows, a field": {
			machine("    disks:\n        - device: /dev/vdb\n"),
			map[machineconfig.Effect][]string{machineconfig.EffectUnknown: {"machine.disks"}},
		},
		"nobody knows, a document with a name": {
			documents.Edit{"kind: VolumeConfig\nname: EPHEMERAL\n",
				"kind: VolumeConfig\nname: EPHEMERAL\nprovisioning: {grow: true}\n"},
			map[machineconfig.Effect][]string{machineconfig.EffectUnknown: {"VolumeConfig EPHEMERAL.provisioning"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			bundle, err := clusterfiles.NewSecrets()
			require.NoError(t, err)

			made := clusterfiles.Options{
				ClusterName: "lab", Endpoint: "https://192.0.2.10:6443", KubernetesVersion: "1.36.0", Secrets: bundle,
			}

			var configs []*machineconfig.Config

			for _, edits := range [][]documents.Edit{nil, {test.edit}} {
				data, err := documents.Config(made, "cp1", edits...)
				require.NoError(t, err)

				config, err := machineconfig.FromBytes("cp1.yaml", data)
				require.NoError(t, err)

				configs = append(configs, config)
			}

			require.Equal(t, test.wants, machineconfig.ChangedFields(configs[0], configs[1]))
		})
	}
}

func TestTheTableOfEffectsNamesFieldsAndKindsThatThereAre(t *testing.T) {
	t.Parallel()

	kinds := machineconfig.Kinds()

	for _, field := range machineconfig.FieldsWithEffect() {
		kind, key, _ := strings.Cut(field, ".")
		if strings.HasSuffix(kind, "Config") {
			require.Contains(t, kinds, kind)
			continue
		}

		places := machineconfig.KeyPlaces(reflect.TypeFor[v1alpha1.Config](), field[strings.LastIndex(field, ".")+1:])
		require.True(t, slices.Contains(places, field), "%s (%s): only %v", field, key, places)
	}
}
