package inventory_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
)

const twoNodes = `clusterName: demo
endpoint: https://192.0.2.10:6443
nodes:
  - hostname: cp1
    ipAddress: 192.0.2.11
    controlPlane: true
  - hostname: w1
    ipAddress: 192.0.2.21
`

func TestOneMachinePerAddressOfASharedEntry(t *testing.T) {
	t.Parallel()

	cluster, err := load(t, map[string]string{"talconfig.yaml": `clusterName: demo
endpoint: https://192.0.2.10:6443
nodes:
  - {hostname: cp, ipAddress: "192.0.2.11, 192.0.2.12,192.0.2.13", controlPlane: true, ignoreHostname: true}
  - {hostname: single, ipAddress: "2001:db8::21", ignoreHostname: true}
`})
	require.NoError(t, err)
	require.Len(t, cluster.ControlPlanes(), 3)

	var names, addresses []string
	for _, node := range cluster.Nodes {
		names, addresses = append(names, node.Name), append(addresses, node.Address)
	}

	require.Equal(t, []string{"cp[192.0.2.11]", "cp[192.0.2.12]", "cp[192.0.2.13]", "single"}, names)
	require.Equal(t, []string{"192.0.2.11", "192.0.2.12", "192.0.2.13", "2001:db8::21"}, addresses)
	require.Equal(t, cluster.Nodes[0].ConfigFile, cluster.Nodes[2].ConfigFile)
	require.True(t, strings.HasSuffix(cluster.Nodes[0].ConfigFile, "demo-cp.yaml"))
	require.Equal(t, "cp", cluster.Nodes[1].Hostname)
	require.Same(t, cluster.Nodes[1], cluster.Node("cp[192.0.2.12]"))
}

func TestSameInventoryInOtherClothes(t *testing.T) {
	t.Parallel()

	plain, err := load(t, map[string]string{"talconfig.yaml": twoNodes})
	require.NoError(t, err)

	for name, text := range map[string]string{
		"CRLF":            strings.ReplaceAll(twoNodes, "\n", "\r\n"),
		"byte order mark": "\xef\xbb\xbf" + twoNodes,
		"comments":        "# ${NOT_A_VARIABLE}\n---\n" + strings.ReplaceAll(twoNodes, "\n", " # $neither\n"),
		"quotes":          strings.NewReplacer("demo", `"demo"`, "192.0.2.11", "'192.0.2.11'").Replace(twoNodes),
		"anchors": `x-node: &node
  controlPlane: true
clusterName: &name demo
endpoint: https://192.0.2.10:6443
nodes:
  - <<: *node
    hostname: cp1
    ipAddress: 192.0.2.11
  - {<<: [*node], hostname: w1, ipAddress: 192.0.2.21, controlPlane: false}
`,
		"another document behind": twoNodes + "---\nanything: goes\n",
		"flow style":              `{clusterName: demo, endpoint: "https://192.0.2.10:6443", nodes: [{hostname: cp1, ipAddress: 192.0.2.11, controlPlane: yes}, {hostname: w1, ipAddress: 192.0.2.21}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			cluster, err := load(t, map[string]string{"talconfig.yaml": text})
			require.NoError(t, err)
			require.Equal(t, plain.Name, cluster.Name)
			require.Len(t, cluster.Nodes, 2)

			for i, node := range cluster.Nodes {
				require.Equal(t, plain.Nodes[i].Name, node.Name)
				require.Equal(t, plain.Nodes[i].Address, node.Address)
				require.Equal(t, plain.Nodes[i].Role, node.Role)
			}
		})
	}
}

func TestVariables(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		text    string
		talenv  string
		environ []string
		want    string
	}{
		"plain":                      {"$NAME", "NAME: demo", nil, "demo"},
		"braces":                     {"a-${NAME}-b", "NAME: demo", nil, "a-demo-b"},
		"environment":                {"${NAME}", "", []string{"NAME=demo"}, "demo"},
		"talenv wins":                {"${NAME}", "NAME: file", []string{"NAME=environment"}, "file"},
		"quoted in talenv":           {"${NAME}", `NAME: "demo" # comment`, nil, "demo"},
		"number in talenv":           {"${NAME}", "NAME: 1.10", nil, "1.10"},
		"talenv with CRLF and mark":  {"${NAME}", "\xef\xbb\xbf---\r\nNAME: demo\r\n", nil, "demo"},
		"default of unset":           {"${NAME:-demo}", "", nil, "demo"},
		"default of empty":           {"${NAME:-demo}", "NAME:", nil, "demo"},
		"default not needed":         {"${NAME:-demo}", "NAME: set", nil, "set"},
		"dash default of unset":      {"${NAME-demo}", "", nil, "demo"},
		"equals default":             {"${NAME:=demo}", "", nil, "demo"},
		"equals default of unset":    {"${NAME=demo}", "", nil, "demo"},
		"default is a variable":      {"${NAME:-$OTHER}", "OTHER: demo", nil, "demo"},
		"default is one in braces":   {"${NAME:-${OTHER}}", "OTHER: demo", nil, "demo"},
		"alternative of set":         {"x${NAME:+demo}", "NAME: set", nil, "xdemo"},
		"alternative of unset":       {"x${NAME+demo}", "", nil, "x"},
		"two dollars":                {"a$$NAME", "NAME: demo", nil, "a$NAME"},
		"dollar before a sign":       {"a$-b$", "", nil, "a$-b$"},
		"underscore is no variable":  {"a$_", "", nil, "a$_"},
		"empty braces are text":      {"a${}", "", nil, "a${}"},
		"the environment has equals": {"${NAME}", "", []string{"NAME=a=b"}, "a=b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			cluster, err := load(t, map[string]string{
				"talconfig.yaml": strings.Replace(twoNodes, "clusterName: demo", "clusterName: '"+tt.text+"'", 1),
				"talenv.yaml":    tt.talenv,
			}, tt.environ...)
			require.NoError(t, err)
			require.Equal(t, tt.want, cluster.Name)
		})
	}
}

