package files_test

import (
	"testing"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

func TestDefaultRoutes(t *testing.T) {
	t.Parallel()

	// link is an item of machine.network.interfaces with a default route.
	link := func(name, address, route string) string {
		return "interface: " + name + "\n\t\t\taddresses: [" + address + "]\n\t\t\troutes:\n\t\t\t\t- {" + route + "}"
	}
	document := func(name, route string) string {
		return "kind: LinkConfig\nname: " + name + "\naddresses:\n\t- address: 192.0.2.11/24\nroutes:\n\t- {" + route + "}"
	}

	const first, second = "network: 0.0.0.0/0, gateway: 192.0.2.1", "gateway: 198.51.100.1"

	judge(t, diagnosis.DefaultRoutesEqual, map[string]trial{
		"old": {files: lab(interfaces(link("eth0", "192.0.2.11/24", first), link("eth1", "198.51.100.11/24", second))),
			line: "- {gateway: 198.51.100.1}", cause: "eth1 has a default route with metric 1024, as eth0 has"},
		"documents": {files: lab(documents(document("eth0", "gateway: 192.0.2.1"), document("eth1", "gateway: 192.0.2.2"))),
			cause: "eth1 has a default route"},
		"both styles": {files: lab(config{machine: interfaces(link("eth0", "192.0.2.11/24", first)).machine,
			documents: []string{document("eth1", "gateway: 192.0.2.2, metric: 1024")}}), cause: "metric 1024"},
		"another metric": {files: lab(interfaces(link("eth0", "192.0.2.11/24", first),
			link("eth1", "198.51.100.11/24", second+", metric: 2048")))},
		"one link": {files: lab(interfaces(link("eth0", "192.0.2.11/24", first+"}\n\t\t\t\t- {network: 10.0.0.0/8, gateway: "+
			"192.0.2.2")))},
		"another family": {files: lab(interfaces(link("eth0", "192.0.2.11/24", first),
			link("eth1", "2001:db8::11/64", "network: '::/0', gateway: '2001:db8::1'")))},
		"another table": {files: lab(documents(document("eth0", "gateway: 192.0.2.1"),
			document("eth1", "gateway: 192.0.2.2, table: '100'")))},
		"two nodes": {files: lab(interfaces(link("eth0", "192.0.2.11/24", first)),
			interfaces(link("eth1", "198.51.100.11/24", second)))},
	})

	judge(t, diagnosis.DefaultWithoutGateway, map[string]trial{
		"old": {files: lab(interfaces(link("eth0", "192.0.2.11/24", "network: 0.0.0.0/0"))),
			cause: "the default route of eth0 has no gateway"},
		"IPv6": {files: lab(interfaces(link("eth0", "2001:db8::11/64", "network: '::/0'"))), cause: "no gateway"},
		"right": {files: lab(interfaces(link("eth0", "192.0.2.11/24", first)),
			interfaces(link("eth0", "192.0.2.11/24", "network: 10.0.0.0/8")),
			documents(document("eth0", "gateway: 192.0.2.1")))},
		"a tunnel": {files: lab(interfaces(link("wg0", "192.0.2.11/24",
			"network: 0.0.0.0/0") + "\n\t\t\twireguard: {privateKey: a, peers: []}"))},
	})
}

func TestVIPsOnAnotherLink(t *testing.T) {
	t.Parallel()

	two := func(vip, on string) config {
		item := func(name, address string) string {
			text := "interface: " + name + "\n\t\t\taddresses: [" + address + "]"
			if name == on {
				text += "\n\t\t\tvip: {ip: '" + vip + "'}"
			}

			return text
		}

		return interfaces(item("eth0", "192.0.2.11/24"), item("eth1", "198.51.100.11/24"))
	}
	address := func(name, address string) string {
		return "kind: LinkConfig\nname: " + name + "\naddresses:\n\t- address: " + address
	}

	judge(t, diagnosis.VIPOffLink, map[string]trial{
		"old": {files: lab(two("192.0.2.10", "eth1")), line: "vip: {ip: '192.0.2.10'}",
			cause: "the VIP 192.0.2.10 is on eth1, and its subnet is that of eth0 (192.0.2.0/24)"},
		"documents": {files: lab(documents(address("eth0", "192.0.2.11/24"), address("eth1", "198.51.100.11/24"),
			"kind: Layer2VIPConfig\nname: 192.0.2.10\nlink: eth1")), line: "name: 192.0.2.10", cause: "is on eth1"},
		"its own":      {files: lab(two("192.0.2.10", "eth0"), two("198.51.100.10", "eth1"))},
		"in no subnet": {files: lab(two("203.0.113.10", "eth1"))},
		"DHCP": {files: lab(interfaces("interface: eth0\n\t\t\taddresses: [192.0.2.11/24]",
			"interface: eth1\n\t\t\tdhcp: true\n\t\t\taddresses: [198.51.100.11/24]\n\t\t\tvip: {ip: '192.0.2.10'}"))},
		"a VLAN's": {files: lab(interfaces("interface: eth0\n\t\t\taddresses: [198.51.100.11/24]\n" +
			"\t\t\tvlans:\n\t\t\t\t- vlanId: 7" +
			"\n\t\t\t\t  addresses: [192.0.2.11/24]\n\t\t\t\t  vip: {ip: '192.0.2.10'}"))},
		"another family": {files: lab(interfaces("interface: eth0\n\t\t\taddresses: [192.0.2.11/24, '2001:db8::11/64']",
			"interface: eth1\n\t\t\taddresses: ['2001:db8:1::11/64']\n\t\t\tvip: {ip: '192.0.2.10'}"))},
	})
}

func TestVolumesOnTheInstallDisk(t *testing.T) {
	t.Parallel()

	on := func(install, match, more string) config {
		made := installing(install)
		made.documents = []string{"kind: UserVolumeConfig\nname: data\n" + more +
			"provisioning:\n\tdiskSelector:\n\t\tmatch: " + match}

		return made
	}
	limited := func(made config) config {
		made.documents = append(made.documents, "kind: VolumeConfig\nname: EPHEMERAL\nprovisioning:\n\tmaxSize: 100GiB")

		return made
	}

	const path, serial, whole = "disk: /dev/sda", "diskSelector:\n\t\tserial: S1", "volumeType: disk\n"

	judge(t, diagnosis.VolumeOnSystemDisk, map[string]trial{
		"its name": {files: lab(on(path, "disk.dev_path == '/dev/sda'", "")), line: "match: disk.dev_path == '/dev/sda'",
			cause: "UserVolumeConfig data can only be on the system disk, which EPHEMERAL fills"},
		"its link": {files: lab(on("disk: /dev/disk/by-id/ata-A", "'\"/dev/disk/by-id/ata-A\" in disk.symlinks'", "")),
			cause: "can only be on the system disk"},
		"its serial":      {files: lab(on(serial, "disk.serial == 'S1'", "")), cause: "can only be on the system disk"},
		"and more":        {files: lab(on(serial, "disk.serial == 'S1' && disk.size > 1u * GB", "")), cause: "system disk"},
		"another disk":    {files: lab(on(path, "disk.dev_path == '/dev/sdb'", ""), on(serial, "disk.serial == 'S2'", ""))},
		"a kind of disks": {files: lab(on("diskSelector:\n\t\ttype: nvme", "disk.transport == 'nvme'", ""))},
		"not the system's": {files: lab(on(path, "disk.dev_path == '/dev/sda' || disk.dev_path == '/dev/sdb'", ""),
			on(path, "'!system_disk'", ""))},
		"room is left": {files: lab(limited(on(path, "disk.dev_path == '/dev/sda'", "")))},
	})

	judge(t, diagnosis.WholeDiskTaken, map[string]trial{
		"the system's": {files: lab(on(path, "system_disk", whole)), line: "match: system_disk",
			cause: "UserVolumeConfig data takes a disk as a whole, and can only match the one that Talos is on"},
		"by its serial": {files: lab(on(serial, "disk.serial == 'S1'", whole)), cause: "takes a disk as a whole"},
		"though limited": {files: lab(limited(on(path, "disk.dev_path == '/dev/sda'", whole))),
			cause: "takes a disk as a whole"},
		"another":     {files: lab(on(path, "'!system_disk'", whole), on(path, "disk.serial == 'S2'", whole))},
		"a partition": {files: lab(on(path, "system_disk", ""))},
	})
}
