package files_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// What other packages find has a place as well.
func TestFindingsOfOtherPackagesHavePlaces(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		files files
		id    diagnosis.ID
		at    string
		line  string
	}{
		"role": {lab(config{role: "worker"}).replaced("talconfig.yaml", "controlPlane: false",
			"controlPlane: true"), diagnosis.ConfigRole, "clusterconfig/lab-n1.yaml:3:3", "type: worker"},
		"hostname": {lab(calledDocument("other")), diagnosis.ConfigHostname, "clusterconfig/lab-n1.yaml:10:1",
			"hostname: 'other'"},
		"declared address": {lab(onLink("addresses: [192.0.2.99/24]")), diagnosis.ConfigAddress, "talconfig.yaml:7:5",
			"ipAddress: 192.0.2.11"},
		"service subnet": {lab(config{}).replaced("talconfig.yaml", "192.0.2.11", "10.96.1.11"),
			diagnosis.AddressInClusterSubnet, "talconfig.yaml:7:5", "ipAddress: 10.96.1.11"},
		"node IP": {lab(config{machine: "kubelet:\n\tnodeIP:\n\t\tvalidSubnets: [198.51.100.0/24]"}),
			diagnosis.NodeIPExcluded, "clusterconfig/lab-n1.yaml:6:7", "validSubnets: [198.51.100.0/24]"},
		"endpoint": {lab(config{}).replaced("talconfig.yaml", "https://", "http://"), diagnosis.EndpointUnusable,
			"talconfig.yaml:2:1", "endpoint: http://192.0.2.10:6443"},
		"installer": {lab(installing("disk: /dev/vda\n\timage: factory.talos.dev/installer/:v1.13.9")),
			diagnosis.InstallerReference, "clusterconfig/lab-n1.yaml:6:5", "image: factory.talos.dev/installer/:v1.13.9"},
		"placeholder": {lab(config{machine: "token: op://vault/item"}), diagnosis.ConfigPlaceholder,
			"clusterconfig/lab-n1.yaml:4:10", "token: (masked)"},
		"inline patch": {inline("machine:\n  kubelet: {extraArg: {a: b}}"), diagnosis.PatchUnknownKey,
			"talconfig.yaml:17:17", "kubelet: (masked)"},
		"quoted patch": {withList("patches:\n\t- \"machine:\\n  kubelet: {extraArg: {a: b}}\""),
			diagnosis.PatchUnknownKey, "talconfig.yaml:15:28", "kubelet: (masked)"},
		"folded patch": {withList("patches:\n\t- >-\n\t\t{machine:\n\t\t{kubelet: {extraArg: {a: b}}}}"),
			diagnosis.PatchUnknownKey, "talconfig.yaml:17:16", ""},
		"talosconfig": {lab(config{}), diagnosis.TalosconfigMissing, "clusterconfig/talosconfig", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			found := findingsOf(table.Run(context.Background(), test.files.read(t)), test.id)
			require.NotEmpty(t, found)
			require.Equal(t, test.at, found[0].At.String())
			require.Equal(t, test.line, strings.TrimSpace(found[0].At.Text))
		})
	}
}

func TestWhereGeneratedTextComesFrom(t *testing.T) {
	t.Parallel()

	const gateway = "          gateway: 198.51.100.1\n"

	spoilt := func(talconfig string) files {
		return lab(routed("192.0.2.11/24", "192.0.2.1"), routed("192.0.2.12/24", "198.51.100.1")).with("talconfig.yaml",
			talconfig)
	}
	nodes := lab(config{}, config{})["talconfig.yaml"]
	network := "    networkInterfaces:\n      - interface: eth0\n        routes:\n        - network: 0.0.0.0/0\n" + gateway

	for name, test := range map[string]struct {
		files files
		from  string
	}{
		"the node's entry":     {spoilt(nodes + network), "talconfig.yaml:18:20"},
		"another node's entry": {spoilt(strings.Replace(nodes, "  - hostname: n2", network+"  - hostname: n2", 1)), ""},
		"the role's settings": {spoilt(nodes + "controlPlane:\n" + strings.ReplaceAll(network[2:], "\n  ", "\n")),
			"talconfig.yaml:19:18"},
		"another role's": {spoilt(nodes + "worker:\n" + strings.ReplaceAll(network[2:], "\n  ", "\n")), ""},
		"an inline patch": {spoilt(nodes +
			"    patches:\n      - |-\n        machine:\n          network:\n            interfaces:\n              - " +
			"interface: eth0\n                routes:\n                  - gateway: 198.51.100.1\n"), "talconfig.yaml:21:30"},
		"a patch for all": {spoilt(nodes+"patches: ['@patches/net.yaml']\n").with("patches/net.yaml",
			"machine:\n  network:\n    interfaces:\n      - routes:\n          - gateway: 198.51.100.1\n"),
			"patches/net.yaml:5:22"},
		"nowhere that is known": {spoilt(nodes), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			found := findingsOf(table.Run(context.Background(), test.files.read(t)), diagnosis.GatewayOutside)
			require.Len(t, found, 1)
			require.Equal(t, test.from, origin(found[0]))
		})
	}
}

