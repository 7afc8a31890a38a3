package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	clustersecrets "github.com/talos-mage/talos-mage/internal/cluster/secrets"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/test/e2e/agekey"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

// desk is where somebody makes a cluster's files: a talconfig, machines in maintenance mode, and nothing that was made
// yet.
type desk struct {
	*cluster
	root string
	env  []string
}

func newDesk(t *testing.T, env ...string) desk {
	t.Helper()

	root := userRepository(t)
	c := newCluster(t, filepath.Join(root, "talos"), 1, 1)
	require.NoError(t, os.RemoveAll(c.ConfigDir()))

	for _, node := range c.Nodes {
		require.NoError(t, node.WaitFor(t.Context(), func(node *emulator.Node) bool { return node.Stage() == "maintenance" }))
	}

	return desk{c, root, c.environment(append([]string{"TALOS_MAGE=" + launcher(t)}, env...)...)}
}

// types calls a target and expects an exit code; what was said, on either way out, comes back.
func (d desk) types(t *testing.T, code int, args ...string) string {
	t.Helper()

	got := run(t, command{dir: d.root, env: d.env, args: append([]string{launcher(t)}, args...)})
	require.Equal(t, code, got.code, "%v\n%s%s", args, got.stdout, got.stderr)

	return got.stdout + got.stderr
}

func (d desk) path(name string) string { return filepath.Join(d.Dir, name) }

func (d desk) read(t *testing.T, name string) string {
	t.Helper()

	data, err := os.ReadFile(d.path(name))
	require.NoError(t, err)

	return string(data)
}

// requirePrivate asserts that nobody else can read files.
func (d desk) requirePrivate(t *testing.T, names ...string) {
	t.Helper()

	for _, name := range names {
		info, err := os.Stat(d.path(name))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), name)
	}
}

func TestTheLifeOfAClustersFiles(t *testing.T) {
	t.Parallel()

	d, task := newDesk(t), tool.Find(t, "task")

	said := d.types(t, 0, "config:secrets")
	require.Contains(t, said, "keep a copy: without it no node can ever be added")
	d.requirePrivate(t, "talsecret.yaml")

	secrets := d.read(t, "talsecret.yaml")

	require.Contains(t, d.types(t, 0, "config:secrets"), "talsecret.yaml exists")
	require.Equal(t, secrets, d.read(t, "talsecret.yaml"))

	require.Contains(t, d.types(t, 8, "config:generate", "-dryRun"), "lab-cp1.yaml")
	require.NoDirExists(t, d.ConfigDir())

	got := run(t, command{dir: d.root, env: d.env, args: []string{task, "-x", "talos:generate-config"}})
	require.Equal(t, 0, got.code, got.stdout+got.stderr)
	d.requirePrivate(t, "clusterconfig/lab-cp1.yaml", "clusterconfig/lab-worker1.yaml", "clusterconfig/talosconfig")
	require.Equal(t, "lab-cp1.yaml\nlab-worker1.yaml\ntalosconfig\n", d.read(t, "clusterconfig/.gitignore"))

	made := d.fingerprints(t)

	require.Contains(t, d.types(t, 0, "config:generate"), "nothing to write")
	require.Equal(t, made, d.fingerprints(t))

	// The file is lost, and other configs of the cluster are still there.
	require.NoError(t, os.Remove(d.path("talsecret.yaml")))

	for _, refused := range [][]string{{"config:secrets"}, {"config:generate"}} {
		require.Contains(t, d.types(t, 2, refused...), "-from=")
	}

	require.NoFileExists(t, d.path("talsecret.yaml"))

	// It is there by a name that is not its own.
	write(t, d.path("talsecrets.yaml"), secrets)
	require.Contains(t, d.types(t, 2, "config:secrets"), "rename it to talsecret.yaml")
	require.Contains(t, d.types(t, 2, "config:generate"), "rename it to talsecret.yaml")
	require.NoError(t, os.Remove(d.path("talsecrets.yaml")))

	require.Contains(t, d.types(t, 2, "config:secrets", "-from="+d.ConfigFile("worker1")), "it is the config of a worker")

	for range 2 {
		d.types(t, 0, "config:secrets", "-from="+d.ConfigFile("cp1"))
	}

	require.True(t, secrets == d.read(t, "talsecret.yaml"), "the secrets are others than those that were lost")
	require.Contains(t, d.types(t, 0, "config:generate"), "nothing to write")
	require.Empty(t, d.changes(), "no node was sent anything")
}

