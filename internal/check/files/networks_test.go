package files_test

import (
	"testing"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// inSubnets is a control plane with pod and service subnets.
func inSubnets(pods, services string, documents ...string) config {
	return config{cluster: "network:\n\tpodSubnets: [" + pods + "]\n\tserviceSubnets:\n\t\t- " + services,
		documents: documents}
}

func TestClusterSubnets(t *testing.T) {
	t.Parallel()

	judge(t, diagnosis.SubnetsOverlap, map[string]trial{
		"declared": {files: lab(inSubnets("10.42.0.0/15", "10.43.0.0/16")), line: "- 10.43.0.0/16",
			cause: "the pod subnet 10.42.0.0/15 overlaps the service subnet 10.43.0.0/16", severity: diagnosis.Warning},
		"with default": {files: lab(config{cluster: "network:\n\tpodSubnets:\n\t\t- 10.100.0.0/16"}),
			cause: "overlaps the service subnet 10.96.0.0/12", severity: diagnosis.Failure},
		"other CNI": {files: lab(config{cluster: "network:\n\tcni:\n\t\tname: none\n\tpodSubnets:\n\t\t- 10.100.0.0/16"}),
			cause: "overlaps the service subnet 10.96.0.0/12", severity: diagnosis.Warning},
		"IPv6":  {files: lab(inSubnets("'2001:db8:42::/56'", "2001:db8:42::/112")), cause: "2001:db8:42::/112"},
		"apart": {files: lab(inSubnets("10.42.0.0/16", "10.43.0.0/16"), config{})},
	})

	judge(t, diagnosis.ServiceSubnetSize, map[string]trial{
		"IPv4": {files: lab(inSubnets("172.16.0.0/16", "10.0.0.0/8")), line: "- 10.0.0.0/8", cause: "larger than /12",
			severity: diagnosis.Warning},
		"old": {files: lab(config{machine: "kubelet:\n\timage: registry.example.net/kubelet:v1.32.5",
			cluster: inSubnets("172.16.0.0/16", "10.0.0.0/8").cluster}), cause: "larger than /12", severity: diagnosis.Failure},
		"new": {files: lab(config{cluster: inSubnets("172.16.0.0/16", "10.0.0.0/8").cluster +
			"\napiServer:\n\timage: registry.example.net/kube-apiserver:v1.36.0"}), cause: "larger than /12",
			severity: diagnosis.Warning},
		"IPv6": {files: lab(inSubnets("'2001:db8:42::/56'", "2001:db8:96::/64")), line: "- 2001:db8:96::/64",
			cause: "larger than /108"},
		"fits": {files: lab(inSubnets("'2001:db8:42::/56'", "2001:db8:96::/108"), config{})},
	})

	judge(t, diagnosis.PodSubnetSize, map[string]trial{
		"three in two": {files: lab(inSubnets("10.42.0.0/23", "10.43.0.0/16"), inSubnets("10.42.0.0/23", "10.43.0.0/16"),
			inSubnets("10.42.0.0/23", "10.43.0.0/16")), cause: "has room for 2 nodes, at /24 each, and there are 3",
			severity: diagnosis.Failure},
		"other CNI": {files: lab(config{cluster: "network:\n\tcni:\n\t\tname: none\n\tpodSubnets: [10.42.0.0/24]"},
			config{role: "worker"}), cause: "room for 1 node", severity: diagnosis.Warning},
		"both families": {files: lab(config{cluster: "controllerManager:\n\textraArgs:\n\t\tnode-cidr-mask-size: " +
			"'120'\nnetwork:\n\tpodSubnets: [10.42.0.0/16, '2001:db8:42::/56']"})},
		"not given out": {files: lab(config{cluster: "controllerManager:\n\textraArgs:\n\t\tallocate-node-cidrs: " +
			"'false'\nnetwork:\n\tpodSubnets: ['2001:db8:42::/112']"})},
		"below a part": {files: lab(inSubnets("'2001:db8:42::/112'", "2001:db8:96::/112")),
			cause: "smaller than a node's part of it, /64", severity: diagnosis.Failure},
		"own mask": {files: lab(config{cluster: "controllerManager:\n\textraArgs:\n\t\tnode-cidr-mask-size: '16'"},
			config{}), cause: "room for 1 node"},
		"large enough": {files: lab(inSubnets("10.42.0.0/23", "10.43.0.0/16"), inSubnets("10.42.0.0/23", "10.43.0.0/16"))},
		"IPv6 mask set": {files: lab(config{cluster: "controllerManager:\n\textraArgs:\n\t\tnode-cidr-mask-size-ipv6: " +
			"'120'\nnetwork:\n\tpodSubnets: ['2001:db8:42::/112']\n\tserviceSubnets: ['2001:db8:96::/112']"})},
	})

	judge(t, diagnosis.ClusterSubnetsDiffer, map[string]trial{
		"pods": {files: lab(config{}, config{}, config{cluster: "network:\n\tpodSubnets: [10.42.0.0/16]"}),
			cause: "n3 has pod 10.42.0.0/16", severity: diagnosis.Failure},
		"as written": {files: lab(inSubnets("10.42.0.0/16", "10.43.0.0/16"), inSubnets("10.42.0.0/16", "10.43.0.1/16"))},
		"services": {files: lab(config{}, config{},
			config{role: "worker", cluster: "network:\n\tserviceSubnets: [10.43.0.0/16]"}), line: "network:",
			cause: "service 10.43.0.0/16", severity: diagnosis.Warning},
		"the same": {files: lab(config{}, inSubnets("10.244.0.0/16", "10.96.0.0/12"))},
	})

	judge(t, diagnosis.SubnetHasHostBits, map[string]trial{
		"IPv4": {files: lab(inSubnets("10.42.0.0/16", "10.43.0.1/16")), line: "- 10.43.0.1/16",
			cause: "an address in 10.43.0.0/16"},
		"IPv6":  {files: lab(inSubnets("'2001:db8:42::1/56'", "2001:db8:96::/112")), cause: "2001:db8:42::/56"},
		"exact": {files: lab(inSubnets("10.42.0.0/16", "10.43.0.0/16"))},
	})
}

func TestNodeNetworks(t *testing.T) {
	t.Parallel()

	old, document := onLink("addresses:", "\t- 10.200.0.11/8"), asDocument("addresses:\n\t- address: 10.200.0.11/9")

	judge(t, diagnosis.NodeNetworkOverlaps, map[string]trial{
		"old": {files: lab(old), line: "- 10.200.0.11/8",
			cause: "the network 10.0.0.0/8 of eth0 overlaps the pod subnet 10.244.0.0/16", severity: diagnosis.Warning},
		"document": {files: lab(document), line: "- address: 10.200.0.11/9", cause: "overlaps the pod subnet"},
		"IPv6": {files: lab(inSubnets("'2001:db8:0:42::/64'", "2001:db8:0:96::/112",
			"kind: LinkConfig\nname: eth0\naddresses:\n\t- address: 2001:db8::11/48")), cause: "2001:db8:0:42::/64"},
		"apart": {files: lab(onLink("addresses: [192.0.2.11/24]"), asDocument("addresses:\n\t- address: 10.1.0.12/16"))},
	})

	etcd := func(field, filters string, documents ...string) config {
		return config{cluster: "etcd:\n\t" + field + ": [" + filters + "]", documents: documents}
	}
	six := "kind: LinkConfig\nname: eth0\naddresses:\n\t- address: 2001:db8::11/64"

	judge(t, diagnosis.EtcdSubnetsSelectNone, map[string]trial{
		"advertised": {files: lab(etcd("advertisedSubnets", "198.51.100.0/24", addressed)),
			line: "advertisedSubnets: [198.51.100.0/24]", cause: "leaves out 192.0.2.11, 192.0.2.12",
			severity: diagnosis.Failure},
		"Tailscale": {files: lab(etcd("advertisedSubnets", "100.64.0.0/10", addressed)), cause: "leaves out",
			severity: diagnosis.Warning},
		"listen": {files: lab(etcd("listenSubnets", "192.0.2.0/24, '!192.0.2.8/29'", addressed)), cause: "listenSubnets"},
		"IPv6": {files: lab(etcd("advertisedSubnets", "'2001:db8:1::/64'", six)), cause: "2001:db8::11",
			severity: diagnosis.Warning},
		"selected": {files: lab(etcd("advertisedSubnets", "192.0.2.0/24", addressed),
			etcd("advertisedSubnets", "'2001:db8::/64'", six))},
		"excluded": {files: lab(etcd("advertisedSubnets", "'!198.51.100.0/24'", addressed))},
		"DHCP":     {files: lab(etcd("advertisedSubnets", "198.51.100.0/24"))},
	})

	validSubnets := func(documents ...string) files {
		return lab(config{machine: "kubelet:\n\tnodeIP:\n\t\tvalidSubnets: [198.51.100.0/24]", documents: documents})
	}

	judge(t, diagnosis.NodeIPExcluded, map[string]trial{
		"static":             {files: validSubnets(addressed), cause: "192.0.2.12, all that the files give"},
		"perhaps translated": {files: validSubnets(), cause: "by which the node is declared", severity: diagnosis.Warning},
		"in it":              {files: validSubnets(addressed, "kind: LinkConfig\nname: eth1\naddresses:\n\t- address: 198.51.100.11/24")},
	})

	judge(t, diagnosis.SubnetFamilies, map[string]trial{
		"pods of both": {files: lab(inSubnets("10.42.0.0/16, '2001:db8:42::/56'", "10.43.0.0/16")), line: "network:",
			cause: "the service subnets are IPv4, the pod subnets IPv4 and IPv6", severity: diagnosis.Warning},
		"apart": {files: lab(inSubnets("'2001:db8:42::/56'", "10.43.0.0/16")), cause: "the pod subnets IPv6",
			severity: diagnosis.Failure},
		"apart, other CNI": {files: lab(config{cluster: "network:\n\tcni:\n\t\tname: none\n\tpodSubnets: " +
			"['2001:db8:42::/56']"}), cause: "the pod subnets IPv6", severity: diagnosis.Warning},
		"IPv6 of a router": {files: lab(config{cluster: "network:\n\tpodSubnets: [10.42.0.0/16, " +
			"'2001:db8:42::/56']\n\tserviceSubnets: [10.43.0.0/16, '2001:db8:96::/112']", documents: []string{addressed}})},
		"IPv6 nodes": {files: lab(config{documents: []string{six}}).replaced("talconfig.yaml", "192.0.2.11",
			"2001:db8::11"), cause: "all addresses of n1 are IPv6", severity: diagnosis.Failure},
		"IPv4 nodes": {files: lab(inSubnets("'2001:db8:42::/56'", "2001:db8:96::/112", addressed)),
			cause: "all addresses of n1 are IPv4"},
		"dual stack": {files: lab(config{cluster: "network:\n\tpodSubnets: [10.42.0.0/16, " +
			"'2001:db8:42::/56']\n\tserviceSubnets: [10.43.0.0/16, '2001:db8:96::/112']",
			documents: []string{addressed, "kind: LinkConfig\nname: eth1\naddresses:\n\t- address: 2001:db8::11/64"}})},
		"dual stack of DHCP": {files: lab(config{cluster: "network:\n\tpodSubnets: [10.42.0.0/16, " +
			"'2001:db8:42::/56']\n\tserviceSubnets: [10.43.0.0/16, '2001:db8:96::/112']"})},
	})
}