// No format shows a secret, whatever is wrong with the files.
func TestNoFormatShowsASecret(t *testing.T) {
	t.Parallel()

	bundle, err := ourSecrets()
	require.NoError(t, err)

	for name, spoil := range map[string]func(string) string{
		"as it is":    func(text string) string { return text },
		"cut off":     func(text string) string { return text[:len(text)/2] + "\n\t{" },
		"unknown key": func(text string) string { return strings.ReplaceAll(text, "  token:", "  tokne:") },
		"no role":     func(text string) string { return strings.ReplaceAll(text, "type: controlplane", "type: master") },
	} {
		folder := generated(t, 3, nil)
		path := filepath.Join(folder, "clusterconfig", "lab-n1.yaml")
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, []byte(spoil(string(text))), 0o600))

		result := table.Run(context.Background(), readFolder(folder))

		for _, format := range []string{"table", "json", "sarif"} {
			shown := write(t, result, format)

			for _, secret := range []string{bundle.TrustdInfo.Token, bundle.Secrets.BootstrapToken, bundle.Cluster.Secret,
				bundle.Secrets.SecretboxEncryptionSecret} {
				require.NotContains(t, shown, secret, "%s as %s", name, format)
			}

			require.NotContains(t, shown, "PRIVATE KEY", "%s as %s", name, format)
		}
	}
}

func TestAPlaintextSecretsFileThatOthersCanRead(t *testing.T) {
	t.Parallel()

	tried.add(diagnosis.SecretsFileOpen)

	judged := func(text string, mode os.FileMode) []diagnosis.Finding {
		folder := lab(config{}).with("talsecret.yaml", text).write(t)
		require.NoError(t, os.Chmod(filepath.Join(folder, "talsecret.yaml"), mode))

		return findingsOf(table.Run(context.Background(), readFolder(folder)), diagnosis.SecretsFileOpen)
	}

	found := judged("cluster:\n  id: a\n", 0o644)
	require.Len(t, found, 1)
	require.Contains(t, found[0].Cause, "0644")
	require.Equal(t, "talsecret.yaml", found[0].At.Path)
	require.Empty(t, found[0].At.Text)

	require.Empty(t, judged("cluster:\n  id: a\n", 0o600))
	require.Empty(t, judged("cluster:\n  id: ENC[AES256_GCM,data:x]\n", 0o644))
	require.Empty(t, judged("cluster:\n  id: ${CLUSTER_ID}\n", 0o644), "the secrets are in the environment")
}

// A config that shares its file with other machines is judged once.
func TestMachinesThatShareAFile(t *testing.T) {
	t.Parallel()

	made := lab(routed("192.0.2.11/24", "198.51.100.1")).replaced("talconfig.yaml", "ipAddress: 192.0.2.11",
		"ipAddress: 192.0.2.11, 192.0.2.12\n    ignoreHostname: true")
	require.Len(t, findingsOf(table.Run(context.Background(), made.read(t)), diagnosis.GatewayOutside), 1)
}

// origin is where a finding's text comes from; empty if that is not known.
func origin(finding diagnosis.Finding) string {
	if finding.At.From == nil {
		return ""
	}

	return finding.At.From.String()
}

// A machine config that is not written yet is judged as it would be, with where its text comes from.
func TestMachineConfigsThatAreMadeInMemory(t *testing.T) {
	t.Parallel()

	made := lab(routed("192.0.2.11/24", "198.51.100.1"))
	text := made["clusterconfig/lab-n1.yaml"]
	delete(made, "clusterconfig/lab-n1.yaml")
	made["talconfig.yaml"] += "    networkInterfaces:\n      - interface: eth0\n        routes:\n          - gateway: " +
		"198.51.100.1\n"

	folder := made.write(t)
	read := reading.New(folder, nil)
	read.Pretend(filepath.Join(folder, "clusterconfig", "lab-n1.yaml"), []byte(text))

	result := table.Run(context.Background(), check.Read(check.Options{TalosDir: folder, Root: folder, Files: read}))

	found := findingsOf(result, diagnosis.GatewayOutside)
	require.Len(t, found, 1)
	require.Equal(t, "clusterconfig/lab-n1.yaml", found[0].At.Path)
	require.True(t, found[0].At.Unwritten)
	require.Equal(t, "talconfig.yaml:13:22", origin(found[0]))
	require.Empty(t, findingsOf(result, diagnosis.ConfigMissing), "it will be written")
	require.NotEmpty(t, findingsOf(result, diagnosis.TalosconfigMissing), "none was made")
}
