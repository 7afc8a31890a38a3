package secrets_test

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	clustersecrets "github.com/talos-mage/talos-mage/internal/cluster/secrets"
	"github.com/talos-mage/talos-mage/internal/cluster/talconfig"
	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

var now = time.Date(2026, time.March, 4, 5, 6, 7, 0, time.UTC)

// made is the one bundle of this process.
var made = sync.OnceValues(clusterfiles.NewSecrets)

func bundle(tb testing.TB) *secrets.Bundle {
	tb.Helper()

	bundle, err := made()
	require.NoError(tb, err)

	return bundle
}

func encoded(tb testing.TB) string {
	tb.Helper()

	text, err := clustersecrets.Encode(bundle(tb))
	require.NoError(tb, err)

	return string(text)
}

// with are variables of these values.
func with(values map[string]string) talconfig.Variables {
	return talconfig.Variables{Lookup: func(name string) (string, bool) {
		value, set := values[name]

		return value, set
	}}
}

// requireSame compares all but the clock.
func requireSame(t *testing.T, want, got *secrets.Bundle) {
	t.Helper()

	first, err := clustersecrets.Encode(want)
	require.NoError(t, err)

	second, err := clustersecrets.Encode(got)
	require.NoError(t, err)
	require.True(t, string(first) == string(second), "the bundles differ") // not shown: they are secrets
}

func TestBundlesAreReadInEveryFormThatProgramsWrite(t *testing.T) {
	t.Parallel()

	byTalosctl, err := yaml.Marshal(bundle(t))
	require.NoError(t, err)

	asJSON, err := json.MarshalIndent(bundle(t), "", "  ")
	require.NoError(t, err)

	for name, text := range map[string]string{
		"talhelper":              encoded(t),
		"talosctl gen secrets":   string(byTalosctl),
		"JSON, as Terraform has": string(asJSON),
		"with a comment and ---": "# ours\n---\n" + encoded(t),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			got, err := clustersecrets.Decode("talsecret.yaml", []byte(text), with(nil), now)
			require.NoError(t, err)
			requireSame(t, bundle(t), got)
			require.NoError(t, got.Validate(talosconfig.TalosVersion1_13))
			require.Equal(t, now, got.Clock.Now())
		})
	}
}

func TestTheFileHasTalhelpersForm(t *testing.T) {
	t.Parallel()

	golden.Assert(t, filepath.Join("testdata", "talsecret.golden"),
		regexp.MustCompile(`: \S+`).ReplaceAllString(encoded(t), ": x"))
}

func TestVariablesInTheFileAreReplaced(t *testing.T) {
	t.Parallel()

	token := bundle(t).TrustdInfo.Token
	text := strings.Replace(encoded(t), token, "${TRUSTD_TOKEN}", 1)

	got, err := clustersecrets.Decode("talsecret.yaml", []byte(text), with(map[string]string{"TRUSTD_TOKEN": token}), now)
	require.NoError(t, err)
	requireSame(t, bundle(t), got)

	_, err = clustersecrets.Decode("talsecret.yaml", []byte(text), with(nil), now)
	require.ErrorContains(t, err, "variable TRUSTD_TOKEN is not set")
}

func TestADollarSignInASecretIsNoVariable(t *testing.T) {
	t.Parallel()

	odd := *bundle(t)
	odd.TrustdInfo = &secrets.TrustdInfo{Token: "pa$WORD$$x"}

	text, err := clustersecrets.Encode(&odd)
	require.NoError(t, err)

	got, err := clustersecrets.Decode("talsecret.yaml", text, with(nil), now)
	require.NoError(t, err)
	require.Equal(t, odd.TrustdInfo.Token, got.TrustdInfo.Token)
}

func TestMistakesAreNamedByPlaceAndNeverByValue(t *testing.T) {
	t.Parallel()

	replaced := func(pattern, replacement string) func(string) string {
		return func(text string) string {
			changed := regexp.MustCompile("(?m)"+pattern).ReplaceAllString(text, replacement)
			if changed == text {
				panic("nothing matches " + pattern)
			}

			return changed
		}
	}

	for name, tt := range map[string]struct {
		change func(string) string
		want   string
	}{
		"empty": {func(string) string { return "" }, "talsecret.yaml: the secrets file is empty"},
		"a word": {func(string) string { return "secret" },
			"talsecret.yaml:1:1: the file must be a mapping, not a single value"},
		"no YAML": {func(text string) string { return text + "\t- {" }, "talsecret.yaml:"},
		"a misspelt key": {replaced(`^trustdinfo:`, "trustinfo:"),
			`unknown key "trustinfo", did you mean "trustdinfo"?`},
		"a missing part": {replaced(`^trustdinfo:\n.*\n`, ""), `talsecret.yaml:1:1: "trustdinfo.token" is needed`},
		"an empty value": {replaced(`^  id: .*`, "  id:"), `talsecret.yaml:2:6: "cluster.id" is needed`},
		"no encryption secret": {replaced(`^  secretbox.*\n`, ""),
			`one of "secrets.secretboxencryptionsecret" and, before Talos 1.3`},
		"a strange token": {replaced(`^  bootstraptoken: .*`, "  bootstraptoken: hunter2hunter2"),
			`talsecret.yaml:5:19: "secrets.bootstraptoken" is no bootstrap token`},
		"no base64": {replaced(`^    crt: .*`, "    crt: hunter2hunter2"),
			`"certs.etcd.crt" must be base64 of a PEM text`},
		"sops without metadata": {replaced(`^    key: .*`, "    key: ENC[AES256_GCM,data:hunter2]"),
			"it is still encrypted, though the file has no `sops` part"},
		"blacked out": {replaced(`^    key: .*`, "    key: '******'"), "it was blacked out"},
		"a manager's reference": {replaced(`^    key: .*`, "    key: op://vault/hunter2"),
			"it is a password manager's reference"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, err := clustersecrets.Decode("talsecret.yaml", []byte(tt.change(encoded(t))), with(nil), now)
			require.ErrorContains(t, err, tt.want)
			require.NotContains(t, err.Error(), "hunter2")

			for _, mistake := range yamlfile.Errors(err) {
				require.NotContains(t, mistake.Message, bundle(t).Cluster.Secret)
			}
		})
	}
}