func TestADryRunOfGenerateShowsWhatChangesWithoutItsSecrets(t *testing.T) {
	t.Parallel()

	d := newDesk(t)
	d.types(t, 0, "config:secrets")
	d.types(t, 0, "config:generate")

	talconfig := d.read(t, "talconfig.yaml")
	write(t, d.path("talconfig.yaml"), strings.ReplaceAll(talconfig, "installDisk: ", "installDisk: /dev/other # "))
	write(t, d.path("clusterconfig/lab-gone.yaml"), d.read(t, "clusterconfig/lab-worker1.yaml"))

	before := d.fingerprints(t)
	said := d.types(t, 8, "config:generate", "-dryRun")
	require.Equal(t, before, d.fingerprints(t))

	require.Contains(t, said, "lab-cp1.yaml would change")
	require.Regexp(t, `(?m)\+\s+disk: /dev/other$`, said)
	require.Contains(t, said, "no node uses "+d.path("clusterconfig/lab-gone.yaml"))

	for _, secret := range regexp.MustCompile(
		`(?m)^ +(?:id|secret|bootstraptoken|secretboxencryptionsecret|token|crt|key): (\S{12,})$`).
		FindAllStringSubmatch(d.read(t, "talsecret.yaml"), -1) {
		require.False(t, strings.Contains(said, secret[1]), "a secret is shown")
	}

	d.types(t, 0, "config:generate")
	require.Contains(t, d.read(t, "clusterconfig/lab-cp1.yaml"), "/dev/other")
	require.FileExists(t, d.path("clusterconfig/lab-gone.yaml"))
	d.types(t, 0, "config:generate", "-dryRun")
}

func TestSecretsAreEncryptedByTheUsersRulesAndReadAgain(t *testing.T) {
	t.Parallel()

	key := agekey.New(t)
	keyFile := key.WriteTo(t, t.TempDir())
	d := newDesk(t, "PATH="+key.Programs+":"+os.Getenv("PATH"), "SOPS_AGE_KEY_FILE="+keyFile, "HOME="+t.TempDir())

	write(t, filepath.Join(d.root, ".sops.yaml"),
		"creation_rules:\n  - path_regex: talos/.*\\.sops\\.yaml$\n    age: "+key.Recipient+"\n")

	d.types(t, 0, "config:secrets")
	d.requirePrivate(t, "talsecret.sops.yaml")
	require.Contains(t, d.read(t, "talsecret.sops.yaml"), "ENC[AES256_GCM,")
	require.NotContains(t, d.read(t, "talsecret.sops.yaml"), "LS0tLS1CRUdJTi", "a PEM text in base64")

	// Variables come out of an encrypted file, too.
	sealing := exec.CommandContext(t.Context(), filepath.Join(key.Programs, "sops"), "encrypt", "--age", key.Recipient,
		"--input-type", "yaml", "--output-type", "yaml",
		"--filename-override", d.path("talenv.sops.yaml"), "/dev/stdin")
	sealing.Stdin, sealing.Dir = strings.NewReader("INSTALL_DISK: /dev/sealed\n"), d.root
	sealed, err := sealing.Output()
	require.NoError(t, err)
	write(t, d.path("talenv.sops.yaml"), string(sealed))
	write(t, d.path("talconfig.yaml"),
		strings.ReplaceAll(d.read(t, "talconfig.yaml"), "installDisk: ", "installDisk: ${INSTALL_DISK} # "))

	d.types(t, 0, "config:generate")
	require.Contains(t, d.read(t, "clusterconfig/lab-cp1.yaml"), "/dev/sealed")

	plainVariables := d.read(t, "talenv.yaml")

	require.NoError(t, os.Remove(keyFile))

	for _, file := range []string{"talenv.sops.yaml", "talsecret.sops.yaml"} {
		said := d.types(t, 2, "config:generate")
		require.Contains(t, said, file)
		require.Contains(t, said, "can't be decrypted: it is encrypted for "+key.Recipient)
		require.Contains(t, said, "SOPS_AGE_KEY_FILE ("+keyFile+": not there), SOPS_AGE_KEY (not set)")

		// Without the first of them the second is what is missing.
		require.NoError(t, os.RemoveAll(d.path("talenv.sops.yaml")))
		write(t, d.path("talenv.yaml"), plainVariables+"INSTALL_DISK: /dev/sealed\n")
	}
}

