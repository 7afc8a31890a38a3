package inventory_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// The form of machine configs is the setting's, else that of talenv.yaml, else the usual one; nothing is inferred.
func TestContract(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct{ talos, talenv, setting, contract, mistake, next string }{
		"nothing named":          {talos: "v1.14.1", contract: "v1.13"},
		"an older release":       {talos: "v1.12.1", contract: "v1.12"},
		"a release not known":    {talos: "v1.99.0", contract: "v1.13"},
		"talenv.yaml":            {talos: "v1.14.1", talenv: "v1.14", contract: "v1.14"},
		"the setting goes first": {talos: "v1.14.1", talenv: "v1.14", setting: "v1.12", contract: "v1.12"},
		"newer than the release": {talos: "v1.13.9", talenv: "v1.14",
			mistake: `talenv.yaml:1:16: Talos v1.13 does not know the contract v1.14, did you mean "v1.13"?`},
		"no contract": {talos: "v1.14.1", talenv: "latest",
			mistake: `talenv.yaml:1:16: "latest" is no contract, as v1.14, did you mean "v1.14"?`},
		"not known yet": {talos: "v1.15.0", talenv: "v1.15",
			mistake: `talenv.yaml:1:16: contract v1.15 is not known here: v1.2 to v1.14 are, did you mean "v1.14"?`},
		"a setting that is newer": {talos: "v1.13.9", setting: "v1.14",
			mistake: "talconfig.yaml:2:15: TALOS_CONTRACT=v1.14: Talos v1.13 does not know the contract v1.14 (talosVersion)",
			next:    "set TALOS_CONTRACT=v1.13, or talosVersion to v1.14 or newer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "talconfig.yaml"), []byte("clusterName: lab\ntalosVersion: "+
				test.talos+"\nkubernetesVersion: v1.36.0\nendpoint: https://192.0.2.11:6443\nnodes:\n"+
				"  - {hostname: cp1, ipAddress: 192.0.2.11, controlPlane: true, installDisk: /dev/vda}\n"), 0o600))

			if test.talenv != "" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "talenv.yaml"), []byte("talosContract: "+test.talenv+"\n"),
					0o600))
			}

			cluster, err := inventory.Load(inventory.Options{TalosDir: dir, Contract: test.setting,
				Environ: []string{"talosContract=v1.5"}, Files: reading.New(dir, nil)})
			if test.mistake == "" {
				require.NoError(t, err)
				require.Equal(t, test.contract, cluster.Contract.String())

				return
			}

			mistakes := yamlfile.Errors(err)
			require.Len(t, mistakes, 1, err)
			require.Equal(t, test.mistake, mistakes[0].Error())
			require.Equal(t, test.next, mistakes[0].Next)
		})
	}
}

// A contract that can't be read is not taken for none: the form would be another than the one that is declared.
func TestAContractThatIsEncrypted(t *testing.T) {
	t.Parallel()

	const (
		encrypted = "talosContract: ENC[AES256_GCM,data:x]\nsops: {mac: x}\n"
		plain     = "talosContract: v1.14\n"
		unread    = "variable talosContract is encrypted and was not read"
	)

	problem := diagnosis.NewProblem(diagnosis.ProgramMissing, "sops is missing", "install sops")

	for name, test := range map[string]struct {
		talenv, sopsTalenv, setting string
		decrypt                     func(string, []byte) ([]byte, error)
		contract                    string
		mistakes                    []string
	}{
		"without a key": {talenv: encrypted, mistakes: []string{"talenv.yaml:1:16: " + unread}},
		"without sops": {talenv: encrypted, decrypt: func(string, []byte) ([]byte, error) { return nil, problem },
			mistakes: []string{"talenv.yaml: sops is missing", "talenv.yaml:1:16: " + unread}},
		"decrypted": {talenv: encrypted, contract: "v1.14",
			decrypt: func(string, []byte) ([]byte, error) { return []byte(plain), nil }},
		"told by the setting": {talenv: encrypted, setting: "v1.13", contract: "v1.13"},
		"told in a file before it": {talenv: plain, sopsTalenv: encrypted,
			mistakes: []string{"talenv.sops.yaml:1:16: " + unread}},
		"told in a file after it": {talenv: encrypted, sopsTalenv: plain, contract: "v1.14"},
		"another variable":        {talenv: "TOKEN: ENC[AES256_GCM,data:x]\nsops: {mac: x}\n", contract: "v1.13"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			dir := t.TempDir()
			for file, text := range map[string]string{"talenv.yaml": test.talenv, "talenv.sops.yaml": test.sopsTalenv,
				"talconfig.yaml": "clusterName: lab\ntalosVersion: v1.14.1\nkubernetesVersion: v1.36.0\n" +
					"endpoint: https://192.0.2.11:6443\nnodes:\n" +
					"  - {hostname: cp1, ipAddress: 192.0.2.11, controlPlane: true, installDisk: /dev/vda}\n"} {
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
			}

			cluster, err := inventory.Load(inventory.Options{TalosDir: dir, Contract: test.setting,
				Files: reading.New(dir, test.decrypt)})
			if test.mistakes == nil {
				require.NoError(t, err)
				require.Equal(t, test.contract, cluster.Contract.String())

				return
			}

			var told []string
			for _, mistake := range yamlfile.Errors(err) {
				told = append(told, mistake.Error())
			}

			require.Equal(t, test.mistakes, told)
		})
	}
}
