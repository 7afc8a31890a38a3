package files_test

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

// othersSecrets are another cluster's.
var othersSecrets = sync.OnceValues(clusterfiles.NewSecrets)

// demoOptions is a cluster of two control planes and a worker, one control plane with DHCP.
func demoOptions(t *testing.T) clusterfiles.Options {
	t.Helper()

	bundle, err := ourSecrets()
	require.NoError(t, err)

	return clusterfiles.Options{
		ClusterName: "demo",
		Endpoint:    "https://192.0.2.10:6443",
		VIP:         netip.MustParseAddr("192.0.2.10"),
		CNI:         "none",
		Secrets:     bundle,
		Nodes: []clusterfiles.Node{
			{
				Name: "cp1", Role: inventory.ControlPlane, Address: netip.MustParsePrefix("192.0.2.11/24"),
				MAC: "02:00:00:00:00:11", Gateway: netip.MustParseAddr("192.0.2.1"),
			},
			{Name: "cp2", Role: inventory.ControlPlane, Declared: "192.0.2.12"},
			{Name: "w1", Role: inventory.Worker, Address: netip.MustParsePrefix("192.0.2.21/24"), Link: "ens3"},
		},
	}
}

// writeDemo writes the demo cluster's files into a folder of its own.
func writeDemo(t *testing.T, options clusterfiles.Options) string {
	t.Helper()

	generated, err := clusterfiles.Make(options)
	require.NoError(t, err)

	dir := t.TempDir()
	require.NoError(t, generated.Write(dir))

	return dir
}

// edit replaces text in a file of the demo cluster.
func edit(t *testing.T, dir, name, from, to string) {
	t.Helper()

	path := filepath.Join(dir, name)

	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(data), from)
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(data), from, to)), 0o600))
}