func TestACertificateNeedsItsOwnKey(t *testing.T) {
	t.Parallel()

	mixed := *bundle(t)
	certs := *mixed.Certs
	mixed.Certs = &certs
	certs.OS = certs.Etcd
	other := *certs.K8s
	other.Key = certs.K8sAggregator.Key
	certs.K8s = &other

	text, err := clustersecrets.Encode(&mixed)
	require.NoError(t, err)

	_, err = clustersecrets.Decode("talsecret.yaml", text, with(nil), now)
	require.ErrorContains(t, err, `"certs.k8s" is no certificate with the key beside it`)
}

func TestSecretsAreRecoveredFromAControlPlane(t *testing.T) {
	t.Parallel()

	for _, version := range []string{"v1.8.0", machineconfig.DefaultTalosVersion} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()

			controlPlane, worker := configs(t, version)

			got, err := clustersecrets.Recover(controlPlane, now)
			require.NoError(t, err)
			requireSame(t, bundle(t), got)

			_, err = clustersecrets.Recover(worker, now)
			require.EqualError(t, err, "it is the config of a worker, which holds only a part of the secrets")
		})
	}
}

func TestWhatWasBlackedOutIsNotRecovered(t *testing.T) {
	t.Parallel()

	controlPlane, _ := configs(t, machineconfig.DefaultTalosVersion)

	text, err := controlPlane.Provider.RedactSecrets("******").Bytes()
	require.NoError(t, err)

	redacted, err := machineconfig.FromBytes("cp1.yaml", text)
	require.NoError(t, err)

	_, err = clustersecrets.Recover(redacted, now)
	require.Error(t, err)
}

// configs are those of a control plane and a worker.
func configs(t *testing.T, version string) (controlPlane, worker *machineconfig.Config) {
	t.Helper()

	generated, err := clusterfiles.Make(clusterfiles.Options{
		ClusterName: "demo", Endpoint: "https://192.0.2.10:6443", TalosVersion: version, Secrets: bundle(t),
		Nodes: []clusterfiles.Node{
			{Name: "cp1", Role: machine.TypeControlPlane, Address: netip.MustParsePrefix("192.0.2.11/24")},
			{Name: "w1", Role: machine.TypeWorker, Address: netip.MustParsePrefix("192.0.2.21/24")},
		},
	})
	require.NoError(t, err)

	loaded := make([]*machineconfig.Config, 2)
	for i, config := range generated.Configs {
		loaded[i], err = machineconfig.FromBytes(config.FileName, config.Bytes)
		require.NoError(t, err)
	}

	return loaded[0], loaded[1]
}

func TestTheFileIsFoundAsTalhelperFindsIt(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct{ files, found, near []string }{
		"nothing":   {[]string{"talconfig.yaml", "talenv.sops.yaml"}, nil, nil},
		"encrypted": {[]string{"talsecret.sops.yaml"}, []string{"talsecret.sops.yaml"}, nil},
		"both: the plain first": {[]string{"talsecret.sops.yaml", "talsecret.yaml"},
			[]string{"talsecret.yaml", "talsecret.sops.yaml"}, nil},
		"the other ending":      {[]string{"talsecret.sops.yml"}, []string{"talsecret.sops.yml"}, nil},
		"a slip":                {[]string{"talsecrets.sops.yaml"}, nil, []string{"talsecrets.sops.yaml"}},
		"in capitals":           {[]string{"TalSecret.yaml"}, nil, []string{"TalSecret.yaml"}},
		"talosctl's name":       {[]string{"secrets.yaml"}, nil, []string{"secrets.yaml"}},
		"a template's old name": {[]string{"talhelper.sops.yaml"}, nil, []string{"talhelper.sops.yaml"}},
		"a slip beside the file": {[]string{"talsecret.yaml", "talsecrets.yaml"}, []string{"talsecret.yaml"},
			[]string{"talsecrets.yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			folder := t.TempDir()
			for _, file := range tt.files {
				require.NoError(t, os.WriteFile(filepath.Join(folder, file), nil, 0o600))
			}

			var found []string
			for _, path := range clustersecrets.Find(folder) {
				found = append(found, filepath.Base(path))
			}

			require.Equal(t, tt.found, found)
			require.Equal(t, tt.near, clustersecrets.NearMisses(folder, clustersecrets.Names()...))
		})
	}
}

func TestAProfilesNameOfTheFileHasSlipsOfItsOwn(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	for _, file := range []string{"secrets.yaml", "secret.yaml", "secrets.yml", "secrets.sops.yaml", "talsecret.yaml",
		"lab-cp1.yaml", "talosconfig"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, file), nil, 0o600))
	}

	require.Equal(t, []string{"secret.yaml", "secrets.sops.yaml", "secrets.yml", "talsecret.yaml"},
		clustersecrets.NearMisses(folder, "secrets.yaml"))
}
