package files_test

import (
	"cmp"
	"context"
	"net"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// liveLink is a physical link as a node shows it.
func liveLink(t *testing.T, name, mac, driver, busPath string) talos.Link {
	t.Helper()

	parsed, err := net.ParseMAC(mac)
	require.NoError(t, err)

	status := network.NewLinkStatus(network.NamespaceName, name)
	spec := status.TypedSpec()
	spec.Type, spec.Driver, spec.BusPath = nethelpers.LinkEther, driver, busPath
	spec.HardwareAddr = nethelpers.HardwareAddr(parsed)
	spec.PermanentAddr = spec.HardwareAddr

	return talos.Link{Name: name, MAC: mac, Physical: true, Status: status}
}

// What picks a link is judged by the node's own links, as Talos does it: in machine.network each link that matches gets
// the settings, and an alias that matches none or several is given to none.
func TestLinkSelectorsOnTheNode(t *testing.T) {
	t.Parallel()

	alias := func(name, match string) string {
		return "kind: LinkAliasConfig\nname: " + name + "\nselector:\n\tmatch: '" + match + "'"
	}
	link := func(name string) string {
		return "kind: LinkConfig\nname: " + name + "\naddresses:\n\t- address: 192.0.2.11/24"
	}
	bond := func(members string) string {
		return "kind: BondConfig\nname: bond0\nlinks: [" + members + "]\nbondMode: active-backup"
	}
	selecting := func(fields string) config { return interfaces("deviceSelector:\n\t\t\t\t" + fields) }
	beside := func(fields string) config {
		return interfaces("interface: eth0\n\t\t\tdhcp: true\n\t\t- deviceSelector:\n\t\t\t\t" + fields)
	}
	members := func(fields string) config {
		return interfaces("interface: bond0\n\t\t\tbond:\n\t\t\t\tdeviceSelectors:\n\t\t\t\t\t- " + fields)
	}

	const (
		vip    = "\t\t\tvip:\n\t\t\t\tip: 192.0.2.10"
		first  = `mac(link.permanent_addr) == "02:00:00:00:00:11"`
		second = `glob("*:01:11", mac(link.permanent_addr))`
		none   = `glob("06:*", mac(link.hardware_addr))`
	)

	for name, test := range map[string]struct {
		config config
		// cause is empty where nothing is to be found.
		cause    string
		severity diagnosis.Severity // default: a failure
	}{
		"old: a pattern that two have": {config: selecting("hardwareAddr: '02:00:00:00:*'"), cause: "the selector " +
			"(hardwareAddr 02:00:00:00:*) matches 2 links (eth0 02:00:00:00:00:11, eth1 02:00:00:00:01:11)"},
		"old: a pattern that none has": {config: selecting("hardwareAddr: '06:*'"), cause: "matches no link; the node has"},
		"old: a pattern that one has":  {config: selecting("hardwareAddr: '*:01:11'")},
		"old: a driver":                {config: selecting("driver: ixgbe"), cause: "matches 2 links"},
		"old: another driver":          {config: selecting("driver: virtio_net"), cause: "matches no link"},
		"old: any by DHCP":             {config: selecting("physical: true\n\t\t\tdhcp: true")},
		"old: any by DHCP with a VIP":  {config: selecting("physical: true\n\t\t\tdhcp: true\n" + vip), cause: "matches 2 links"},
		"old: a cable without the other end": {config: beside("driver: thunderbolt-net\n\t\t\taddresses: [169.254.255.11/32]"),
			cause: "matches no link", severity: diagnosis.Warning},
		"old: a VIP on a link that is not there":    {config: beside("driver: e1000\n" + vip), cause: "matches no link"},
		"old: a DHCP link of two that is not there": {config: beside("driver: e1000\n\t\t\tdhcp: true"), cause: "matches no link"},
		"an alias of a cable without the other end": {config: documents(alias("net0", first), alias("cable", none),
			"kind: DHCPv4Config\nname: net0", "kind: LinkConfig\nname: cable\naddresses:\n\t- address: 169.254.255.11/32"),
			cause: "reaches no link", severity: diagnosis.Warning},
		"old: physical":                 {config: selecting("physical: true"), cause: "matches 2 links"},
		"old: a bus":                    {config: selecting("busPath: '0000:03:00.1'")},
		"old: any bus":                  {config: selecting("busPath: '0*'"), cause: "matches 2 links"},
		"old: a MAC of another machine": {config: selecting("hardwareAddr: '06:00:00:00:00:11'")}, // its identity is judged
		"old: a bond of both":           {config: members("driver: ixgbe")},
		"old: a bond of none":           {config: members("driver: e1000"), cause: "no link matches the selectors of bond0"},

		"an alias of one": {config: documents(alias("net0", first), link("net0"))},
		"an alias of none": {config: documents(alias("net0", none), link("net0")), cause: "the selector of net0 (" + none +
			") matches no link: what is set for net0 reaches no link; the node has eth0"},
		"an alias of two": {config: documents(alias("net0", "link.type == 1"), link("net0")), cause: "the selector of net0 " +
			"(link.type == 1) matches 2 links (eth0 02:00:00:00:00:11, eth1 02:00:00:00:01:11), " +
			"so Talos gives the name to none"},
		"an alias by driver": {config: documents(alias("net0", `glob("ixgbe", link.driver)`), link("net0")),
			cause: "matches 2 links"},
		"an alias by bus": {config: documents(alias("net0", `glob("0*", link.bus_path)`), link("net0")),
			cause: "matches 2 links"},
		"an alias that asks by DHCP": {config: documents(alias("net0", none), "kind: DHCPv4Config\nname: net0"),
			cause: "reaches no link"},
		"an alias that nothing uses": {config: documents(alias("net0", none), link("eth0"))},
		"an alias of a link that has one": {config: documents(alias("net0", first), alias("net1", first), link("net0"),
			link("net1")), cause: "matches eth0, which is called net0 already"},
		"a VLAN's parent": {config: documents(alias("net0", none),
			"kind: VLANConfig\nname: storage\nvlanID: 7\nparent: net0"), cause: "storage has no link to run on"},
		"numbered aliases": {config: documents(alias("net%d", "link.type == 1"), link("net0"), link("net1"))},
		"a number too many": {config: documents(alias("net%d", "link.type == 1"), link("net2")),
			cause: "the selector of net%d (link.type == 1) matches 2 links"},
		"a bond's members": {config: documents(alias("bond0-m0", first), alias("bond0-m1", second),
			bond("bond0-m0, bond0-m1"))},
		"a bond by a pattern": {config: documents(alias("bond0-m0", `glob("ix*", link.driver)`), bond("bond0-m0")),
			cause: "bond0 lacks its member bond0-m0"},
		"one member of a bond": {config: documents(alias("bond0-m0", first), alias("bond0-m1", none),
			bond("bond0-m0, bond0-m1")), cause: "lacks its member bond0-m1", severity: diagnosis.Warning},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			facts := check.Facts{Links: []talos.Link{
				liveLink(t, "eth0", "02:00:00:00:00:11", "ixgbe", "0000:03:00.0"),
				liveLink(t, "eth1", "02:00:00:00:01:11", "ixgbe", "0000:03:00.1"),
				{Name: "bond0", MAC: "02:00:00:00:00:11"},
			}}

			found := lived(t, test.config, facts, diagnosis.LinkSelectorUnmatched)
			if test.cause == "" {
				require.Empty(t, found)

				return
			}

			require.NotEmpty(t, found)
			require.Contains(t, found[0].Cause, test.cause)
			require.Equal(t, cmp.Or(test.severity, diagnosis.Failure), found[0].Severity)
		})
	}

	t.Run("a node that has the alias", func(t *testing.T) {
		t.Parallel()

		one := liveLink(t, "eth0", "02:00:00:00:00:11", "ixgbe", "")
		one.Aliases = []string{"net0"}

		require.Empty(t, lived(t, documents(alias("net0", none), link("net0")), check.Facts{Links: []talos.Link{one}},
			diagnosis.LinkSelectorUnmatched))
	})
}