func TestLaterTalenvFilesWin(t *testing.T) {
	t.Parallel()

	cluster, err := load(t, map[string]string{
		"talconfig.yaml": strings.Replace(twoNodes, "demo", "${NAME}", 1), "talenv.yaml": "NAME: first",
		"talenv.yml": "NAME: last",
	})
	require.NoError(t, err)
	require.Equal(t, "last", cluster.Name)
}

// Text that belongs to others keeps its dollar signs, whatever they are followed by.
func TestForeignDollarsAreLeftAlone(t *testing.T) {
	t.Parallel()

	_, err := load(t, map[string]string{"talconfig.yaml": twoNodes + `    patches:
      - |-
        machine: {files: [{content: "proxy_set_header Host $host; ${nothing}"}]}
    machineFiles: [{path: /var/x, content: "$x ${y}", permissions: 0o644, op: create}]
    extensionServices: [{name: s, environment: ["A=$B"], configFiles: [{mountPath: /x, content: $c}]}]
patches: ["$a"]
inlineManifests: [{name: cilium, contents: "$host ${host} $$"}]
controlPlane: {patches: ["${z}"], extraManifests: [$m]}
`})
	require.NoError(t, err)
}

func TestVariableOfANumberOrTruthValue(t *testing.T) {
	t.Parallel()

	cluster, err := load(t, map[string]string{
		"talconfig.yaml": strings.Replace(twoNodes, "controlPlane: true",
			"controlPlane: ${IS_CP}\n    networkInterfaces: [{interface: eth0, mtu: $MTU}]", 1),
		"talenv.yaml": "IS_CP: true\nMTU: 9000\n",
	})
	require.NoError(t, err)
	require.Equal(t, inventory.ControlPlane, cluster.Nodes[0].Role)
}

