package talconfig_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/talconfig"
	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
)

func variables(values map[string]string) talconfig.Variables {
	return talconfig.Variables{Lookup: func(name string) (string, bool) {
		value, set := values[name]

		return value, set
	}}
}

// TestTextsOfOthersKeepTheirVariables: with and without them, by what a caller wants of the file.
func TestTextsOfOthersKeepTheirVariables(t *testing.T) {
	t.Parallel()

	const text = "clusterName: $NAME\ncount: ${COUNT}\nlist: ${LIST}\n${NAME}: key\npatches: [\"$host $NAME $$x\"]\n"

	values := variables(map[string]string{"NAME": "lab", "COUNT": "3", "LIST": "[a, b]"})

	for name, substitute := range map[string]func(talconfig.Variables, yamlfile.Source) map[string]any{
		"none": func(v talconfig.Variables, source yamlfile.Source) map[string]any {
			root := source.Parse([]byte(text))
			v.Substitute(source, root)

			var decoded map[string]any

			require.True(t, source.Decode(root, &decoded))

			return decoded
		},
		"all": func(v talconfig.Variables, source yamlfile.Source) map[string]any {
			root := source.Parse([]byte(text))
			v.SubstituteAll(source, root)

			var decoded map[string]any

			require.True(t, source.Decode(root, &decoded))

			return decoded
		},
	} {
		source := yamlfile.Source{Shown: "a.yaml", Mistakes: &yamlfile.Mistakes{}}
		patch := map[string]string{"none": "$host $NAME $$x", "all": "$host lab $x"}[name]

		require.Equal(t, map[string]any{
			"clusterName": "lab", "count": 3, "list": []any{"a", "b"}, "lab": "key", "patches": []any{patch},
		}, substitute(values, source), name)
		require.NoError(t, source.Err())
	}
}

func TestSettingsOfAnEntryWin(t *testing.T) {
	t.Parallel()

	config := talconfig.Config{Worker: talconfig.NodeSettings{
		Patches: []string{"group"}, CertSANs: []string{"group"}, ExtraManifests: []string{"group"},
		Nameservers: []string{"192.0.2.53"}, MachineSpec: talconfig.MachineSpec{Arch: "arm64"},
	}}
	node := talconfig.Node{NodeSettings: talconfig.NodeSettings{
		Patches: []string{"own"}, CertSANs: []string{"own"}, ExtraManifests: []string{"own"},
		MachineSpec: talconfig.MachineSpec{Mode: "nocloud"},
	}}

	merged := config.Settings(node)
	require.Equal(t, []string{"group", "own"}, merged.Patches)
	require.Equal(t, []string{"own", "group"}, merged.CertSANs)
	require.Equal(t, []string{"own", "group"}, merged.ExtraManifests)
	require.Equal(t, []string{"192.0.2.53"}, merged.Nameservers)
	require.Equal(t, talconfig.MachineSpec{Mode: "nocloud"}, merged.MachineSpec, "as a whole")

	node.OverridePatches, node.OverrideMachineCertSANs, node.OverrideExtraManifests = true, true, true
	merged = config.Settings(node)
	require.Equal(t, []string{"own"}, merged.Patches)
	require.Equal(t, []string{"own"}, merged.CertSANs)
	require.Equal(t, []string{"own"}, merged.ExtraManifests)

	require.Empty(t, config.Settings(talconfig.Node{ControlPlane: true}).Patches, "it is of the other group")
}

func TestReadVariables(t *testing.T) {
	t.Parallel()

	source := yamlfile.Source{Shown: "talenv.yaml", Mistakes: &yamlfile.Mistakes{}}
	values := map[string]string{}

	require.True(t, talconfig.ReadVariables(source, []byte("A: 1\nB:\n"), values))
	require.Equal(t, map[string]string{"A": "1", "B": ""}, values)
	require.False(t, talconfig.ReadVariables(source, []byte("A: ENC[x]\nsops: {mac: x}\n"), values))
	require.NoError(t, source.Err())

	require.True(t, talconfig.ReadVariables(source, []byte("A: [x]\n"), values))
	require.EqualError(t, source.Err(), `talenv.yaml:1:1: "A" must be a single value, not a list`)
}
