package files_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// interfaces is a control plane with these items of machine.network.interfaces.
func interfaces(items ...string) config {
	return config{machine: "network:\n\tinterfaces:\n\t\t- " + strings.Join(items, "\n\t\t- ")}
}

// documents is a control plane with documents only.
func documents(texts ...string) config { return config{documents: texts} }

func TestLinksThatAreNamedTwice(t *testing.T) {
	t.Parallel()

	judge(t, diagnosis.LinkNamedTwice, map[string]trial{
		"interfaces": {files: lab(interfaces("interface: eth0", "interface: eth0")), line: "- interface: eth0",
			cause: "eth0 is configured twice, first in clusterconfig/lab-n1.yaml:6:9", severity: diagnosis.Warning},
		"VLANs": {files: lab(interfaces(
			"interface: eth0\n\t\t\tvlans:\n\t\t\t\t- vlanId: 7\n\t\t\t\t- vlanId: 7")), cause: "eth0.7"},
		"VLAN documents": {files: lab(documents("kind: VLANConfig\nname: a\nvlanID: 7\nparent: eth0",
			"kind: VLANConfig\nname: b\nvlanID: 7\nparent: eth0")), line: "vlanID: 7",
			cause: "VLAN 7 on eth0 is configured twice, as a and as b"},
		"service VLAN": {files: lab(documents("kind: VLANConfig\nname: a\nvlanID: 7\nparent: eth0",
			"kind: VLANConfig\nname: b\nvlanID: 7\nvlanMode: 802.1ad\nparent: eth0"))},
		"different": {files: lab(interfaces("interface: eth0", "interface: eth1"),
			documents("kind: VLANConfig\nname: a\nvlanID: 7\nparent: eth0",
				"kind: VLANConfig\nname: b\nvlanID: 8\nparent: eth0"))},
		"link and its DHCP": {files: lab(documents("kind: LinkConfig\nname: eth0", "kind: DHCPv4Config\nname: eth0"))},
	})

	judge(t, diagnosis.LinkNameAndSelector, map[string]trial{
		"both": {files: lab(interfaces("interface: eth0\n\t\t\tdeviceSelector:\n\t\t\t\thardwareAddr: 02:00:00:00:00:11")),
			line: "deviceSelector:", cause: "eth0 has a name and a deviceSelector"},
		"neither": {files: lab(interfaces("dhcp: true")), line: "- dhcp: true", cause: "nothing says which link"},
		"second":  {files: lab(interfaces("interface: eth0", "mtu: 1500")), cause: "nothing says"},
		"one":     {files: lab(interfaces("interface: eth0", "deviceSelector:\n\t\t\t\thardwareAddr: 02:00:00:00:00:11"))},
	})

	judge(t, diagnosis.LinkIgnored, map[string]trial{
		"address": {files: lab(interfaces("interface: eth0\n\t\t\tignore: true\n\t\t\taddresses: [192.0.2.11/24]")),
			line: "ignore: true", cause: "eth0 is ignored"},
		"DHCP": {files: lab(interfaces("interface: eth0\n\t\t\tignore: true\n\t\t\tdhcp: true")), cause: "eth0"},
		"VIP": {files: lab(interfaces("interface: eth0\n\t\t\tignore: true\n\t\t\tvip:\n\t\t\t\tip: 192.0.2.10")),
			cause: "eth0"},
		"nothing": {files: lab(interfaces("interface: eth0\n\t\t\tignore: true", "interface: eth1\n\t\t\tdhcp: true"))},
	})
}