func TestFactsOfANode(t *testing.T) {
	t.Parallel()

	cluster, err := load(t, map[string]string{"talconfig.yaml": `clusterName: demo
endpoint: https://[2001:db8::10]:6443
talosVersion: 1.13.9
kubernetesVersion: v1.36.3
clusterPodNets: [10.244.0.0/16, "2001:db8:1::/56"]
cniConfig: {name: custom, urls: ["https://example.com/cni.yaml"]}
controlPlane:
  talosImageURL: factory.talos.dev/metal-installer-secureboot/0123
  machineSpec: {secureboot: true}
  networkInterfaces:
    - deviceSelector: {hardwareAddr: "02-00-00-00-00-AA"}
      vip: {ip: "2001:db8::10"}
nodes:
  - hostname: cp1
    ipAddress: cp1.example.com
    controlPlane: true
    installDiskSelector: {size: ">= 100GB", type: ssd}
  - hostname: cp2
    ipAddress: 2001:db8::12
    controlPlane: true
    installDisk: /dev/sda
    talosImageURL: ghcr.io/siderolabs/installer
    networkInterfaces:
      - interface: wg0
        wireguard: {listenPort: 51820, peers: [{publicKey: x, persistentKeepaliveInterval: 25s}]}
      - interface: bond0
        bond: {deviceSelectors: [{permanentAddr: "02:00:00:00:00:0b"}, {hardwareAddr: "02:00:*"}]}
        vlans: [{vlanId: 5, vip: {ip: 192.0.2.10}}]
    filenameTmpl: "{{ .ClusterName }}_{{ .Role }}_{{ .Hostname }}_{{ .IPAddress }}.yaml"
  - hostname: w1
    ipAddress: 192.0.2.21
`})
	require.NoError(t, err)
	require.Equal(t, "v1.13.9", cluster.TalosVersion)
	require.Equal(t, "v1.36.3", cluster.KubernetesVersion)
	require.Equal(t, "custom", cluster.CNI)
	require.Len(t, cluster.PodSubnets, 2)
	require.True(t, cluster.HasVIP())

	cp1, cp2, w1 := cluster.Nodes[0], cluster.Nodes[1], cluster.Nodes[2]

	require.Equal(t, "cp1.example.com", cp1.Address)
	require.Equal(t, []string{"02:00:00:00:00:aa"}, cp1.MACs)
	require.Equal(t, "2001:db8::10", cp1.VIPs[0].String())
	require.Equal(t, "factory.talos.dev/metal-installer-secureboot/0123", cp1.ImageURL)
	require.True(t, cp1.SecureBoot)
	require.Contains(t, cp1.DiskSelector, ">= 100GB")
	require.Contains(t, cp1.DiskSelector, "type: ssd")
	require.Equal(t, 14, cp1.Line)
	require.Equal(t, 5, cp1.Column)

	require.Equal(t, []string{"02:00:00:00:00:0b"}, cp2.MACs)
	require.Equal(t, "192.0.2.10", cp2.VIPs[0].String())
	require.Equal(t, "ghcr.io/siderolabs/installer", cp2.ImageURL)
	require.Equal(t, "/dev/sda", cp2.InstallDisk)
	require.True(t, strings.HasSuffix(cp2.ConfigFile, "demo_controlplane_cp2_2001:db8::12.yaml"), cp2.ConfigFile)

	require.Empty(t, w1.MACs)
	require.Empty(t, w1.ImageURL)
	require.False(t, w1.SecureBoot)
}

func TestAFileNameThatNeverEndsIsRefused(t *testing.T) {
	t.Parallel()

	for _, pattern := range []string{
		"{{range 10000000000}}{{end}}",
		"{{if .Hostname}}{{range 10000000000}}x{{end}}{{end}}",
		"{{with .Role}}a{{else}}{{range 10000000000}}x{{end}}{{end}}",
		`{{define "a"}}{{template "a"}}{{template "a"}}{{end}}{{template "a"}}`,
		`{{define "a"}}x{{end}}`,
		strings.Repeat("x", 300),
	} {
		_, err := load(t, map[string]string{
			"talconfig.yaml": strings.Replace(twoNodes, "hostname: ", "filenameTmpl: '"+pattern+"'\n    hostname: ", 1),
		})
		require.ErrorContains(t, err, `"filenameTmpl" is no template`, pattern)
	}
}