func TestWhatConfigsAreMadeFromIsChosenByWhatIsThere(t *testing.T) {
	t.Parallel()

	const profile = `name: lab
network: {api_endpoint: 192.0.2.10}
talos: {version: 1.13.9, kubernetes_version: 1.36.3, factory: {schematic_id: 376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba}}
nodes: {controlplane: {assignments: [{name: cp1, ip: 192.0.2.11}]}}
`

	d := newDesk(t)
	talconfig := d.read(t, "talconfig.yaml")

	require.NoError(t, os.Remove(d.path("talconfig.yaml")))
	write(t, d.path("topf.yaml"), "nodes: []\n")

	for _, target := range []string{"config:generate", "config:secrets", "config:schematic", "preflight", "talos"} {
		said := d.types(t, 2, target)
		require.Contains(t, said, "topf.yaml")
		require.Contains(t, said, "is an input of topf, which is not read here")
		require.Contains(t, said, "CONFIG_GENERATOR=none")
	}

	write(t, d.path("cluster.yaml"), strings.Replace(profile, "192.0.2.11", d.Node("cp1").Address().String(), 1))
	require.Regexp(t, `cp1 +376567988ad3\w+ +factory\.talos\.dev/\S*installer/376567988ad3\w+:v1\.13\.9 `,
		d.types(t, 0, "config:schematic"))

	// A talconfig goes before a profile, unless it is said otherwise.
	write(t, d.path("talconfig.yaml"), talconfig)
	require.Contains(t, d.types(t, 0, "config:schematic"), "worker1")

	d.env = append(d.env, "CLUSTER_SOURCE=profile")
	require.NotContains(t, d.types(t, 0, "config:schematic"), "worker1")
	require.Contains(t, d.types(t, 2, "config:generate"), "scripts/lib/talos-mage.sh config:secrets")
	d.types(t, 0, "config:secrets")
	d.types(t, 0, "config:generate")
	d.requirePrivate(t, "clusterconfig/secrets.yaml", "clusterconfig/lab-cp1.yaml", "clusterconfig/talosconfig")
	require.Contains(t, d.read(t, "clusterconfig/lab-cp1.yaml"), "/installer/376567988ad3")

	d.env = append(d.env, "CLUSTER_SOURCE=topf")
	require.Contains(t, d.types(t, 2, "config:schematic"), "auto, talconfig")
}

