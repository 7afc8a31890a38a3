package audit

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"

	"github.com/talos-mage/talos-mage/internal/base/host"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Checks of interfaces. A link in both styles is preflight's finding.
var interfaceChecks = []Check{
	eachConfig(diagnosis.LinkNamedTwice, Interfaces, checkLinkNamedTwice),
	eachConfig(diagnosis.LinkNameAndSelector, Interfaces, checkNameAndSelector),
	eachConfig(diagnosis.LinkParentMissing, Interfaces, checkParents),
	eachConfig(diagnosis.MTUAboveParent, Interfaces, checkMTU),
	eachConfig(diagnosis.MemberConfigured, Interfaces, checkMembers),
	eachConfig(diagnosis.LinkSelectorWide, Interfaces, checkWideSelectors),
	eachConfig(diagnosis.LinkSelectorNever, Interfaces, checkImpossibleSelectors),
	eachConfig(diagnosis.VLANNumber, Interfaces, checkVLANNumbers),
	eachConfig(diagnosis.MemberShared, Interfaces, checkSharedMembers),
	eachConfig(diagnosis.LinkIgnored, Interfaces, checkIgnoredLinks),
}

// checkLinkNamedTwice looks for links that one style configures twice, VLANs of the old style by number.
func checkLinkNamedTwice(r *Report, config *Rendered) {
	type key struct {
		name     string
		document bool
	}

	first := map[key]*link{}

	for _, link := range config.links() {
		if link.name == "" {
			continue
		}

		known, taken := first[key{link.name, link.document}]
		if !taken {
			first[key{link.name, link.document}] = link

			continue
		}

		r.found(link.at, "make one of the two", "%s is configured twice, first in %s", link.label, r.in.locate(known.at))
	}

	checkVLANsTwice(r, config)
}

// checkVLANsTwice looks for VLAN documents of different names with one parent and one number.
func checkVLANsTwice(r *Report, rendered *Rendered) {
	first := map[string]string{}

	for _, declared := range rendered.Provider.NetworkCommonLinkConfigs() {
		vlan, ok := declared.(config.NetworkVLANConfig)
		if !ok {
			continue
		}

		number := fmt.Sprintf("VLAN %d on %s", vlan.VLANID(), vlan.ParentLink())
		if mode, set := vlan.VLANMode().Get(); set && mode != nethelpers.VLANProtocol8021Q {
			number += " (" + mode.String() + ")"
		}

		if known, taken := first[number]; taken {
			r.found(rendered.File.in(documentName(vlan), "vlanID"), "make one of the two",
				"%s is configured twice, as %s and as %s", number, known, vlan.Name())
		} else {
			first[number] = vlan.Name()
		}
	}
}

// checkNameAndSelector looks at what tells which link an interface is.
func checkNameAndSelector(r *Report, config *Rendered) {
	for _, link := range config.links() {
		switch {
		case link.document || link.vlan:
		case link.name != "" && link.selector != nil:
			r.found(link.at.field("deviceSelector"), "keep one of the two", "%s has a name and a deviceSelector", link.label)
		case link.name == "" && link.selector == nil:
			r.found(link.at, "add interface or deviceSelector", "nothing says which link this is")
		}
	}
}

// virtualName is how links are called that exist only when a config makes them.
var virtualName = regexp.MustCompile(`^(bond|br|vlan|dummy|wg|vrf|team)[-_]?\d+$|^bond\.|^[a-z][a-z0-9]*\.\d+$`)

// aliasName is how a link alias is commonly called: "net0".
var aliasName = regexp.MustCompile(`^net\d+$`)

// checkParents looks for parents and members that nothing makes. A physical link needs no declaration.
func checkParents(r *Report, config *Rendered) {
	made := map[string]bool{}

	for _, link := range config.links() {
		if link.made {
			made[link.name] = true
		}
	}

	absent := func(name string) bool {
		return (virtualName.MatchString(name) || aliasName.MatchString(name)) && !made[name] && !config.IsAlias(name)
	}

	for _, link := range config.links() {
		if link.vlan && link.document && absent(link.parent) {
			r.found(link.parentAt, "declare "+link.parent+", or correct the name", "%s runs on %s, which nothing makes",
				link.label, link.parent)
		}

		for _, member := range link.members {
			if absent(member.name) {
				r.found(member.at, "declare "+member.name+", or correct the name", "%s has the member %s, which nothing makes",
					link.label, member.name)
			}
		}
	}
}

// defaultMTU is what Ethernet links have unless they are told otherwise.
const defaultMTU = 1500