func TestLinksThatAreBuiltOnOthers(t *testing.T) {
	t.Parallel()

	const (
		vlan = "kind: VLANConfig\nname: storage\nvlanID: 7\nparent: bond0"
		bond = "kind: BondConfig\nname: bond0\nbondMode: active-backup\nlinks: [eth0, eth1]"
	)

	judge(t, diagnosis.LinkParentMissing, map[string]trial{
		"VLAN": {files: lab(documents(vlan)), line: "parent: bond0",
			cause: "storage runs on bond0, which nothing makes", severity: diagnosis.Warning},
		"bond": {files: lab(documents("kind: BondConfig\nname: bond0\nbondMode: active-backup\nlinks:\n\t- " +
			"net0\n\t- eth1")), line: "- net0", cause: "net0"},
		"old bridge": {files: lab(interfaces("interface: br0\n\t\t\tbridge:\n\t\t\t\tinterfaces:\n\t\t\t\t\t- bond0")),
			line: "- bond0", cause: "br0 has the member bond0"},
		"declared": {files: lab(documents(vlan, bond),
			interfaces("interface: br0\n\t\t\tbridge:\n\t\t\t\tinterfaces: [bond0]",
				"interface: bond0\n\t\t\tbond:\n\t\t\t\tinterfaces: [eth0]"))},
		"alias": {files: lab(documents("kind: LinkAliasConfig\nname: net%d\nselector:\n\tmatch: link.driver == "+
			"\"e1000\"", "kind: VLANConfig\nname: storage\nvlanID: 7\nparent: net0"))},
		"physical link": {files: lab(documents("kind: VLANConfig\nname: storage\nvlanID: 7\nparent: enp0s3"))},
		"old VLAN":      {files: lab(documents("kind: VLANConfig\nname: storage\nvlanID: 7\nparent: bond0", bond))},
	})

	judge(t, diagnosis.MTUAboveParent, map[string]trial{
		"old": {files: lab(interfaces(
			"interface: eth0\n\t\t\tvlans:\n\t\t\t\t- vlanId: 7\n\t\t\t\t\tmtu: 9000")), line: "mtu: 9000",
			cause: "the MTU of eth0.7 is 9000, and its parent's is 1500", severity: diagnosis.Warning},
		"selected parent": {files: lab(interfaces(
			"deviceSelector:\n\t\t\t\thardwareAddr: 02:00:00:00:00:11\n\t\t\tmtu: 4000\n\t\t\tvlans:\n\t\t\t\t- vlanId: " +
				"7\n\t\t\t\t\tmtu: 9000")), cause: "its parent's is 4000"},
		"document": {files: lab(documents("kind: VLANConfig\nname: storage\nvlanID: 7\nparent: eth0\nmtu: 9000",
			"kind: LinkConfig\nname: eth0\nmtu: 8000")), line: "mtu: 9000", cause: "its parent's is 8000",
			severity: diagnosis.Failure},
		"the same": {files: lab(documents("kind: VLANConfig\nname: storage\nvlanID: 7\nparent: eth0\nmtu: 9000",
			"kind: LinkConfig\nname: eth0\nmtu: 9000"),
			interfaces("interface: eth0\n\t\t\tmtu: 9000\n\t\t\tvlans:\n\t\t\t\t- vlanId: 7\n\t\t\t\t\tmtu: 1500"))},
		"parent elsewhere": {files: lab(config{machine: interfaces("interface: eth0\n\t\t\tmtu: 9000").machine,
			documents: []string{"kind: VLANConfig\nname: storage\nvlanID: 7\nparent: eth0\nmtu: 9000"}})},
	})

	judge(t, diagnosis.MemberConfigured, map[string]trial{
		"old": {files: lab(interfaces("interface: bond0\n\t\t\tbond:\n\t\t\t\tinterfaces: [eth0]",
			"interface: eth0\n\t\t\tdhcp: true")), line: "- interface: eth0", cause: "eth0 is a member of bond0",
			severity: diagnosis.Warning},
		"document": {files: lab(documents(bond, "kind: LinkConfig\nname: eth1\naddresses:\n\t- address: 192.0.2.11/24")),
			line: "name: eth1", cause: "eth1"},
		"VIP": {files: lab(documents(bond, "kind: Layer2VIPConfig\nname: 192.0.2.10\nlink: eth0")), cause: "eth0"},
		"bond's": {files: lab(documents(bond+"\naddresses:\n\t- address: 192.0.2.11/24",
			"kind: LinkConfig\nname: eth0\nmtu: 9000"))},
		"VRF's": {files: lab(documents("kind: VRFConfig\nname: vrf0\nlinks: [eth0]\ntable: 100",
			"kind: LinkConfig\nname: eth0\naddresses:\n\t- address: 192.0.2.11/24"))},
	})

	judge(t, diagnosis.MemberShared, map[string]trial{
		"documents": {files: lab(documents(bond, "kind: BridgeConfig\nname: br0\nlinks:\n\t- eth1")), line: "- eth1",
			cause: "eth1 is a member of bond0 and of br0", severity: diagnosis.Warning},
		"old": {files: lab(interfaces("interface: bond0\n\t\t\tbond:\n\t\t\t\tinterfaces: [eth0]",
			"interface: bond1\n\t\t\tbond:\n\t\t\t\tinterfaces: [eth0]")), cause: "bond1", severity: diagnosis.Failure},
		"one bond": {files: lab(config{machine: interfaces(
			"interface: bond0\n\t\t\tbond:\n\t\t\t\tinterfaces: [eth0]").machine, documents: []string{bond}})},
		"both": {files: lab(config{machine: interfaces(
			"interface: bond1\n\t\t\tbond:\n\t\t\t\tinterfaces: [eth0]").machine, documents: []string{bond}}), cause: "eth0"},
		"apart": {files: lab(documents(bond, "kind: BridgeConfig\nname: br0\nlinks: [eth2]"))},
	})

	judge(t, diagnosis.VLANNumber, map[string]trial{
		"zero": {files: lab(interfaces("interface: eth0\n\t\t\tvlans:\n\t\t\t\t- vlanId: 0")), line: "- vlanId: 0",
			cause: "0 is out of range", severity: diagnosis.Warning},
		"too high": {files: lab(interfaces("interface: eth0\n\t\t\tvlans:\n\t\t\t\t- vlanId: 4095")), cause: "4095"},
		"document": {files: lab(documents("kind: VLANConfig\nname: storage\nvlanID: 5000\nparent: eth0")),
			line: "vlanID: 5000", cause: "5000 of storage", severity: diagnosis.Failure},
		"in range": {files: lab(interfaces("interface: eth0\n\t\t\tvlans:\n\t\t\t\t- vlanId: 4094"),
			documents("kind: VLANConfig\nname: storage\nvlanID: 1\nparent: eth0"))},
	})
}

