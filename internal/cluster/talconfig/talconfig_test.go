package talconfig_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/cluster/talconfig"
	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
)

func variables(values map[string]string) talconfig.Variables {
	return talconfig.Variables{Lookup: func(name string) (string, bool) {
		value, set := values[name]

		return value, set
	}}
}

// Texts of others are replaced with care: $host may be theirs, and what is missing is told to who needs them.
func TestTextsOfOthersKeepTheirVariables(t *testing.T) {
	t.Parallel()

	const text = "clusterName: $NAME\ncount: ${COUNT}\nlist: ${LIST}\n${NAME}: key\n" +
		"patches: [\"$host $NAME $$x\", \"$UNSET\"]\n"

	source := yamlfile.Source{Shown: "a.yaml", Mistakes: &yamlfile.Mistakes{}, Refused: &yamlfile.Mistakes{}}
	root := source.Parse([]byte(text))
	variables(map[string]string{"NAME": "lab", "COUNT": "3", "LIST": "[a, b]"}).Substitute(source, root)

	var decoded map[string]any

	require.True(t, source.Decode(root, &decoded))
	require.Equal(t, map[string]any{
		"clusterName": "lab", "count": 3, "list": []any{"a", "b"}, "lab": "key", "patches": []any{"$host lab $x", ""},
	}, decoded)
	require.NoError(t, source.Err())
	require.EqualError(t, source.Refused.Err(), "a.yaml:5:30: variable UNSET is not set")
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

	read := func(decrypt func(string, []byte) ([]byte, error)) (talconfig.Variables, error) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "talenv.yaml"), []byte("A: 1\nB:\nC: [x]\n"), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "talenv.sops.yaml"), []byte("D: ENC[x]\nsops: {mac: x}\n"),
			0o600))

		mistakes := &yamlfile.Mistakes{}

		return talconfig.ReadVariables(reading.New(dir, decrypt), dir, []string{"A=0", "E=2"}, mistakes), mistakes.Err()
	}

	variables, err := read(nil)
	require.EqualError(t, err, `talenv.yaml:3:1: "C" must be a single value, not a list`)
	require.Equal(t, []string{"talenv.sops.yaml"}, variables.Unread)
	require.NoError(t, variables.Failed, "nothing was tried")

	for name, want := range map[string]string{"A": "1", "B": "", "E": "2"} {
		value, set := variables.Lookup(name)
		require.True(t, set, name)
		require.Equal(t, want, value)
	}

	variables, _ = read(func(string, []byte) ([]byte, error) { return []byte("D: opened\n"), nil })
	value, _ := variables.Lookup("D")
	require.Equal(t, "opened", value)
	require.Empty(t, variables.Unread)

	variables, _ = read(func(string, []byte) ([]byte, error) { return nil, os.ErrPermission })
	require.ErrorIs(t, variables.Failed, os.ErrPermission)
}
