package files_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// vipOn is a control plane with a VIP in the old style, besides other fields of its link.
func vipOn(vip string, fields ...string) config {
	return onLink(append(fields, "vip:", "\tip: '"+vip+"'")...)
}

// vipDocument is a control plane with a VIP as a document.
func vipDocument(vip, link string, documents ...string) config {
	return config{documents: append(documents, "kind: Layer2VIPConfig\nname: "+vip+"\nlink: "+link)}
}

const addressed = "kind: LinkConfig\nname: eth0\naddresses:\n\t- address: 192.0.2.12/24"

func TestVIPs(t *testing.T) {
	t.Parallel()

	judge(t, diagnosis.VIPsDiffer, map[string]trial{
		"old": {files: lab(vipOn("192.0.2.10", "dhcp: true"), vipOn("192.0.2.9", "dhcp: true")),
			line: "ip: '192.0.2.9'", cause: "192.0.2.9 is not the only one: clusterconfig/lab-n1.yaml"},
		"document": {files: lab(vipOn("192.0.2.10", "dhcp: true"), vipDocument("192.0.2.9", "eth0")),
			line: "name: 192.0.2.9", cause: "192.0.2.9"},
		"IPv6": {files: lab(vipDocument("2001:db8::10", "eth0"), vipDocument("2001:db8::9", "eth0")),
			cause: "2001:db8::9"},
		"one": {files: lab(vipOn("192.0.2.10", "dhcp: true"), vipDocument("192.0.2.10", "eth0"))},
		"one of a family": {files: lab(vipDocument("192.0.2.10", "eth0",
			"kind: Layer2VIPConfig\nname: 2001:db8::10\nlink: eth0"))},
	})

	judge(t, diagnosis.VIPOnBareLink, map[string]trial{
		"old": {files: lab(vipOn("192.0.2.10")), line: "ip: '192.0.2.10'",
			cause: "on eth0, which has neither DHCP nor a static address", severity: diagnosis.Warning},
		"document": {files: lab(vipDocument("192.0.2.10", "eth1", addressed)), line: "name: 192.0.2.10",
			cause: "on eth1"},
		"VLAN": {files: lab(onLink("addresses: [192.0.2.11/24]", "vlans:", "\t- vlanId: 7", "\t  vip:",
			"\t\t\tip: 198.51.100.10")), cause: "eth0.7"},
		"DHCP":            {files: lab(vipOn("192.0.2.10", "dhcp: true"))},
		"address":         {files: lab(vipDocument("192.0.2.10", "eth0", addressed))},
		"default DHCP":    {files: lab(vipDocument("192.0.2.10", "eth0"))},
		"DHCP document":   {files: lab(vipDocument("192.0.2.10", "eth1", addressed, "kind: DHCPv4Config\nname: eth1"))},
		"mixed documents": {files: lab(config{machine: vipOn("192.0.2.10").machine, documents: []string{addressed}})},
	})

	worker := vipOn("192.0.2.10", "dhcp: true")
	worker.role = "worker"
	workerDocument := vipDocument("192.0.2.10", "eth0")
	workerDocument.role = "worker"

	judge(t, diagnosis.VIPOnWorker, map[string]trial{
		"old": {files: lab(worker), line: "ip: '192.0.2.10'", cause: "the worker n1 declares the VIP",
			severity: diagnosis.Failure},
		"document":      {files: lab(workerDocument), line: "name: 192.0.2.10", cause: "n1", severity: diagnosis.Warning},
		"control plane": {files: lab(vipOn("192.0.2.10", "dhcp: true"), config{role: "worker"})},
	})

	judge(t, diagnosis.VIPNotShared, map[string]trial{
		"one of two": {files: lab(vipOn("192.0.2.10", "dhcp: true"), config{}),
			cause: "n2 declares no VIP, and others do: 192.0.2.10"},
		"one of both": {files: lab(config{}, vipDocument("2001:db8::10", "eth0")), cause: "n1"},
		"all": {files: lab(vipOn("192.0.2.10", "dhcp: true"), vipDocument("192.0.2.10", "eth0"),
			config{role: "worker"})},
		"none": {files: lab(config{}, config{})},
	})
}

