package steps_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig/generate"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/talos"
	"github.com/talos-mage/talos-mage/internal/test/e2e/agekey"
)

// sealedText is a text as the stand-in for sops encrypts it.
func sealedText(text string) []byte {
	return []byte("sealed: " + base64.StdEncoding.EncodeToString([]byte(text)) +
		"\nsops: {age: [{recipient: age1example}]}\n")
}

// withoutTalhelper takes the program away, which nothing is in need of.
func withoutTalhelper(t *testing.T, w *workshop) *workshop {
	t.Helper()
	require.NoError(t, os.Remove(filepath.Join(w.folder, "bin", "talhelper")))

	return w
}

func readFile(t *testing.T, path string) string {
	t.Helper()

	data, err := os.ReadFile(path)
	require.NoError(t, err)

	return string(data)
}

func (w *workshop) changeTalconfig(t *testing.T, old, changed string) {
	t.Helper()

	path := filepath.Join(w.Dir, "talconfig.yaml")
	before := readFile(t, path)
	after := strings.ReplaceAll(before, old, changed)
	require.NotEqual(t, before, after)
	require.NoError(t, os.WriteFile(path, []byte(after), 0o600))
}

func TestARecipeNeedsNoProgramForSecretsAndConfigs(t *testing.T) {
	t.Parallel()

	w := newWorkshop(t, 1, 1)
	w.untilMaintenance(t)
	require.NoError(t, os.RemoveAll(filepath.Join(w.folder, "bin")))
	require.NoError(t, os.Remove(filepath.Join(w.folder, ".sops.yaml")))

	s := w.session(t)
	s.succeeds(t, s.recipe()...)

	again := w.session(t)
	again.succeeds(t, again.recipe()...)
	require.Equal(t, report.Skipped, again.status("secrets", ""))
	require.Equal(t, report.Skipped, again.status("configs", ""))
}

func TestGeneratedFilesAreTheSameEachTimeAndForTheirOwnerAlone(t *testing.T) {
	t.Parallel()

	w := withoutTalhelper(t, desk(t))
	w.seal(t)

	generate := steps.Configs{Replace: true}
	w.session(t).succeeds(t, steps.Secrets{}, generate)

	first := map[string]string{}

	for _, path := range []string{w.ConfigFile("cp1"), w.ConfigFile("worker1"), w.Talosconfig()} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), path)

		first[path] = readFile(t, path)
	}

	require.Equal(t, "lab-cp1.yaml\nlab-worker1.yaml\ntalosconfig\n",
		readFile(t, filepath.Join(w.ConfigDir(), ".gitignore")))

	again := w.session(t).succeeds(t, steps.Secrets{}, generate)
	require.Equal(t, report.Skipped, again.status("configs", ""), "nothing to write")

	for _, name := range []string{"cp1", "worker1"} {
		require.NoError(t, os.Remove(w.ConfigFile(name)))
	}

	w.session(t).succeeds(t, generate)

	for path, text := range first {
		require.True(t, text == readFile(t, path), "%s has changed", path)
	}
}

func TestADryRunOfGenerateShowsMaskedDifferencesAndWritesNothing(t *testing.T) {
	t.Parallel()

	w := withoutTalhelper(t, desk(t))
	w.seal(t)
	w.session(t).succeeds(t, steps.Configs{Replace: true})

	before := readFile(t, w.ConfigFile("cp1"))
	same := w.session(t, "DRY_RUN=true").succeeds(t, steps.Configs{Replace: true})
	require.NotContains(t, same.out.String(), "would change")

	w.changeTalconfig(t, "installDisk: ", "installDisk: /dev/other # ")

	s := w.session(t, "DRY_RUN=true")
	s.fails(t, diagnosis.ExitDryRun, diagnosis.WouldChange, steps.Configs{Replace: true})

	shown := s.out.String()
	require.Contains(t, shown, "lab-cp1.yaml would change")
	require.Regexp(t, `(?m)^\s*\+\s+disk: /dev/other$`, shown)
	require.NotContains(t, shown, w.Generated.Options.Secrets.TrustdInfo.Token)
	require.NotContains(t, shown, w.Generated.Options.Secrets.Cluster.Secret)
	require.Equal(t, before, readFile(t, w.ConfigFile("cp1")))
}

func TestMachineConfigsOfNoNodeAreNamedAndLeftAlone(t *testing.T) {
	t.Parallel()

	w := withoutTalhelper(t, desk(t))
	w.seal(t)
	w.session(t).succeeds(t, steps.Configs{Replace: true})

	stale := filepath.Join(w.ConfigDir(), "lab-gone.yaml")
	require.NoError(t, os.WriteFile(stale, []byte(readFile(t, w.ConfigFile("worker1"))), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(w.ConfigDir(), "notes.yaml"), []byte("ours: true\n"), 0o600))

	s := w.session(t).succeeds(t, steps.Configs{Replace: true})
	require.Contains(t, s.out.String(), "no node uses "+stale)
	require.NotContains(t, s.out.String(), "notes.yaml")
	require.FileExists(t, stale)
}

