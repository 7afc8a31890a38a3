package inventory_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

// TestMistakes keeps the text of every kind of mistake: each file of testdata/mistakes has a talconfig.yaml and, after
// a line of equal signs, a talenv.yaml if it needs one. The messages are in the golden file beside it.
func TestMistakes(t *testing.T) {
	t.Parallel()

	cases, err := filepath.Glob("testdata/mistakes/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, cases)

	for _, path := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".yaml"), func(t *testing.T) {
			t.Parallel()

			content, err := os.ReadFile(path)
			require.NoError(t, err)

			talconfig, talenv, _ := strings.Cut(string(content), "======\n")

			_, err = load(t, map[string]string{"talconfig.yaml": talconfig, "talenv.yaml": talenv})
			require.Error(t, err)

			var text strings.Builder

			text.WriteString(err.Error() + "\n")

			for _, mistake := range inventory.FileErrors(err) {
				require.Equal(t, diagnosis.ExitBadInput, mistake.ExitCode())

				entry, known := diagnosis.Lookup(mistake.ID)
				require.True(t, known, "%s is in the catalogue", mistake.ID)
				require.Equal(t, diagnosis.ExitBadInput, entry.Exit)

				if mistake.Next != "" {
					text.WriteString("next: " + mistake.Next + "\n")
				}
			}

			golden.Assert(t, strings.TrimSuffix(path, ".yaml")+".golden", text.String())
		})
	}
}

func TestMissingInventory(t *testing.T) {
	t.Parallel()

	_, err := inventory.Load(inventory.Options{TalosDir: t.TempDir()})
	require.ErrorIs(t, err, os.ErrNotExist)

	mistakes := inventory.FileErrors(err)
	require.Len(t, mistakes, 1)
	require.Equal(t, diagnosis.FileMissing, mistakes[0].ID)
	require.Contains(t, mistakes[0].Next, "TALOS_DIR")

	finding := mistakes[0].Finding()
	require.Equal(t, diagnosis.ExitBadInput, finding.ExitCode())
	require.Equal(t, diagnosis.Failure, finding.Severity)
}

func TestUnreadableInventory(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "talconfig.yaml"), 0o700))

	_, err := inventory.Load(inventory.Options{TalosDir: dir, Files: reading.New(dir, nil)})
	require.ErrorContains(t, err, "talconfig.yaml: can't be read: ")
	require.Equal(t, diagnosis.FileUnreadable, inventory.FileErrors(err)[0].ID)
}

func TestEncryptedTalenvIsNamedWhenAVariableIsMissing(t *testing.T) {
	t.Parallel()

	talconfig := "clusterName: ${NAME}\nendpoint: https://192.0.2.10:6443\nnodes: [{hostname: cp1, ipAddress: " +
		"192.0.2.11}]\n"
	encrypted := "NAME: ENC[AES256_GCM,data:x]\nsops: {mac: x}\n"

	_, err := load(t, map[string]string{"talconfig.yaml": talconfig, "talenv.sops.yaml": encrypted})
	require.EqualError(t, err,
		"talconfig.yaml:1:14: variable NAME is not set (talenv.sops.yaml is encrypted and was not read) (clusterName)")

	_, err = load(t, map[string]string{"talconfig.yaml": talconfig, "talenv.sops.yaml": encrypted}, "NAME=demo")
	require.NoError(t, err)
}

// What a variable is missing for is named too: the file that can't be decrypted, for whom it is, and where a key was
// looked for.
func TestATalenvThatCannotBeDecryptedIsAMistakeOnlyWhereAVariableIsMissing(t *testing.T) {
	t.Parallel()

	files := map[string]string{"talconfig.yaml": "clusterName: ${NAME:-lab}\n",
		"talenv.sops.yaml": "NAME: ENC[AES256_GCM,data:x]\nsops: {age: []}\n"}
	options := inventory.Options{TalosDir: folderWith(t, files)}
	options.Files = reading.New(options.TalosDir, func(string, []byte) ([]byte, error) {
		return nil, &diagnosis.Problem{Finding: diagnosis.Finding{
			ID: diagnosis.SecretsUndecryptable, Cause: "talenv.sops.yaml can't be decrypted: it is encrypted for age1example",
			Next: "bring the key",
		}}
	})

	_, err := inventory.Load(options)
	require.NotContains(t, err.Error(), "talenv.sops.yaml")

	options.Files.Wrote(filepath.Join(options.TalosDir, "talconfig.yaml"), []byte("clusterName: ${NAME}\n"), 0o600)

	_, err = inventory.Load(options)
	require.ErrorContains(t, err, "talconfig.yaml:1:14: variable NAME is not set")
	require.ErrorContains(t, err, "talenv.sops.yaml: can't be decrypted: it is encrypted for age1example")
}