func TestVIPsOutsideOfStaticSubnets(t *testing.T) {
	t.Parallel()

	const (
		asking = "kind: DHCPv4Config\nname: eth0"
		static = "kind: LinkConfig\nname: eth1\naddresses:\n\t- address: 198.51.100.11/24"
		vip    = "vip: {ip: 192.0.2.10}"
	)

	documents := func(link string, documents ...string) files {
		return lab(vipDocument("192.0.2.10", link, documents...))
	}
	items := func(first, second string) config {
		return interfaces("interface: eth0\n\t\t\t"+first, "interface: eth1\n\t\t\t"+second)
	}
	const fields = "addresses: [198.51.100.11/24]\n\t\t\t"

	judge(t, diagnosis.VIPOutsideSubnet, map[string]trial{
		"old": {files: lab(items("dhcp: true", fields+vip)), line: vip,
			cause: "the VIP 192.0.2.10 is outside the node's subnets (198.51.100.0/24)"},
		"documents": {files: documents("eth1", static, asking), line: "name: 192.0.2.10",
			cause: "the VIP 192.0.2.10 is outside the node's subnets (198.51.100.0/24)"},
		"one of both": {files: lab(config{machine: items("mtu: 1500", vip).machine, documents: []string{static, asking}}),
			cause: "outside the node's subnets"},
		"its link asks for DHCP": {files: documents("eth1", static, "kind: DHCPv4Config\nname: eth1")},
		"its link asks in the other style": {files: lab(config{machine: items("dhcp: true", fields+vip).machine,
			documents: []string{"kind: DHCPv4Config\nname: eth1"}})},
		"a link without an address": {files: documents("eth0", static, asking)},
		"an address of another kind": {files: documents("eth1", strings.Replace(static, "198.51.100.11/24",
			"'2001:db8::11/64'", 1), "kind: LinkConfig\nname: eth2\naddresses:\n\t- address: 198.51.100.11/24", asking)},
		"maybe the link that asks": {files: documents("net1", strings.Replace(static, "eth1", "net1", 1), asking,
			"kind: LinkAliasConfig\nname: net1\nselector:\n\tmatch: link.driver == 'virtio_net'")},
		"a selector that may pick it asks": {files: lab(config{
			machine:   interfaces("deviceSelector: {physical: true}\n\t\t\tdhcp: true").machine,
			documents: []string{static, "kind: Layer2VIPConfig\nname: 192.0.2.10\nlink: eth1"}})},
		"a route of its own": {files: documents("eth1", static+"\nroutes:\n\t- destination: 192.0.2.0/24", asking)},
		"a cloud's": {files: lab(items("dhcp: true", fields+"vip: {ip: 192.0.2.10, hcloud: {apiToken: a}}"),
			config{documents: []string{static, "kind: HCloudVIPConfig\nname: 192.0.2.10\nlink: eth1\napiToken: a"}})},
		"its own subnet": {files: documents("eth1", strings.Replace(static, "198.51.100", "192.0.2", 1), asking)},
	})
}

// One that can't be read is a mistake in the file, and nothing follows from it.
func TestAnEndpointThatCanNotBeRead(t *testing.T) {
	t.Parallel()

	result := table.Run(t.Context(),
		lab(config{}).replaced("talconfig.yaml", "https://192.0.2.10:6443", "'https://:6443'").read(t))

	require.Len(t, findingsOf(result, diagnosis.FileValue), 1)
	require.Empty(t, findingsOf(result, diagnosis.EndpointUnusable))
	require.NotContains(t, result.Passed, diagnosis.EndpointUnusable)
}

func TestEndpointWithoutAPort(t *testing.T) {
	t.Parallel()

	judge(t, diagnosis.EndpointWithoutPort, map[string]trial{
		"address": {files: lab(config{}).replaced("talconfig.yaml", "https://192.0.2.10:6443", "https://192.0.2.10"),
			at: "talconfig.yaml", line: "endpoint: https://192.0.2.10", cause: "has no port"},
		"IPv6": {files: lab(config{}).replaced("talconfig.yaml", "https://192.0.2.10:6443", "'https://[2001:db8::10]'"),
			cause: "has no port"},
		"name": {files: lab(config{}).replaced("talconfig.yaml", "https://192.0.2.10:6443", "https://api.example.net"),
			cause: "has no port"},
		"with port": {files: lab(config{})},
		"served there": {files: lab(config{cluster: "\tlocalAPIServerPort: 443"}).replaced("talconfig.yaml",
			"https://192.0.2.10:6443", "https://192.0.2.10")},
		"443": {files: lab(config{}).replaced("talconfig.yaml", ":6443", ":443")},
	})

	// A patch may say which port it is.
	unknown := lab(config{}).replaced("talconfig.yaml", "https://192.0.2.10:6443", "https://api.example.net").without(
		"clusterconfig/lab-n1.yaml")
	require.Empty(t, findingsOf(table.Run(t.Context(), unknown.read(t)), diagnosis.EndpointWithoutPort))

	for port, cluster := range map[string]string{"6443": "", "8443": "\tlocalAPIServerPort: 8443"} {
		made := lab(config{cluster: cluster}).replaced("talconfig.yaml", "https://192.0.2.10:6443",
			"'https://[2001:db8::10]'")
		found := findingsOf(table.Run(t.Context(), made.read(t)), diagnosis.EndpointWithoutPort)
		require.Len(t, found, 1)
		require.Equal(t, "write https://[2001:db8::10]:"+port, found[0].Next, "it is the port that control planes serve")
	}
}