// A release that is newer than this program is made configs for, in a form that is known, and it is said what nobody
// judges.
func TestConfigsForATalosThatIsNotKnownComeWithAWarning(t *testing.T) {
	t.Parallel()

	w := withoutTalhelper(t, desk(t))
	w.seal(t)
	w.changeTalconfig(t, "talosVersion: ${TALOS_VERSION}", "talosVersion: v1.15.2")

	for setting, form := range map[string]string{"TALOS_CONTRACT=": "v1.13", "TALOS_CONTRACT=v1.14": "v1.14"} {
		s := w.session(t, setting).succeeds(t, steps.Configs{Replace: true})

		shown := s.out.String()
		require.Regexp(t, `warning\s+TM310`, shown)
		require.Contains(t, shown, "talosVersion v1.15.2 is not known here")
		require.Contains(t, shown, "machine configs have the form of "+form)
		require.Contains(t, shown, "next: use a Talos from v1.5 to v1.14")

		text := readFile(t, w.ConfigFile("cp1"))
		require.Equal(t, form == "v1.14", strings.Contains(text, "kind: KubeletConfig"))
	}

	w.changeTalconfig(t, "talosVersion: v1.15.2", "talosVersion: v1.14.1")

	known := w.session(t).succeeds(t, steps.Configs{Replace: true})
	require.NotContains(t, known.out.String(), "TM310")
}

func TestEncryptedVariablesAreReadForInventoryAndConfigs(t *testing.T) {
	t.Parallel()

	w := withoutTalhelper(t, desk(t))
	w.seal(t)
	w.changeTalconfig(t, "clusterName: lab", "clusterName: ${CLUSTER}")
	require.NoError(t, os.WriteFile(filepath.Join(w.Dir, "talenv.sops.yaml"), sealedText("CLUSTER: lab\n"), 0o600))

	s := w.session(t)
	require.Equal(t, "lab", s.Cluster.Name)
	s.succeeds(t, steps.Configs{Replace: true})
	require.Contains(t, readFile(t, w.ConfigFile("cp1")), "clusterName: lab\n")
}

func TestSecretsThatCannotBeReadEndTheStep(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		sops, text string
		id         diagnosis.ID
		want       string
	}{
		"no key":     {"exit 128", "", diagnosis.SecretsUndecryptable, "age1example"},
		"damaged":    {standInSops, "cluster: {}\n", diagnosis.FileValue, `talos/talsecret.sops.yaml (decrypted):1:1: "`},
		"misspelt":   {standInSops, "clusters: {}\n", diagnosis.FileKey, `did you mean "cluster"?`},
		"not a text": {standInSops, "[]\n", diagnosis.FileType, "must be a mapping"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := withoutTalhelper(t, desk(t))
			w.program(t, "sops", tt.sops)
			require.NoError(t, os.WriteFile(w.secrets(), sealedText(tt.text), 0o600))

			problem := w.session(t).fails(t, diagnosis.ExitBadInput, tt.id, steps.Secrets{}, steps.Configs{Replace: true})
			require.Contains(t, problem.Error(), tt.want)
			require.NoFileExists(t, w.Talosconfig())
		})
	}
}

func TestFilesAreUsedAsTheyAreWhereNobodyCanOrShallRender(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		prepare  func(*testing.T, *workshop)
		settings []string
	}{
		"no sops": {func(t *testing.T, w *workshop) {
			t.Helper()
			require.NoError(t, os.Remove(filepath.Join(w.folder, "bin", "sops")))
		}, nil},
		"no secrets": {func(t *testing.T, w *workshop) {
			t.Helper()
			require.NoError(t, os.Remove(w.secrets()))
		}, nil},
		"told so": {func(*testing.T, *workshop) {}, []string{"CONFIG_GENERATOR=none"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := withoutTalhelper(t, desk(t))
			w.seal(t)
			w.copyRendered(t, "lab-cp1.yaml", "lab-worker1.yaml", "talosconfig")
			tt.prepare(t, w)

			s := w.session(t, tt.settings...).succeeds(t, steps.Secrets{}, steps.Configs{})
			require.Equal(t, report.Skipped, s.status("configs", ""))

			require.NoError(t, os.Remove(w.ConfigFile("worker1")))
			require.Error(t, w.session(t, tt.settings...).do(t, steps.Secrets{}, steps.Configs{}).err)
		})
	}
}