// A link that comes with the machine at the other end of the cable is not what a node is reached over.
func TestACableWithoutTheOtherEnd(t *testing.T) {
	t.Parallel()

	facts := check.Facts{Links: []talos.Link{liveLink(t, "eth0", "02:00:00:00:00:11", "ixgbe", "0000:03:00.0")}}
	lacking := func(first, cable string) config {
		return interfaces("interface: eth0\n\t\t\t" + first + "\n\t\t- interface: thunderbolt0\n\t\t\t" + cable)
	}

	for name, test := range map[string]struct {
		config   config
		severity diagnosis.Severity
	}{
		"the address is static elsewhere": {lacking("addresses: [192.0.2.11/24]", "dhcp: true"), diagnosis.Warning},
		"the address comes by DHCP":       {lacking("dhcp: true", "addresses: [169.254.255.11/32]"), diagnosis.Warning},
		"the address is its own":          {lacking("dhcp: true", "addresses: [192.0.2.11/24]"), diagnosis.Failure},
		"both ask for DHCP":               {lacking("dhcp: true", "dhcp: true"), diagnosis.Failure},
		"it has the way out": {lacking("dhcp: true", "addresses: [198.51.100.11/24]\n\t\t\troutes:\n\t\t\t\t- "+
			"gateway: 198.51.100.1"), diagnosis.Failure},
		"a VLAN on it has the address": {lacking("dhcp: true", "vlans:\n\t\t\t\t- vlanId: 5\n"+
			"\t\t\t\t\taddresses: [192.0.2.11/24]"), diagnosis.Failure},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			found := lived(t, test.config, facts, diagnosis.LinkAbsent)
			require.Len(t, found, 1)
			require.Contains(t, found[0].Cause, "no link thunderbolt0")
			require.Equal(t, test.severity, found[0].Severity)
		})
	}
}

// Machines that share an entry have no MAC address in common.
func TestWhatToSelectALinkBy(t *testing.T) {
	t.Parallel()

	one := lab(interfaces("deviceSelector:\n\t\t\t\tdriver: ixgbe"))
	require.Contains(t, findingsOf(table.Run(context.Background(), one.read(t)), diagnosis.LinkSelectorWide)[0].Next,
		"its MAC address")

	three := one.replaced("talconfig.yaml", "    ipAddress: 192.0.2.11",
		"    ipAddress: 192.0.2.11,192.0.2.12,192.0.2.13\n    ignoreHostname: true")
	found := findingsOf(table.Run(context.Background(), three.read(t)), diagnosis.LinkSelectorWide)
	require.Len(t, found, 1)
	require.Contains(t, found[0].Next, "its busPath, if that is the same in all machines of the entry")
}