// checkMTU compares VLANs with the links that they run on.
func checkMTU(r *Report, config *Rendered) {
	mtus := map[string]int{}

	for _, link := range config.links() {
		if link.name != "" && link.mtu > 0 {
			mtus[link.name] = max(mtus[link.name], link.mtu)
		}
	}

	for i, link := range config.links() {
		if !link.vlan || link.mtu == 0 {
			continue
		}

		parent := mtus[link.parent]
		if link.parent == "" {
			parent = config.links()[parentIndex(config.links(), i)].mtu
		}

		severity := diagnosis.Failure

		if parent == 0 { // DHCP, a cloud's metadata or an alias may say otherwise
			parent, severity = defaultMTU, diagnosis.Warning
		}

		if link.mtu > parent {
			r.add(severity, link.mtuPlace(), fmt.Sprintf("set mtu: %d on the parent", link.mtu),
				"the MTU of %s is %d, and its parent's is %d", link.label, link.mtu, parent)
		}
	}
}

// parentIndex is the nearest link before a VLAN that is none: in the old style VLANs follow their parent.
func parentIndex(links []*link, of int) int {
	for i := of; i > 0; i-- {
		if !links[i].vlan {
			return i
		}
	}

	return 0
}

// mtuPlace is where the link's MTU is set.
func (l *link) mtuPlace() at {
	if l.document {
		return at{file: l.at.file, document: l.at.document, path: "mtu"}
	}

	return l.at.field("mtu")
}

// checkMembers looks for settings of a member that belong to its bond or bridge.
func checkMembers(r *Report, config *Rendered) {
	masters := map[string]string{}

	for _, link := range config.links() {
		for _, member := range link.members {
			masters[member.name] = link.label
		}
	}

	for _, link := range config.links() {
		master := masters[link.name]
		if master == "" || link.vrfMember(config) {
			continue
		}

		if link.dhcp || len(link.addresses) > 0 || len(link.vips) > 0 {
			r.found(link.at, "move the settings to "+master, "%s is a member of %s and has addresses, DHCP or a VIP of its own",
				link.label, master)
		}
	}
}

// vrfMember reports whether a link is a member of a VRF, which takes its addresses along.
func (l *link) vrfMember(rendered *Rendered) bool {
	return slices.ContainsFunc(rendered.Provider.NetworkCommonLinkConfigs(),
		func(declared config.NetworkCommonLinkConfig) bool {
			vrf, ok := declared.(config.NetworkVRFConfig)

			return ok && slices.Contains(vrf.Links(), l.name)
		})
}

// checkSharedMembers looks for links with two masters.
func checkSharedMembers(r *Report, config *Rendered) {
	masters := map[string]*link{}

	for _, link := range config.links() {
		for _, member := range link.members {
			first := masters[member.name]
			if first == nil || first.name == link.name {
				masters[member.name] = link

				continue
			}

			severity := diagnosis.Warning
			if !first.document && !link.document {
				severity = diagnosis.Failure // Talos refuses it
			}

			r.add(severity, member.at, "leave "+member.name+" in one of the two", "%s is a member of %s and of %s", member.name,
				first.label, link.label)
		}
	}
}

// checkWideSelectors looks for selectors that leave open which link is meant.
func checkWideSelectors(r *Report, config *Rendered) {
	for _, link := range config.links() {
		selector := link.selector
		if selector == nil || link.vlan {
			continue
		}

		macs := selector.NetworkDeviceHardwareAddress + selector.NetworkDevicePermanentAddress

		if strings.Trim(macs, "*:") == "" && selector.NetworkDeviceBus == "" && selector.NetworkDevicePCIID == "" {
			r.found(link.at.field("deviceSelector"), "select the link by its MAC address",
				"the selector (%s) leaves open which link is meant", selectorText(selector))
		}
	}

	for _, alias := range config.Provider.NetworkLinkAliasConfigs() {
		selector := alias.LinkSelector()
		if text := strings.TrimSpace(selector.String()); !alias.IsPatternAlias() &&
			(text == "true" || text == "link.physical") {
			r.found(config.File.in("LinkAliasConfig/"+alias.Name(), "selector.match"), "select the link by its MAC address",
				"the selector of %s (%s) leaves open which link is meant", alias.Name(), text)
		}
	}
}

var (
	// macPattern is what a MAC address may be matched with: lower case, colons, wildcards for the rest.
	macPattern = regexp.MustCompile(`^[0-9a-f:*]+$`)
	// comparedMAC finds MAC addresses in the expression of a link alias.
	comparedMAC = regexp.MustCompile(`mac\(link\.(?:permanent|hardware)_addr\) ?== ?["']([^"']*)["']|glob\(["']([^"']*)["'], ?mac\(`)
)

// checkImpossibleSelectors looks for MAC addresses in a form that Talos never has.
func checkImpossibleSelectors(r *Report, config *Rendered) {
	for _, link := range config.links() {
		if link.selector == nil || link.vlan {
			continue
		}

		for _, field := range []struct{ name, mac string }{
			{"hardwareAddr", link.selector.NetworkDeviceHardwareAddress},
			{"permanentAddr", link.selector.NetworkDevicePermanentAddress},
		} {
			if why := neverAMAC(field.mac); why != "" {
				r.add(config.without(link), link.at.field("deviceSelector").field(field.name),
					"write it in lower case, with colons", "%s %q matches no link: %s", field.name, field.mac, why)
			}
		}
	}

	for _, alias := range config.Provider.NetworkLinkAliasConfigs() {
		selector := alias.LinkSelector()
		for _, match := range comparedMAC.FindAllStringSubmatch(selector.String(), -1) {
			if why := neverAMAC(match[1] + match[2]); why != "" {
				r.warn(config.File.in("LinkAliasConfig/"+alias.Name(), "selector.match"), "write it in lower case, with colons",
					"%q matches no link: %s", match[1]+match[2], why)
			}
		}
	}
}