func TestLinkSelectors(t *testing.T) {
	t.Parallel()

	selecting := func(field string) config { return interfaces("deviceSelector:\n\t\t\t\t" + field) }
	alias := func(match string) config {
		return documents("kind: LinkAliasConfig\nname: net0\nselector:\n\tmatch: " + match)
	}
	never := func(name, mac string) string {
		return "kind: LinkAliasConfig\nname: " + name + "\nselector:\n\tmatch: mac(link.permanent_addr) == \"" + mac + "\""
	}
	address := func(kind, name, fields string) string {
		return "kind: " + kind + "\nname: " + name + "\n" + fields + "\naddresses:\n\t- address: 192.0.2.11/24"
	}

	judge(t, diagnosis.LinkSelectorWide, map[string]trial{
		"driver": {files: lab(selecting("driver: virtio_net")), line: "- deviceSelector:",
			cause: "(driver virtio_net) leaves open"},
		"physical": {files: lab(selecting("physical: true")), cause: "physical true"},
		"any MAC":  {files: lab(selecting("hardwareAddr: '*'")), cause: "hardwareAddr *"},
		"alias":    {files: lab(alias("'true'")), line: "match: 'true'", cause: "the selector of net0 (true)"},
		"bus":      {files: lab(selecting("busPath: '0*'")), cause: "(busPath 0*) leaves open"},
		"physical, by DHCP with a VIP": {files: lab(selecting("physical: true\n\t\t\tdhcp: true\n\t\t\tvip:\n" +
			"\t\t\t\tip: 192.0.2.10")), cause: "physical true"},
		"physical, with an address on a VLAN": {files: lab(selecting("physical: true\n\t\t\tdhcp: true\n\t\t\tvlans:\n" +
			"\t\t\t\t- vlanId: 5\n\t\t\t\t\taddresses: [192.0.2.11/24]")), cause: "physical true"},
		"all by DHCP": {files: lab(selecting("physical: true\n\t\t\tdhcp: true"),
			selecting("driver: igc\n\t\t\tdhcp: true\n\t\t\tmtu: 9000"))},
		"MAC": {files: lab(selecting("hardwareAddr: '02:00:00:*'"), selecting("busPath: '0000:01*'"),
			selecting("pciID: '8086:*'"), alias("mac(link.permanent_addr) == \"02:00:00:00:00:11\""))},
		"alias of any Ethernet link": {files: lab(alias("link.type == 1")), cause: "(link.type == 1) leaves open"},
		"alias by driver":            {files: lab(alias("glob(\"mlx*\", link.driver)")), cause: "leaves open"},
		"alias by bus":               {files: lab(alias("glob(\"0*\", link.bus_path)")), cause: "leaves open"},
		"alias by driver and bus": {files: lab(alias("glob(\"0*\", link.bus_path) && link.driver == 'ixgbe'")),
			cause: "leaves open"},
		"alias of one port": {files: lab(alias("link.bus_path == '0000:03:00.1'"),
			alias("link.driver == 'ixgbe' && glob(\"*:01\", mac(link.hardware_addr))"))},
		"numbered aliases": {files: lab(documents("kind: LinkAliasConfig\nname: net%d\nselector:\n\tmatch: 'true'"))},
	})

	judge(t, diagnosis.LinkSelectorNever, map[string]trial{
		"capitals": {files: lab(selecting("hardwareAddr: 02:00:00:00:AB:11")), line: "hardwareAddr: 02:00:00:00:AB:11",
			cause: "compared in lower case", severity: diagnosis.Warning},
		"only link": {files: lab(selecting("hardwareAddr: 02:00:00:00:AB:11\n\t\t\taddresses: [192.0.2.11/24]")),
			cause: "compared in lower case", severity: diagnosis.Failure},
		"hyphens":     {files: lab(selecting("permanentAddr: 02-00-00-00-00-11")), cause: "hexadecimal digits and colons"},
		"too short":   {files: lab(selecting("hardwareAddr: '02:00:00:00:00'")), cause: "six parts"},
		"bare digits": {files: lab(selecting("hardwareAddr: '020000000001'")), cause: "six parts"},
		"alias": {files: lab(alias("mac(link.permanent_addr) == \"02:00:00:00:AB:11\"")), cause: "lower case",
			severity: diagnosis.Warning},
		"only alias": {files: lab(documents(never("net0", "02:00:00:00:AB:11"), address("LinkConfig", "net0", ""))),
			cause: "lower case", severity: diagnosis.Failure},
		"only alias asks by DHCP": {files: lab(documents(never("net0", "02:00:00:00:AB:11"),
			"kind: DHCPv4Config\nname: net0")), cause: "lower case", severity: diagnosis.Failure},
		"all of two": {files: lab(documents(never("net0", "02:00:00:00:AB:11"), never("net1", "02:00:00:00:AB:12"),
			address("LinkConfig", "net0", ""), address("LinkConfig", "net1", ""))), cause: "lower case",
			severity: diagnosis.Failure},
		"one of two": {files: lab(documents(never("net0", "02:00:00:00:AB:11"), address("LinkConfig", "net0", ""),
			address("LinkConfig", "eth1", ""))), cause: "lower case", severity: diagnosis.Warning},
		"a bond's members": {files: lab(documents(never("net0", "02:00:00:00:AB:11"), never("net1", "02:00:00:00:AB:12"),
			address("BondConfig", "bond0", "links: [net0, net1]\nbondMode: active-backup"))), cause: "lower case",
			severity: diagnosis.Failure},
		"one of a bond's members": {files: lab(documents(never("net0", "02:00:00:00:AB:11"),
			address("BondConfig", "bond0", "links: [net0, eth1]\nbondMode: active-backup"))), cause: "lower case",
			severity: diagnosis.Warning},
		"a VLAN's parent": {files: lab(documents(never("net0", "02:00:00:00:AB:11"),
			address("VLANConfig", "storage", "vlanID: 7\nparent: net0"))), cause: "lower case", severity: diagnosis.Failure},
		"an old bond's members": {files: lab(interfaces("interface: bond0\n\t\t\taddresses: [192.0.2.11/24]\n\t\t\tbond:" +
			"\n\t\t\t\tdeviceSelectors:\n\t\t\t\t\t- hardwareAddr: 02:00:00:00:AB:11")), cause: "lower case",
			severity: diagnosis.Failure},
		"right": {files: lab(selecting("hardwareAddr: '02:00:00:00:ab:11'"), selecting("hardwareAddr: '*:ab:11'"),
			alias("glob(\"02:*\", mac(link.permanent_addr))"))},
	})
}

// lived judges a node that answered.
func lived(t *testing.T, made config, facts check.Facts, id diagnosis.ID) []diagnosis.Finding {
	t.Helper()

	loaded, err := machineconfig.FromBytes("lab-n1.yaml", []byte(made.text()))
	require.NoError(t, err)

	node := &inventory.Node{Name: "n1", Hostname: "n1", Role: inventory.ControlPlane, Address: "192.0.2.11"}
	cluster := &inventory.Cluster{Name: "lab", Nodes: []*inventory.Node{node}}

	tried.add(id)

	var found []diagnosis.Finding

	for _, finding := range table.Node(t.Context(),
		&check.Node{Node: node, Cluster: cluster, Config: loaded, Facts: facts}) {
		if finding.ID == id && finding.Severity != diagnosis.OK {
			require.NotEmpty(t, finding.Next)

			found = append(found, finding)
		}
	}

	return found
}
