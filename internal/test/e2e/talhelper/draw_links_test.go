package talhelper_test

import (
	"fmt"
	"slices"
)

const (
	wireguardKey      = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="
	wireguardPeersKey = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI="
)

// networkInterfaces draws links, each of a kind of its own.
func (a *artist) networkInterfaces(at object, controlPlane bool) {
	kinds := []string{"ignored", "vlans", "dhcp", "static", "selected", "bond", "selected bond", "bridge", "wireguard",
		"dummy", "port"}
	if controlPlane {
		kinds = append([]string{"vip", "vlan vip"}, kinds...)
	}

	if a.IntN(5) < 2 {
		return
	}

	used := map[string]bool{}

	at.list("networkInterfaces", 1+a.IntN(4), func(index int, device object) {
		free := slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return used[kind] })
		kind := a.rarest(at.path+" link", free...)
		used[kind] = true
		a.device(index, kind, device)
	})
}

func (a *artist) device(index int, kind string, device object) {
	name := fmt.Sprintf("eth%d", index)

	switch kind {
	case "dhcp":
		device.set("interface", name)
		device.set("dhcp", true)
		device.mayBe("dhcpOptions", a.dhcpOptions)
	case "static":
		device.set("interface", name)
		a.addresses(index, device)
	case "selected":
		device.be("deviceSelector", a.linkSelector)
		a.addresses(index, device)
	case "bond":
		device.set("interface", fmt.Sprintf("bond%d", index))
		device.be("bond", func(bond object) {
			bond.set("interfaces", []any{name + "a", name + "b"})
			a.bond(bond)
		})
		a.addresses(index, device)
	case "selected bond":
		device.set("interface", fmt.Sprintf("bond%d", index))
		device.be("bond", func(bond object) {
			bond.list("deviceSelectors", 1+a.IntN(2), func(_ int, selector object) { a.linkSelector(selector) })
			a.bond(bond)
		})
		a.addresses(index, device)
	case "bridge":
		device.set("interface", fmt.Sprintf("br%d", index))
		device.be("bridge", func(bridge object) {
			bridge.set("interfaces", []any{name + "a", name + "b"})
			bridge.mayBe("stp", func(stp object) { stp.set("enabled", a.IntN(2) == 0) })
			bridge.mayBe("vlan", func(vlan object) { vlan.set("vlanFiltering", a.IntN(2) == 0) })
		})
		a.addresses(index, device)
	case "wireguard":
		device.set("interface", fmt.Sprintf("wg%d", index))
		device.be("wireguard", a.wireguard)
		a.addresses(index, device)
	case "vlans", "vlan vip":
		device.set("interface", name)
		device.list("vlans", 1+a.IntN(2), func(number int, vlan object) { a.vlan(index, number, kind == "vlan vip", vlan) })
	case "dummy":
		device.set("interface", fmt.Sprintf("dummy%d", index))
		device.set("dummy", true)
		a.addresses(index, device)
	case "ignored":
		a.ignored(index, device)
	case "port":
		device.set("interface", name)
		device.be("bridgePort", func(port object) { port.set("master", "br9") })
	case "vip":
		device.set("interface", name)
		a.addresses(index, device)
		device.be("vip", func(vip object) { a.vip(index, vip) })
	}
}

// ignored draws a link that Talos leaves alone. Nothing checks it, so it may have the fields that are refused anywhere
// else.
func (a *artist) ignored(index int, device object) {
	device.set("interface", fmt.Sprintf("ignored%d", index))
	device.set("ignore", true)

	device.may("cidr", fmt.Sprintf("198.51.100.%d/24", 100+index))
	device.be("bond", func(bond object) {
		bond.set("interfaces", []any{"unused0"})
		bond.set("mode", "active-backup")
		bond.may("primary", "unused0")
		bond.may("arpIPTarget", []any{"192.0.2.1"})
		bond.may("adActorSystem", "02:00:00:00:00:01")
	})
}

func (a *artist) addresses(index int, at object) {
	at.set("addresses", one(a,
		[]any{fmt.Sprintf("192.0.2.%d/24", 100+index)},
		[]any{fmt.Sprintf("192.0.2.%d/24", 100+index), fmt.Sprintf("2001:db8:%d::1/64", index)},
		[]any{fmt.Sprintf("2001:db8:%d::2", index)},
		[]any{a.variable("ADDRESS", "198.51.100.100")},
	))
	at.mayList("routes", 2, a.route)
	at.may("mtu", one(a, 1500, 9000))
}

func (a *artist) route(index int, route object) {
	network, gateway, source := "0.0.0.0/0", "192.0.2.1", "192.0.2.100"
	if index == 1 {
		network, gateway, source = one(a, "::/0", "2001:db8:ff::/64"), "2001:db8::1", "2001:db8:0::1"
	}

	if index == 0 && a.IntN(2) == 0 {
		network = "203.0.113.0/24"
	}

	route.set("network", network)
	route.set("gateway", gateway)
	route.may("source", source)
	route.may("metric", one(a, 512, 1024))
	route.may("mtu", 1400)
}

