package files_test

import (
	"testing"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// routed is eth0 with an address and a default route, in the old style.
func routed(address, gateway string) config {
	return onLink("addresses: ["+address+"]", "routes:", "\t- network: 0.0.0.0/0", "\t  gateway: "+gateway)
}

// routedDocument is the same as a document.
func routedDocument(address, gateway string) config {
	return asDocument("addresses:\n\t- address: "+address, "routes:\n\t- gateway: "+gateway)
}

func TestGateways(t *testing.T) {
	t.Parallel()

	judge(t, diagnosis.GatewayOutside, map[string]trial{
		"interface": {files: lab(routed("192.0.2.11/26", "192.0.2.254")), line: "gateway: 192.0.2.254",
			cause: "192.0.2.254 is in no subnet of eth0 (192.0.2.0/26)", severity: diagnosis.Failure},
		"document": {files: lab(routedDocument("192.0.2.11/24", "198.51.100.1")), line: "- gateway: 198.51.100.1",
			cause: "(192.0.2.0/24)"},
		"IPv6": {files: lab(routedDocument("2001:db8:1::11/64", "2001:db8:2::1")),
			line: "- gateway: 2001:db8:2::1", cause: "2001:db8:1::/64", severity: diagnosis.Warning},
		"second node": {files: lab(routed("192.0.2.11/24", "192.0.2.1"), routed("192.0.2.12/24", "198.51.100.1")),
			cause: "198.51.100.1"},
		"VLAN": {files: lab(onLink("vlans:", "\t- vlanId: 7", "\t  addresses: [198.51.100.11/24]", "\t  routes:",
			"\t\t- network: 0.0.0.0/0", "\t\t  gateway: 192.0.2.1")), cause: "eth0.7"},
		"inside":            {files: lab(routed("192.0.2.11/24", "192.0.2.1"))},
		"link-local router": {files: lab(routedDocument("2001:db8:1::11/64", "fe80::1"))},
		"on the link": {files: lab(onLink("addresses: [203.0.113.5/32]", "routes:", "\t- network: 198.51.100.1/32",
			"\t- network: 0.0.0.0/0", "\t  gateway: 198.51.100.1"))},
		"other family": {files: lab(routedDocument("192.0.2.11/24", "2001:db8::1"))},
		"a way besides": {files: lab(onLink("addresses: [192.0.2.11/24]", "routes:", "\t- network: 0.0.0.0/0",
			"\t  gateway: 192.0.2.1", "\t- network: 203.0.113.0/24", "\t  gateway: 198.51.100.1")), cause: "198.51.100.1",
			severity: diagnosis.Warning},
		"another table": {files: lab(asDocument("addresses:\n\t- address: 192.0.2.11/24",
			"routes:\n\t- gateway: 198.51.100.1\n\t  table: 100")), cause: "198.51.100.1", severity: diagnosis.Warning},
		"DHCP elsewhere": {files: lab(interfaces(
			"interface: eth0\n\t\t\taddresses: [192.0.2.11/24]\n\t\t\troutes:\n\t\t\t\t- gateway: "+
				"198.51.100.1\n\t\t\t\t\tnetwork: 0.0.0.0/0", "interface: eth1\n\t\t\tdhcp: true")), cause: "198.51.100.1",
			severity: diagnosis.Warning},
		"both styles": {files: lab(config{machine: onLink("routes:", "\t- network: 0.0.0.0/0", "\t  gateway: 192.0.2.1",
			"addresses: [203.0.113.5/32]").machine,
			documents: []string{"kind: LinkConfig\nname: eth0\naddresses:\n\t- address: 192.0.2.11/24"}})},
		"DHCP document": {files: lab(config{machine: routed("203.0.113.5/32", "192.0.2.1").machine,
			documents: []string{"kind: DHCPv4Config\nname: eth0"}})},
	})

	judge(t, diagnosis.GatewayIsOwnAddress, map[string]trial{
		"interface": {files: lab(routed("192.0.2.11/24", "192.0.2.11")), line: "gateway: 192.0.2.11", cause: "own address",
			severity: diagnosis.Failure},
		"document": {files: lab(routedDocument("2001:db8::11/64", "2001:db8::11")), line: "- gateway: 2001:db8::11",
			cause: "own address", severity: diagnosis.Warning},
		"the router": {files: lab(routed("192.0.2.11/24", "192.0.2.1"), routedDocument("192.0.2.12/24", "192.0.2.1"))},
	})
}

func TestSubnetsInPlaceOfAddresses(t *testing.T) {
	t.Parallel()

	judge(t, diagnosis.NetworkAddress, map[string]trial{
		"network": {files: lab(onLink("addresses: [192.0.2.0/24]")),
			cause: "192.0.2.0 is the network address of its subnet 192.0.2.0/24", severity: diagnosis.Warning},
		"broadcast": {files: lab(asDocument("addresses:\n\t- address: 192.0.2.63/26")), line: "- address: 192.0.2.63/26",
			cause: "broadcast", severity: diagnosis.Failure},
		"a second": {files: lab(onLink("addresses: [192.0.2.11/24, 198.51.100.255/24]")), cause: "broadcast",
			severity: diagnosis.Warning},
		"IPv6":     {files: lab(asDocument("addresses:\n\t- address: 2001:db8:1::/64")), cause: "subnet router anycast"},
		"ordinary": {files: lab(onLink("addresses: [192.0.2.11/24, '2001:db8::11/64']"))},
		"two":      {files: lab(onLink("addresses: [192.0.2.10/31, 192.0.2.11/32, '2001:db8::/127', '2001:db8::2/128']"))},
	})

	judge(t, diagnosis.AddressWithoutPrefix, map[string]trial{
		"IPv4": {files: lab(onLink("addresses:", "\t- 192.0.2.11")), line: "- 192.0.2.11",
			cause: "192.0.2.11 of eth0 has no prefix length"},
		"IPv6": {files: lab(onLink("addresses: ['2001:db8::11']")), cause: "2001:db8::11"},
		"with one": {files: lab(onLink("addresses: [192.0.2.11/24]"),
			asDocument("addresses:\n\t- address: 192.0.2.12/24"))},
		"on loopback": {files: lab(config{machine: "network:\n\tinterfaces:\n\t\t- interface: lo\n\t\t\taddresses: " +
			"[169.254.116.108]"})},
		"dummy's": {files: lab(onLink("dummy: true", "addresses: [192.0.2.200]"))},
	})
}

func TestWhatIsNoAddress(t *testing.T) {
	t.Parallel()

	const talosconfig = "clusterconfig/talosconfig"

	judge(t, diagnosis.AddressMalformed, map[string]trial{
		"three numbers": {files: lab(onLink("addresses:", "\t- 192.0.2/24")), line: "- 192.0.2/24",
			cause: "four numbers"},
		"range":            {files: lab(onLink("addresses: [192.0.2.11-192.0.2.20]")), cause: "a range of addresses"},
		"number above 255": {files: lab(onLink("addresses: [192.0.2.300/24]")), cause: "from 0 to 255"},
		"prefix length": {files: lab(onLink("addresses: [192.0.2.11/33]")),
			cause: "the prefix length 33 is not a number from 0 to 32"},
		"VIP": {files: lab(onLink("vip:", "\tip: 192.0.2.10-12")), line: "ip: 192.0.2.10-12",
			cause: "a range"},
		"VIP with a prefix length": {files: lab(onLink("vip:", "\tip: 192.0.2.10/24")), line: "ip: 192.0.2.10/24",
			cause: "here it stands without a prefix length"},
		"certSANs": {files: lab(config{machine: "certSANs:\n\t- 192.0.2.11, 192.0.2.12"}),
			line: "- 192.0.2.11, 192.0.2.12", cause: "several values", severity: diagnosis.Warning},
		"apiServer's certSANs": {files: lab(config{cluster: "apiServer:\n\tcertSANs:\n\t\t- 192.0.2"}), line: "- 192.0.2",
			cause: "four numbers", severity: diagnosis.Warning},
		"time server": {files: lab(config{machine: "time:\n\tservers: [192.0.2.300]"}), cause: "192.0.2.300"},
		"unbracketed IPv6": {files: lab(config{}).talosconfig(t, "2001:db8::11:50000:50000:1:2:3:4:5"), at: talosconfig,
			cause: "with brackets if a port follows"},
		"talosconfig's range": {files: lab(config{}).talosconfig(t, "192.0.2.11-192.0.2.13"), at: talosconfig,
			line: "- '192.0.2.11-192.0.2.13'", cause: "a range", severity: diagnosis.Warning},
		"time document": {files: lab(config{documents: []string{"kind: TimeSyncConfig\nntp:\n\tservers:\n\t\t- " +
			"192.0.2.300"}}), line: "- 192.0.2.300", cause: "192.0.2.300", severity: diagnosis.Warning},
		"addresses and names": {files: lab(onLink("addresses: [192.0.2.11/24, '2001:db8::11/64']"),
			config{machine: "certSANs: [api.example.net, 192.0.2.10, '2001:db8::10', '*.example.net']\ntime:\n\tservers: " +
				"[time.example.net, /dev/ptp0]"})},
		"endpoints with a port": {files: lab(config{}).talosconfig(t, "192.0.2.11:50000", "[2001:db8::11]:50000",
			"cp1.example.net")},
	})
}

func TestAddressesThatAreThereTwice(t *testing.T) {
	t.Parallel()

	judge(t, diagnosis.AddressTwice, map[string]trial{
		"two nodes": {files: lab(onLink("addresses:", "\t- 192.0.2.11/24"),
			onLink("addresses:", "\t- 192.0.2.11/24")), line: "- 192.0.2.11/24",
			cause:    "192.0.2.11 is set on n1 on eth0 and on n2 on eth0 (clusterconfig/lab-n1.yaml:8",
			severity: diagnosis.Failure},
		"only ones": {files: lab(onLink("addresses: [198.51.100.11/24]"), onLink("addresses: [198.51.100.11/24]")),
			cause: "198.51.100.11", severity: diagnosis.Failure},
		"a bridge on each": {files: lab(interfaces("interface: eth0\n\t\t\taddresses: [192.0.2.11/24]",
			"interface: br0\n\t\t\taddresses: [198.51.100.1/24]"),
			interfaces("interface: eth0\n\t\t\taddresses: [192.0.2.12/24]",
				"interface: br0\n\t\t\taddresses: [198.51.100.1/24]")), cause: "198.51.100.1", severity: diagnosis.Warning},
		"one link": {files: lab(config{machine: onLink("addresses: [192.0.2.11/24]").machine,
			documents: []string{"kind: LinkConfig\nname: eth0\naddresses:\n\t- address: 192.0.2.11/24"}})},
		"both styles": {files: lab(onLink("addresses: [192.0.2.11/24]"),
			asDocument("addresses:\n\t- address: 192.0.2.11/25")), cause: "n2"},
		"two links": {files: lab(config{documents: []string{"kind: LinkConfig\nname: eth0\naddresses:\n\t- " +
			"address: 2001:db8::11/64", "kind: LinkConfig\nname: eth1\naddresses:\n\t- address: 2001:db8::11/64"}}),
			cause: "on eth1", severity: diagnosis.Warning},
		"anycast": {files: lab(config{machine: "network:\n\tinterfaces:\n\t\t- interface: dummy0\n\t\t\tdummy: " +
			"true\n\t\t\taddresses: [203.0.113.53/32]"},
			documents("kind: DummyLinkConfig\nname: dummy0\naddresses:\n\t- address: 203.0.113.53/32"))},
		"own ones": {files: lab(onLink("addresses: [192.0.2.11/24]"), onLink("addresses: [192.0.2.12/24]"))},
		"loopback of a kind": {files: lab(config{machine: "network:\n\tinterfaces:\n\t\t- interface: lo\n\t\t\taddresses: " +
			"[169.254.116.108/32]"}, config{machine: "network:\n\tinterfaces:\n\t\t- interface: lo\n\t\t\taddresses: " +
			"[169.254.116.108/32]"})},
	})

	judge(t, diagnosis.AddressNotOfOneNode, map[string]trial{
		"static": {files: lab(onLink("addresses: [127.0.0.11/8]")), cause: "loopback", severity: diagnosis.Failure},
		"a second": {files: lab(onLink("addresses: [192.0.2.11/24, 127.0.0.11/8]")), cause: "loopback",
			severity: diagnosis.Warning},
		"none": {files: lab(config{}).replaced("talconfig.yaml", "192.0.2.11", "0.0.0.0"), at: "talconfig.yaml",
			cause: "unspecified", severity: diagnosis.Failure},
		"multicast": {files: lab(asDocument("addresses:\n\t- address: ff02::1/64")), cause: "multicast"},
		"declared": {files: lab(config{}).replaced("talconfig.yaml", "192.0.2.11", "169.254.1.11"), at: "talconfig.yaml",
			line: "ipAddress: 169.254.1.11", cause: "link-local", severity: diagnosis.Warning},
		"one of two": {files: lab(config{}, config{}).replaced("talconfig.yaml", "192.0.2.12", "127.0.0.12"),
			at: "talconfig.yaml", cause: "loopback", severity: diagnosis.Warning},
		"emulated": {files: lab(onLink("addresses: [127.1.2.11/24]")).replaced("talconfig.yaml", "192.0.2.11",
			"127.1.2.11")},
		"ordinary": {files: lab(onLink("addresses: [192.0.2.11/24]"))},
		"link-local": {files: lab(config{machine: "network:\n\tinterfaces:\n\t\t- interface: lo\n\t\t\taddresses: " +
			"[127.0.0.53/32]"}, asDocument("addresses:\n\t- address: fe80::11/64"))},
	})
}

func TestServersThatAreInTheClusterThatNeedsThem(t *testing.T) {
	t.Parallel()

	old := func(server string) config { return config{machine: "network:\n\tnameservers:\n\t\t- " + server} }
	document := func(server string) config {
		return config{documents: []string{"kind: ResolverConfig\nnameservers:\n\t- address: " + server}}
	}

	judge(t, diagnosis.ResolverInCluster, map[string]trial{
		"a node": {files: lab(config{}, old("192.0.2.11")), line: "- 192.0.2.11",
			cause: "the node n1 of this cluster"},
		"a node, document": {files: lab(document("192.0.2.11")), line: "- address: 192.0.2.11",
			cause: "192.0.2.11 is the node n1"},
		"the cluster's DNS": {files: lab(document("10.96.0.10")), cause: "in the service subnet 10.96.0.0/12"},
		"a pod":             {files: lab(old("10.244.1.2")), cause: "in the pod subnet"},
		"IPv6 service": {files: lab(config{cluster: "network:\n\tserviceSubnets: ['2001:db8:96::/112']",
			documents: []string{"kind: ResolverConfig\nnameservers:\n\t- address: 2001:db8:96::a"}}),
			cause: "2001:db8:96::/112"},
		"outside": {files: lab(old("198.51.100.53"), document("2001:db8:53::53"))},
	})

	judge(t, diagnosis.TimeServerInCluster, map[string]trial{
		"a node": {files: lab(config{machine: "time:\n\tservers:\n\t\t- 192.0.2.11"}), line: "- 192.0.2.11",
			cause: "the node n1"},
		"a node's name": {files: lab(config{machine: "time:\n\tservers: [N1]"}), cause: "the node n1"},
		"a pod, document": {files: lab(config{documents: []string{"kind: TimeSyncConfig\nntp:\n\tservers:\n\t\t- " +
			"10.244.0.9"}}), line: "- 10.244.0.9", cause: "pod subnet"},
		"outside": {files: lab(config{machine: "time:\n\tservers: [time.example.net]"},
			config{documents: []string{"kind: TimeSyncConfig\nntp:\n\tservers: [198.51.100.123]"}})},
		"a device": {files: lab(config{machine: "time:\n\tservers: [/dev/ptp0]"})},
	})
}

func TestEndpointsOfTheTalosconfig(t *testing.T) {
	t.Parallel()

	const at = "clusterconfig/talosconfig"

	judge(t, diagnosis.TalosconfigNobody, map[string]trial{
		"address": {files: lab(config{}).talosconfig(t, "192.0.2.11", "192.0.2.99"), at: at, line: "- '192.0.2.99'",
			cause: "192.0.2.99 is no node"},
		"with a port": {files: lab(config{}).talosconfig(t, "192.0.2.99:50000"), at: at, cause: "192.0.2.99"},
		"IPv6":        {files: lab(config{}).talosconfig(t, "2001:db8::99"), at: at, cause: "2001:db8::99"},
		"nodes": {files: lab(config{}, asDocument("addresses:\n\t- address: 2001:db8::12/64")).talosconfig(t,
			"192.0.2.11:50000", "n2", "2001:db8::12")},
	})

	const static = "kind: LinkConfig\nname: eth0\naddresses:\n\t- address: 192.0.2.11/24"

	known := config{documents: []string{"kind: HostnameConfig\nhostname: n1", static}}

	judge(t, diagnosis.EndpointNotCertified, map[string]trial{
		"name": {files: lab(known).talosconfig(t, "talos.example.net"), at: at, line: "- 'talos.example.net'",
			cause: "talos.example.net", severity: diagnosis.Warning},
		"NAT": {files: lab(known).talosconfig(t, "203.0.113.7"), at: at, cause: "203.0.113.7"},
		"worker's": {files: lab(known, config{role: "worker", machine: "certSANs: [talos.example.net]"}).talosconfig(t,
			"talos.example.net"), at: at, cause: "talos.example.net"},
		"DHCP":    {files: lab(calledDocument("n1")).talosconfig(t, "203.0.113.7", "n1.example.net")},
		"no name": {files: lab(documents(static)).talosconfig(t, "n1.example.net")},
		"covered": {files: lab(config{machine: "certSANs: [203.0.113.7, '*.example.net']"}).talosconfig(t, "203.0.113.7",
			"talos.example.net", "192.0.2.11")},
	})
}