// foreign takes files from a cluster of the same nodes with other secrets.
func foreign(t *testing.T, dir string, names ...string) {
	t.Helper()

	options := demoOptions(t)

	bundle, err := othersSecrets()
	require.NoError(t, err)

	options.Secrets = bundle
	other := writeDemo(t, options)

	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(other, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
}

// TestFilesThatDoNotBelongTogether spoils the demo cluster's files in each way that the check finds. Of each case the
// golden file has the findings that are not OK.
func TestFilesThatDoNotBelongTogether(t *testing.T) {
	t.Parallel()

	cases := map[string]struct {
		spoil func(t *testing.T, dir string)
		want  []diagnosis.ID
	}{
		"a config is missing": {
			func(t *testing.T, dir string) {
				require.NoError(t, os.Remove(filepath.Join(dir, "clusterconfig/demo-w1.yaml")))
			},
			[]diagnosis.ID{diagnosis.ConfigMissing},
		},
		"no config at all": {
			func(t *testing.T, dir string) { require.NoError(t, os.RemoveAll(filepath.Join(dir, "clusterconfig"))) },
			[]diagnosis.ID{diagnosis.ConfigMissing, diagnosis.ConfigMissing, diagnosis.ConfigMissing,
				diagnosis.TalosconfigMissing},
		},
		"a config is broken": {
			func(t *testing.T, dir string) { edit(t, dir, "clusterconfig/demo-w1.yaml", "kubelet:", "kublet:") },
			[]diagnosis.ID{diagnosis.ConfigUnreadable},
		},
		"a worker is declared a control plane": {
			func(t *testing.T, dir string) {
				edit(t, dir, "talconfig.yaml", "controlPlane: false", "controlPlane: true")
			},
			[]diagnosis.ID{diagnosis.ConfigRole},
		},
		"another hostname": {
			func(t *testing.T, dir string) {
				edit(t, dir, "clusterconfig/demo-cp1.yaml", "hostname: cp1", "hostname: cp9")
			},
			[]diagnosis.ID{diagnosis.ConfigHostname},
		},
		"no hostname": {
			func(t *testing.T, dir string) {
				edit(t, dir, "clusterconfig/demo-cp1.yaml", "hostname: cp1", "")
			},
			[]diagnosis.ID{diagnosis.ConfigHostname},
		},
		"a full name is the same hostname": {
			func(t *testing.T, dir string) {
				edit(t, dir, "clusterconfig/demo-cp1.yaml", "hostname: cp1", "hostname: cp1.example.com")
			}, nil,
		},
		"another address on the same subnet": {
			func(t *testing.T, dir string) {
				edit(t, dir, "talconfig.yaml", `ipAddress: "192.0.2.11"`, `ipAddress: "192.0.2.40"`)
			},
			[]diagnosis.ID{diagnosis.ConfigAddress},
		},
		"another subnet and no DHCP": {
			func(t *testing.T, dir string) {
				edit(t, dir, "talconfig.yaml", `ipAddress: "192.0.2.11"`, `ipAddress: "198.51.100.11"`)
			},
			[]diagnosis.ID{diagnosis.ConfigAddress},
		},
		"another subnet and DHCP": {
			func(t *testing.T, dir string) {
				edit(t, dir, "talconfig.yaml", `ipAddress: "192.0.2.11"`, `ipAddress: "198.51.100.11"`)
				appendTo(t, dir, "clusterconfig/demo-cp1.yaml", "---\napiVersion: v1alpha1\nkind: DHCPv4Config\nname: eth1\n")
			}, nil,
		},
		"another subnet and DHCP beside the static address": {
			func(t *testing.T, dir string) {
				edit(t, dir, "talconfig.yaml", `ipAddress: "192.0.2.11"`, `ipAddress: "198.51.100.11"`)
				appendTo(t, dir, "clusterconfig/demo-cp1.yaml", "---\napiVersion: v1alpha1\nkind: DHCPv4Config\nname: ethSel0\n")
			},
			[]diagnosis.ID{diagnosis.ConfigAddress},
		},
		"static addresses on a cable alone, and DHCP by default": {
			func(t *testing.T, dir string) {
				edit(t, dir, "clusterconfig/demo-w1.yaml", "address: 192.0.2.21/24", "address: 169.254.255.21/32")
			}, nil,
		},
		"an address that routers announce": {
			func(t *testing.T, dir string) {
				edit(t, dir, "talconfig.yaml", `ipAddress: "192.0.2.11"`, `ipAddress: "2001:db8::11"`)
			}, nil,
		},
		"the VIP as an address": {
			func(t *testing.T, dir string) {
				edit(t, dir, "talconfig.yaml", `ipAddress: "192.0.2.12"`, `ipAddress: "192.0.2.10"`)
			},
			[]diagnosis.ID{diagnosis.ConfigAddress},
		},
		"a config of another run": {
			func(t *testing.T, dir string) { foreign(t, dir, "clusterconfig/demo-w1.yaml") },
			[]diagnosis.ID{diagnosis.ConfigCA},
		},
		"one config and the talosconfig of this run": {
			func(t *testing.T, dir string) {
				foreign(t, dir, "clusterconfig/demo-cp2.yaml", "clusterconfig/demo-w1.yaml")
			},
			[]diagnosis.ID{diagnosis.ConfigCA, diagnosis.TalosconfigForeign},
		},
		"talosconfig of another cluster": {
			func(t *testing.T, dir string) { foreign(t, dir, "clusterconfig/talosconfig") },
			[]diagnosis.ID{diagnosis.TalosconfigForeign},
		},
		"a talosconfig of nothing": {
			func(t *testing.T, dir string) { overwrite(t, dir, "clusterconfig/talosconfig", "context: demo\n") },
			[]diagnosis.ID{diagnosis.TalosconfigBroken},
		},
		"a talosconfig that is no YAML": {
			func(t *testing.T, dir string) { overwrite(t, dir, "clusterconfig/talosconfig", "[") },
			[]diagnosis.ID{diagnosis.TalosconfigBroken},
		},
		"a talosconfig without a CA": {
			func(t *testing.T, dir string) {
				overwrite(t, dir, "clusterconfig/talosconfig", "context: demo\ncontexts: {demo: {ca: \"\"}}\n")
			},
			[]diagnosis.ID{diagnosis.TalosconfigBroken},
		},
		"another token": {
			func(t *testing.T, dir string) {
				edit(t, dir, "clusterconfig/demo-w1.yaml", "  token: ", "  token: x")
			},
			[]diagnosis.ID{diagnosis.ConfigSecrets},
		},
		"placeholders": {
			func(t *testing.T, dir string) {
				edit(t, dir, "clusterconfig/demo-w1.yaml", "  token: ", "  token: op://vault/item/field #")
				edit(t, dir, "clusterconfig/demo-cp2.yaml", "  secret: ", "  secret: ref+sops://file.yaml#/x #")
				edit(t, dir, "clusterconfig/demo-cp1.yaml", "    crt: ", "    crt: ENC[AES256_GCM,data:s3cr3t] #")
			},
			[]diagnosis.ID{diagnosis.ConfigPlaceholder, diagnosis.ConfigPlaceholder, diagnosis.ConfigPlaceholder},
		},
		"name and endpoint of another cluster": {
			func(t *testing.T, dir string) {
				edit(t, dir, "clusterconfig/demo-cp1.yaml", "clusterName: demo", "clusterName: prod")
				edit(t, dir, "clusterconfig/demo-cp2.yaml", "https://192.0.2.10:6443", "https://192.0.2.9:6443")
			},
			[]diagnosis.ID{diagnosis.ConfigCluster, diagnosis.ConfigCluster},
		},
		"an endpoint of its own, by a patch": {
			func(t *testing.T, dir string) {
				edit(t, dir, "talconfig.yaml", "nodes:\n",
					"patches: ['cluster: {controlPlane: {endpoint: \"https://192.0.2.9:6443\"}}']\nnodes:\n")
				edit(t, dir, "clusterconfig/demo-cp2.yaml", "https://192.0.2.10:6443", "https://192.0.2.9:6443")
			},
			nil,
		},
		"an endpoint of its own, by a list of operations and a variable": {
			func(t *testing.T, dir string) {
				appendTo(t, dir, "talenv.yaml", "ENDPOINT: https://192.0.2.9:6443\n")
				overwrite(t, dir, "endpoint.yaml",
					"- {op: replace, path: /cluster/controlPlane/endpoint, value: \"${ENDPOINT}\"}\n")
				edit(t, dir, "talconfig.yaml", "nodes:\n", "patches: ['@endpoint.yaml']\nnodes:\n")
				edit(t, dir, "clusterconfig/demo-cp2.yaml", "https://192.0.2.10:6443", "https://192.0.2.9:6443")
			},
			nil,
		},
		"an endpoint of its own, by a patch for another node": {
			func(t *testing.T, dir string) {
				edit(t, dir, "talconfig.yaml", "nodes:\n",
					"worker: {patches: ['cluster: {controlPlane: {endpoint: \"https://192.0.2.9:6443\"}}']}\nnodes:\n")
				edit(t, dir, "clusterconfig/demo-cp2.yaml", "https://192.0.2.10:6443", "https://192.0.2.9:6443")
			},
			[]diagnosis.ID{diagnosis.ConfigCluster},
		},
		"another hostname, by a patch": {
			func(t *testing.T, dir string) {
				edit(t, dir, "talconfig.yaml", "nodes:\n", "patches: ['machine: {network: {hostname: cp9}}']\nnodes:\n")
				edit(t, dir, "clusterconfig/demo-cp1.yaml", "hostname: cp1", "hostname: cp9")
			},
			[]diagnosis.ID{diagnosis.ConfigHostname},
		},
		"a shared config with a hostname and an address": {
			func(t *testing.T, dir string) {
				edit(t, dir, "talconfig.yaml", `hostname: w1
    ipAddress: "192.0.2.21"`, `hostname: w1
    ignoreHostname: true
    ipAddress: "192.0.2.21,192.0.2.22"`)
			},
			[]diagnosis.ID{diagnosis.SharedConfig, diagnosis.SharedConfig, diagnosis.ConfigAddress},
		},
		"misnamed secrets": {
			func(t *testing.T, dir string) { overwrite(t, dir, "talsecrets.sops.yaml", "sops: {}\n") },
			[]diagnosis.ID{diagnosis.SecretsFileMisnamed},
		},
		"secrets under the right name beside others": {
			func(t *testing.T, dir string) {
				overwrite(t, dir, "talsecrets.sops.yaml", "sops: {}\n")
				overwrite(t, dir, "talsecret.sops.yaml", "certs: {os: {crt: \"ENC[AES256_GCM,data:x]\"}}\nsops: {}\n")
			}, nil,
		},
		"secrets twice": {
			func(t *testing.T, dir string) {
				writeSecrets(t, dir, ourSecrets)
				overwrite(t, dir, "talsecret.sops.yaml", "certs: {os: {crt: \"ENC[AES256_GCM,data:x]\"}}\nsops: {}\n")
			},
			[]diagnosis.ID{diagnosis.SecretsAmbiguous},
		},
		"secrets of this cluster in plain text": {
			func(t *testing.T, dir string) { writeSecrets(t, dir, ourSecrets) }, nil,
		},
		"secrets of another cluster in plain text": {
			func(t *testing.T, dir string) { writeSecrets(t, dir, othersSecrets) },
			[]diagnosis.ID{diagnosis.ConfigCA},
		},
	}

	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			dir := writeDemo(t, demoOptions(t))
			tt.spoil(t, dir)

			var (
				found []diagnosis.ID
				text  strings.Builder
			)

			for _, finding := range belonging(t, dir) {
				if finding.Severity == diagnosis.OK {
					continue
				}

				require.Equal(t, diagnosis.ExitBadInput, finding.ExitCode())
				require.NotContains(t, finding.Cause, "s3cr3t")
				require.NotContains(t, finding.Cause, dir, "paths are shown relative to the root")

				_, known := diagnosis.Lookup(finding.ID)
				require.True(t, known)

				found = append(found, finding.ID)
				fmt.Fprintf(&text, "%s %s %s: %s\n    at: %s\n    next: %s\n", finding.ID, finding.Severity, finding.Subject(),
					withoutSums(finding.Cause), finding.At, finding.Next)
			}

			require.Equal(t, tt.want, found, text.String())
			golden.Assert(t, "testdata/belonging/"+strings.ReplaceAll(name, " ", "-")+".golden", text.String())
		})
	}
}