// without is how bad it is that a link's settings reach no link: there is no network if no other link has addresses or
// asks for them.
func (c *Rendered) without(link *link) diagnosis.Severity {
	if len(link.addresses) == 0 {
		return diagnosis.Warning
	}

	for _, other := range c.links() {
		if other != link && !other.isLocal() && (other.dhcp || len(other.addresses) > 0) {
			return diagnosis.Warning
		}
	}

	return diagnosis.Failure
}

// neverAMAC says why a pattern matches no MAC address; empty when it may.
func neverAMAC(pattern string) string {
	switch {
	case pattern == "":
		return ""
	case pattern != strings.ToLower(pattern):
		return "MAC addresses are compared in lower case"
	case !macPattern.MatchString(pattern):
		return "MAC addresses have hexadecimal digits and colons"
	case !strings.Contains(pattern, "*") && host.MAC(pattern) == "":
		return "a MAC address has six parts of two digits"
	default:
		return ""
	}
}

// maxVLAN is the highest number of a VLAN.
const maxVLAN = 4094

// checkVLANNumbers looks for numbers that no VLAN has.
func checkVLANNumbers(r *Report, rendered *Rendered) {
	network := rendered.Provider.RawV1Alpha1().MachineConfig.MachineNetwork //nolint:staticcheck // old files have it

	if network != nil {
		for i, device := range network.NetworkInterfaces { //nolint:staticcheck // old files have them
			if device == nil {
				continue
			}

			for j, vlan := range device.DeviceVlans {
				if vlan != nil && (vlan.VlanID == 0 || vlan.VlanID > maxVLAN) {
					severity := diagnosis.Failure
					if vlan.VlanID == 0 {
						severity = diagnosis.Warning // Linux marks frames with it, for their priority
					}

					r.add(severity, rendered.File.at("machine.network.interfaces").item(i).field("vlans").item(j).field("vlanId"),
						"use a number from 1 to 4094",
						"the VLAN number %d is out of range", vlan.VlanID)
				}
			}
		}
	}

	for _, declared := range rendered.Provider.NetworkCommonLinkConfigs() {
		if vlan, ok := declared.(config.NetworkVLANConfig); ok && (vlan.VLANID() == 0 || vlan.VLANID() > maxVLAN) {
			r.found(rendered.File.in(documentName(vlan), "vlanID"), "use a number from 1 to 4094",
				"the VLAN number %d of %s is out of range", vlan.VLANID(), vlan.Name())
		}
	}
}

// checkIgnoredLinks looks for settings of links that Talos leaves alone.
func checkIgnoredLinks(r *Report, config *Rendered) {
	for _, link := range config.links() {
		if link.ignored && (link.dhcp || link.mtu > 0 ||
			len(link.addresses)+len(link.routes)+len(link.vips)+len(link.members) > 0) {
			r.found(link.at.field("ignore"), "take `ignore: true` out, or the settings",
				"%s is ignored, and so are its settings", link.label)
		}
	}
}

// checkLiveSelectors compares selectors by MAC with the links of a node that answered. Other properties are not read in
// maintenance.
func checkLiveSelectors(_ context.Context, l *live) []diagnosis.Finding {
	if len(l.facts.Links) == 0 {
		return nil
	}

	var findings []diagnosis.Finding

	for _, link := range interfaceLinks(&Rendered{Config: l.config}) {
		if link.selector == nil || link.vlan {
			continue
		}

		pattern := link.selector.NetworkDeviceHardwareAddress
		if pattern == "" {
			pattern = link.selector.NetworkDevicePermanentAddress
		}

		// A complete address is compared where the machine's identity is.
		if !strings.Contains(pattern, "*") {
			continue
		}

		var matching, all []string

		for _, candidate := range l.facts.Links {
			if !candidate.Physical {
				continue
			}

			text := candidate.Name + " " + candidate.MAC
			all = append(all, text)

			if matchesPattern(pattern, strings.ToLower(candidate.MAC)) {
				matching = append(matching, text)
			}
		}

		if len(matching) != 1 {
			findings = append(findings,
				l.finding(diagnosis.LinkSelectorUnmatched, "select one of the node's links by its MAC address",
					fmt.Sprintf("%d links match %q (%s); the node has %s", len(matching), pattern, strings.Join(matching, ", "),
						strings.Join(all, ", "))))
		}
	}

	return findings
}

// matchesPattern compares a text with a pattern in which * stands for any text.
func matchesPattern(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}

	matched, err := regexp.MatchString("^"+strings.Join(parts, ".*")+"$", text)

	return err == nil && matched
}