// declare writes a cluster profile that says of the workshop's machines what its talconfig says.
func (w *workshop) declare(t *testing.T, more string) {
	t.Helper()

	options := w.Generated.Options
	node := options.Nodes[0]
	text := fmt.Sprintf(`name: lab
%s
network: {api_endpoint: %s}
talos:
  version: %s
  kubernetes_version: %s
  install_disk: %s
  factory: {schematic_id: 376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba}
  vip: {interface: eth0, ip: %s}
nodes:
  controlplane:
    assignments:
      - {name: cp1, ip: %s, mac: "%s"}
`, more, options.VIP, options.TalosVersion, options.KubernetesVersion, node.InstallDisk, options.VIP,
		node.Address.Addr(), node.MAC)

	require.NoError(t, os.WriteFile(filepath.Join(w.Dir, "cluster.yaml"), []byte(text), 0o600))
}

func TestARecipeBringsUpWhatAProfileDeclares(t *testing.T) {
	t.Parallel()

	w := withoutTalhelper(t, newWorkshop(t, 1, 0))
	w.untilMaintenance(t)
	w.declare(t, "regenerate_secrets: true")

	s := w.session(t, "CLUSTER_SOURCE=profile")
	s.succeeds(t, s.recipe()...)
	require.Contains(t, readFile(t, filepath.Join(w.ConfigDir(), "secrets.yaml")), "sealed: ")

	again := w.session(t, "CLUSTER_SOURCE=profile")
	again.succeeds(t, again.recipe()...)
	require.Equal(t, report.Skipped, again.status("configs", ""))
	require.NotContains(t, again.out.String(), string(diagnosis.ConfigsStale))
}

func TestAProfileSaysWhetherSecretsMayBeMade(t *testing.T) {
	t.Parallel()

	w := withoutTalhelper(t, newWorkshop(t, 1, 0))
	w.untilMaintenance(t)
	w.declare(t, "")

	problem := w.session(t, "CLUSTER_SOURCE=profile").fails(t, diagnosis.ExitBadInput, diagnosis.SecretsMissing,
		steps.Secrets{})
	require.Contains(t, problem.Cause, "regenerate_secrets: true")

	w.session(t, "CLUSTER_SOURCE=profile").succeeds(t, steps.Secrets{Asked: true})
	w.session(t, "CLUSTER_SOURCE=profile", byTalhelper).fails(t, diagnosis.ExitBadInput, diagnosis.BadSetting,
		steps.Configs{Replace: true})
}

// The user's own sops and key, from nothing to machine configs.
func TestSecretsAreSealedAndOpenedByTheRealSops(t *testing.T) {
	t.Parallel()

	key := agekey.New(t)

	w := newWorkshop(t, 1, 0)
	w.untilMaintenance(t)

	rules := "creation_rules:\n  - path_regex: talos/.*\\.sops\\.yaml$\n    age: " + key.Recipient + "\n"
	key.WriteTo(t, w.folder)
	require.NoError(t, os.WriteFile(filepath.Join(w.folder, ".sops.yaml"), []byte(rules), 0o600))

	path := "PATH=" + key.Programs
	s := w.session(t, path)
	s.succeeds(t, steps.Secrets{}, steps.Configs{})

	sealed := readFile(t, w.secrets())
	require.Contains(t, sealed, "ENC[AES256_GCM,")
	require.NotContains(t, sealed, "LS0tLS1CRUdJTi", "a PEM text in base64")
	require.FileExists(t, w.ConfigFile("cp1"))

	require.NoError(t, os.Remove(filepath.Join(w.folder, "age.key")))

	problem := w.session(t, path).fails(t, diagnosis.ExitBadInput, diagnosis.SecretsUndecryptable,
		steps.Configs{Replace: true})
	require.Contains(t, problem.Cause, filepath.Join(w.folder, "age.key")+": not there")
}

func TestATalosconfigIsReplacedOnceItsCertificateHasEnded(t *testing.T) {
	t.Parallel()

	w := withoutTalhelper(t, desk(t))
	w.seal(t)
	w.session(t).succeeds(t, steps.Configs{Replace: true})

	cluster, err := inventory.Load(inventory.Options{TalosDir: w.Dir})
	require.NoError(t, err)

	old, err := generate.Configs(generate.Source{
		Cluster: cluster, Secrets: w.Generated.Options.Secrets, Now: time.Now().AddDate(-2, 0, 0),
	})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(w.Talosconfig(), old.Talosconfig, 0o600))

	w.session(t).succeeds(t, steps.Configs{Replace: true})

	credentials, err := talos.LoadCredentials(w.Talosconfig())
	require.NoError(t, err)
	require.True(t, credentials.NotAfter().After(time.Now()))
}