func TestWhoRendersIsASetting(t *testing.T) {
	t.Parallel()

	d := newDesk(t)
	write(t, d.path("talsecret.yaml"), plainSecrets(t, d.cluster))

	d.env = append(d.env, "CONFIG_GENERATOR=none")
	require.Contains(t, d.types(t, 2, "config:generate"), "CONFIG_GENERATOR=none: nothing renders machine configs")

	d.env = append(d.env, "CONFIG_GENERATOR=native")
	d.types(t, 0, "config:generate")

	d.env = append(d.env, "CONFIG_GENERATOR=none")
	require.Contains(t, d.types(t, 0, "config:generate"), "are used as they are")

	d.env = append(d.env, "CONFIG_GENERATOR=talhelper",
		"PATH="+filepath.Dir(script(t, filepath.Join(t.TempDir(), "talhelper"), "echo wrong >&2; exit 1\n"))+":"+
			os.Getenv("PATH"))
	require.Contains(t, d.types(t, 2, "config:generate"), "talhelper")

	d.env = append(d.env, "CONFIG_GENERATOR=other")
	require.Contains(t, d.types(t, 2, "config:generate"), "native, talhelper")
}

// plainSecrets are the secrets that a cluster's machines were made with, as a file in the clear.
func plainSecrets(t *testing.T, c *cluster) string {
	t.Helper()

	text, err := clustersecrets.Encode(c.Generated.Options.Secrets)
	require.NoError(t, err)

	return string(text)
}

func TestMistakesInATalconfigAreToldByPlace(t *testing.T) {
	t.Parallel()

	root := userRepository(t)
	c, err := labcluster.New(filepath.Join(root, "talos"), labcluster.Options{
		ControlPlanes: 1, Workers: -1, LabOptions: emulator.LabOptions{TimeScale: timeScale}, Off: true,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })

	d := desk{&cluster{Cluster: c, temporary: t.TempDir()}, root,
		append(c.Environ(), "TMPDIR="+t.TempDir(), "TALOS_MAGE="+launcher(t))}
	write(t, d.path("talsecret.yaml"), plainSecrets(t, d.cluster))

	for name, tt := range map[string]struct{ text, want string }{
		"a Talos that is too old": {
			"clusterName: lab\ntalosVersion: v1.1.0\nkubernetesVersion: v1.36.3\nendpoint: https://192.0.2.10:6443\nnodes: " +
				"[{hostname: cp1, ipAddress: 192.0.2.11, controlPlane: true, installDisk: /dev/sda}]\n",
			`talos/talconfig\.yaml:2:15: Talos v1\.1 is older than what configs can be made for: v1\.2 to v1\.14.*talosVersion`,
		},
		"a misspelt key": {
			"clusterName: lab\nkubernetesVersion: v1.36.3\nendpoint: https://192.0.2.10:6443\nnodes:\n  - hostname: cp1\n    " +
				"ipAddress: 192.0.2.11\n    controlPlane: true\n    instalDisk: /dev/sda\n",
			`talos/talconfig\.yaml:8:5: unknown key "instalDisk" \(nodes\[0\]\.instalDisk\), did you mean "installDisk"\?`,
		},
		"a word that is not allowed": {
			"clusterName: lab\nkubernetesVersion: v1.36.3\nendpoint: https://192.0.2.10:6443\nnodes:\n  - hostname: cp1\n    " +
				"ipAddress: 192.0.2.11\n    controlPlane: true\n    installDisk: /dev/sda\n    machineSpec: {arch: arm}\n",
			`talos/talconfig\.yaml:9:25: "arm" is none of amd64, arm64.*nodes\[0\]\.machineSpec\.arch`,
		},
	} {
		write(t, d.path("talconfig.yaml"), tt.text)
		require.Regexp(t, tt.want, d.types(t, 2, "config:generate"), name)
	}
}

func TestSchemasArePrintedAsTheyArePublished(t *testing.T) {
	t.Parallel()

	for flag, file := range map[string]string{"-of=talconfig.yaml": "talconfig.schema.json",
		"-of=cluster.yaml": "cluster.schema.json"} {
		got := run(t, command{dir: t.TempDir(), args: []string{launcher(t), "config:schema", flag}})
		require.Equal(t, 0, got.code, got.stderr)

		published, err := os.ReadFile(filepath.Join(repository(t), "docs", "schemas", file))
		require.NoError(t, err)
		require.Equal(t, string(published), got.stdout)
	}
}