func (a *artist) dhcpOptions(options object) {
	options.may("routeMetric", one(a, 512, 2048))
	options.may("ipv4", a.IntN(2) == 0)
	options.may("ipv6", a.IntN(2) == 0)
	options.may("duidv6", "00:01:00:01:02:03:04:05:06:07:08:09:0a:0b")
}

func (a *artist) linkSelector(selector object) {
	selector.set("hardwareAddr", one(a, "02:00:00:00:00:01", "02:00:*"))
	selector.may("permanentAddr", "02:00:00:00:00:02")
	selector.may("busPath", "0000:01:*")
	selector.may("pciID", "8086:*")
	selector.may("driver", one(a, "virtio_net", "e1000e"))
	selector.may("physical", a.IntN(2) == 0)
}

func (a *artist) bond(bond object) {
	mode := a.rarest(bond.path, "802.3ad", "active-backup", "balance-rr", "balance-tlb", "balance-xor")
	bond.set("mode", mode)
	bond.may("xmitHashPolicy", one(a, "layer2", "layer3+4", "encap2+3"))
	bond.may("failOverMac", one(a, "none", "active", "follow"))
	bond.may("resendIgmp", 2)
	bond.may("minLinks", 1)
	bond.may("numPeerNotif", 3)
	bond.may("allSlavesActive", 1)
	bond.may("useCarrier", a.IntN(2) == 0)

	monitored := mode == "802.3ad" || a.rarest(bond.path+" in mode "+mode, "watched by ARP",
		"watched by MII") == "watched by MII"
	if monitored {
		bond.set("miimon", 100)
		bond.may("updelay", 200)
		bond.may("downdelay", 300)
		bond.may("peerNotifyDelay", 100)
	}

	switch mode {
	case "802.3ad":
		bond.may("lacpRate", one(a, "slow", "fast"))
		bond.may("adSelect", one(a, "stable", "bandwidth", "count"))
		bond.may("adActorSysPrio", 1000)
		bond.may("adUserPortKey", 7)
	case "active-backup":
		// The documents for links have no primary link, see testdata/refused.
		if !a.generation.links {
			bond.may("primary", "eth0a")
		}

		bond.may("primaryReselect", one(a, "always", "better", "failure"))

		if !monitored {
			bond.may("arpInterval", 1000)
			bond.may("arpValidate", one(a, "active", "all"))
			bond.may("arpAllTargets", one(a, "any", "all"))
		}
	case "balance-rr":
		bond.may("packetsPerSlave", 2)
	case "balance-tlb":
		bond.may("lpInterval", 2)
		bond.may("tlbDynamicLb", 1)
	}
}

func (a *artist) wireguard(wireguard object) {
	wireguard.set("privateKey", wireguardKey)
	wireguard.may("listenPort", 51820)
	wireguard.may("firewallMark", 17)
	wireguard.list("peers", 1+a.IntN(2), func(_ int, peer object) {
		peer.set("publicKey", wireguardPeersKey)
		peer.may("endpoint", one(a, "198.51.100.60:51820", "[2001:db8::60]:51820"))
		peer.may("persistentKeepaliveInterval", one(a, "25s", "1m0s"))
		peer.set("allowedIPs", some(a, "192.0.2.128/25", "2001:db8:60::/64"))
	})
}

func (a *artist) vlan(index, number int, vip bool, vlan object) {
	vlan.set("vlanId", 100*(index+1)+number)

	if !vip && (vlan.seen[vlan.field("cidr")] == 0 || a.IntN(3) == 0) {
		vlan.set("cidr", fmt.Sprintf("198.51.100.%d/24", 10*index+number))
	} else {
		a.addresses(10*index+number, vlan)
	}

	vlan.may("mtu", 1496)
	vlan.may("dhcp", a.IntN(2) == 0)

	if vlan.fields["dhcp"] == true {
		vlan.mayBe("dhcpOptions", a.dhcpOptions)
	}

	if vip {
		vlan.be("vip", func(vip object) { a.vip(10*(index+1)+number, vip) })
	}
}

func (a *artist) vip(number int, vip object) {
	vip.set("ip", one(a, fmt.Sprintf("192.0.2.%d", 200+number), fmt.Sprintf("2001:db8::a%d", number)))

	// Each kind by itself: an address is moved in one way alone.
	switch a.rarest(vip.path, "hcloud", "equinixMetal", "layer 2") {
	case "hcloud":
		vip.be("hcloud", func(cloud object) { cloud.set("apiToken", "an invented token") })
	case "equinixMetal":
		vip.be("equinixMetal", func(cloud object) { cloud.set("apiToken", "an invented token") })
	}
}
