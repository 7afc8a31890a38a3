package talhelper_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/program"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	clustersecrets "github.com/talos-mage/talos-mage/internal/cluster/secrets"
	"github.com/talos-mage/talos-mage/internal/cluster/sops"
	"github.com/talos-mage/talos-mage/internal/cluster/talconfig"
	"github.com/talos-mage/talos-mage/internal/machineconfig/generate"
	"github.com/talos-mage/talos-mage/internal/test/e2e/agekey"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

const sealedTalconfig = `clusterName: orchard
talosVersion: v1.13.4
kubernetesVersion: v1.35.2
endpoint: https://192.0.2.10:6443
nodes:
  - {hostname: apple, controlPlane: true, ipAddress: 192.0.2.11, installDisk: "${DISK}"}
`

// Both decrypt the secrets and the variables, with the user's key; and talhelper reads a bundle that was made and
// encrypted here.
func TestEncryptedFilesMeanTheSameAsToTalhelper(t *testing.T) {
	t.Parallel()

	talhelper, key, home := tool.Find(t, "talhelper"), agekey.New(t), t.TempDir()
	environ := []string{"PATH=" + key.Programs, "HOME=" + home, "SOPS_AGE_KEY_FILE=" + key.WriteTo(t, home),
		"SOPS_AGE_RECIPIENTS=" + key.Recipient}

	dir := write(t, map[string]string{"talconfig.yaml": sealedTalconfig})
	plain := filepath.Join(dir, "talsecret.yaml")
	secret, err := os.ReadFile(plain)
	require.NoError(t, err)
	require.NoError(t, os.Remove(plain))

	ours := sops.Sops{Programs: program.Runner{Dir: dir, Environ: environ}}

	sealed, err := ours.Encrypt(t.Context(), filepath.Join(dir, clustersecrets.EncryptedName), secret)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, clustersecrets.EncryptedName), sealed, 0o600))

	variables, err := ours.Encrypt(t.Context(), filepath.Join(dir, "talenv.sops.yaml"), []byte("DISK: /dev/sealed-disk\n"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "talenv.sops.yaml"), variables, 0o600))

	command := exec.CommandContext(t.Context(), talhelper, "genconfig", "--offline-mode") //nolint:gosec // the program under test
	command.Dir, command.Env = dir, append(environment(), environ...)
	said, err := command.CombinedOutput()
	require.NoError(t, err, string(said))

	decrypt := func(path string, data []byte) ([]byte, error) { return ours.Decrypt(t.Context(), path, data) }
	cluster, err := inventory.Load(inventory.Options{TalosDir: dir, Files: reading.New(dir, decrypt)})
	require.NoError(t, err)

	read, err := cluster.Variables()
	require.NoError(t, err)

	opened, err := decrypt(clustersecrets.EncryptedName, sealed)
	require.NoError(t, err)

	bundle, err := clustersecrets.Decode(clustersecrets.EncryptedName, opened, read, time.Now())
	require.NoError(t, err)

	output, err := generate.Configs(generate.Source{Cluster: cluster, Secrets: bundle, Now: time.Now()})
	require.NoError(t, err)
	require.Contains(t, string(output.Configs[0].Bytes), "/dev/sealed-disk")
	require.Empty(t, compare(made(t, filepath.Join(dir, "clusterconfig")), filesOf(output)))
}

// filesOf are the generated files by name, as talhelper leaves them in its folder.
func filesOf(output *generate.Output) map[string][]byte {
	files := map[string][]byte{"talosconfig": output.Talosconfig, ".gitignore": output.GitIgnore}
	for _, config := range output.Configs {
		files[config.File] = config.Bytes
	}

	return files
}

// What others write as secrets is read; what we write has talhelper's form.
func TestSecretsMadeByOtherProgramsAreRead(t *testing.T) {
	t.Parallel()

	for name, arguments := range map[string][]string{
		"talhelper": {"gensecret"},
		"talosctl":  {"gen", "secrets", "--output-file", "/dev/stdout", "--force"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			command := exec.CommandContext(t.Context(), tool.Find(t, name), arguments...)
			command.Dir, command.Env = t.TempDir(), append(environment(), "HOME="+t.TempDir())

			text, err := command.Output()
			require.NoError(t, err)

			bundle, err := clustersecrets.Decode("talsecret.yaml", text, talconfig.Variables{}, time.Now())
			require.NoError(t, err)
			require.NoError(t, bundle.Validate(talosconfig.TalosVersion1_13))

			if name == "talhelper" {
				encoded, err := clustersecrets.Encode(bundle)
				require.NoError(t, err)
				require.True(t, keysOnly(string(encoded)) == keysOnly(string(text)), "the form is another one")
			}
		})
	}
}

// keysOnly is a YAML text without its values, which are secrets.
func keysOnly(text string) string {
	return regexp.MustCompile(`: \S.*`).ReplaceAllString(strings.TrimSpace(text), ":")
}