// belonging are the findings about whether a folder's files belong together.
func belonging(t *testing.T, dir string) []diagnosis.Finding {
	t.Helper()

	var found []diagnosis.Finding

	for _, finding := range table.Run(t.Context(), check.Read(check.Options{TalosDir: dir, Root: dir})).Findings {
		if finding.ID >= diagnosis.ConfigMissing && finding.ID < diagnosis.ConfigInvalid ||
			finding.ID == diagnosis.SharedConfig {
			found = append(found, finding)
		}
	}

	return found
}

// withoutSums takes out the sums of certificates, which differ in every run.
func withoutSums(text string) string {
	return regexp.MustCompile(`sha256 [0-9a-f]{8}`).ReplaceAllString(text, "sha256 …")
}

func overwrite(t *testing.T, dir, name, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
}

func appendTo(t *testing.T, dir, name, content string) {
	t.Helper()

	data, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	overwrite(t, dir, name, string(data)+content)
}

func writeSecrets(t *testing.T, dir string, bundle func() (*secrets.Bundle, error)) {
	t.Helper()

	made, err := bundle()
	require.NoError(t, err)

	overwrite(t, dir, "talsecret.yaml",
		"certs:\n  os:\n    crt: "+base64.StdEncoding.EncodeToString(made.Certs.OS.Crt)+"\n")
}

// An operator who replaces the CA step by step has configs that accept both.
func TestBelongingAcceptsBothAuthoritiesOfARotation(t *testing.T) {
	t.Parallel()

	dir := writeDemo(t, demoOptions(t))
	foreign(t, dir, "clusterconfig/talosconfig")

	other, err := othersSecrets()
	require.NoError(t, err)

	for _, name := range []string{"cp1", "cp2", "w1"} {
		edit(t, dir, "clusterconfig/demo-"+name+".yaml", "  certSANs: []", "  acceptedCAs:\n    - crt: "+
			base64.StdEncoding.EncodeToString(other.Certs.OS.Crt)+"\n  certSANs: []")
	}

	for _, finding := range belonging(t, dir) {
		require.Equal(t, diagnosis.OK, finding.Severity, finding.Cause)
	}
}
