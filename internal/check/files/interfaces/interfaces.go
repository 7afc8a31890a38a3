// Package interfaces holds the checks of links: their names, selectors, parents and members.
package interfaces

import (
	"fmt"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Checks are its rows of the table.
func Checks() []check.Check {
	return []check.Check{
		check.EachConfig(diagnosis.LinkNamedTwice, check.Interfaces, checkLinkNamedTwice),
		check.EachConfig(diagnosis.LinkNameAndSelector, check.Interfaces, checkNameAndSelector),
		check.EachConfig(diagnosis.LinkParentMissing, check.Interfaces, checkParents),
		check.EachConfig(diagnosis.MTUAboveParent, check.Interfaces, checkMTU),
		check.EachConfig(diagnosis.MemberConfigured, check.Interfaces, checkMembers),
		check.EachConfig(diagnosis.LinkSelectorWide, check.Interfaces, checkWideSelectors),
		check.EachConfig(diagnosis.LinkSelectorNever, check.Interfaces, checkImpossibleSelectors),
		check.EachConfig(diagnosis.VLANNumber, check.Interfaces, checkVLANNumbers),
		check.EachConfig(diagnosis.MemberShared, check.Interfaces, checkSharedMembers),
		check.EachConfig(diagnosis.LinkIgnored, check.Interfaces, checkIgnoredLinks),
		check.Whole(diagnosis.LinkDeclaredTwice, check.Interfaces, diagnosis.NeedsTalconfig|diagnosis.NeedsConfig,
			checkBothStyles),
		check.EachConfig(diagnosis.LinkNameTakenAway, check.Interfaces, checkLinkNames),
	}
}

// checkLinkNamedTwice looks for links that one style configures twice, VLANs of the old style by number.
func checkLinkNamedTwice(r *check.Report, config *check.Rendered) {
	type key struct {
		name     string
		document bool
	}

	first := map[key]*check.Link{}

	for _, link := range config.Links() {
		if link.Name == "" {
			continue
		}

		known, taken := first[key{link.Name, link.Document}]
		if !taken {
			first[key{link.Name, link.Document}] = link

			continue
		}

		r.Found(link.At, "make one of the two", "%s is configured twice, first in %s", link.Label, r.In.Locate(known.At))
	}

	checkVLANsTwice(r, config)
}

// checkVLANsTwice looks for VLAN documents of different names with one parent and one number.
func checkVLANsTwice(r *check.Report, rendered *check.Rendered) {
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
			r.Found(rendered.File.In(check.DocumentName(vlan), "vlanID"), "make one of the two",
				"%s is configured twice, as %s and as %s", number, known, vlan.Name())
		} else {
			first[number] = vlan.Name()
		}
	}
}

// checkNameAndSelector looks at what tells which link an interface is.
func checkNameAndSelector(r *check.Report, config *check.Rendered) {
	for _, link := range config.Links() {
		switch {
		case link.Document || link.VLAN:
		case link.Name != "" && link.Selector != nil:
			r.Found(link.At.Field("deviceSelector"), "keep one of the two", "%s has a name and a deviceSelector", link.Label)
		case link.Name == "" && link.Selector == nil:
			r.Found(link.At, "add interface or deviceSelector", "nothing says which link this is")
		}
	}
}

// virtualName is how links are called that exist only when a config makes them.
var virtualName = pattern.New(`^(bond|br|vlan|dummy|wg|vrf|team)[-_]?\d+$|^bond\.|^[a-z][a-z0-9]*\.\d+$`)

// aliasName is how a link alias is commonly called: "net0".
var aliasName = pattern.New(`^net\d+$`)

// checkParents looks for parents and members that nothing makes. A physical link needs no declaration.
func checkParents(r *check.Report, config *check.Rendered) {
	made := map[string]bool{}

	for _, link := range config.Links() {
		if link.Made {
			made[link.Name] = true
		}
	}

	absent := func(name string) bool {
		return (virtualName.MatchString(name) || aliasName.MatchString(name)) && !made[name] && !config.IsAlias(name)
	}

	for _, link := range config.Links() {
		if link.VLAN && link.Document && absent(link.Parent) {
			r.Found(link.ParentAt, "declare "+link.Parent+", or correct the name", "%s runs on %s, which nothing makes",
				link.Label, link.Parent)
		}

		for _, member := range link.Members {
			if absent(member.Name) {
				r.Found(member.At, "declare "+member.Name+", or correct the name", "%s has the member %s, which nothing makes",
					link.Label, member.Name)
			}
		}
	}
}

// defaultMTU is what Ethernet links have unless they are told otherwise.
const defaultMTU = 1500

// checkMTU compares VLANs with the links that they run on.
func checkMTU(r *check.Report, config *check.Rendered) {
	mtus := map[string]int{}

	for _, link := range config.Links() {
		if link.Name != "" && link.MTU > 0 {
			mtus[link.Name] = max(mtus[link.Name], link.MTU)
		}
	}

	for i, link := range config.Links() {
		if !link.VLAN || link.MTU == 0 {
			continue
		}

		parent := mtus[link.Parent]
		if link.Parent == "" {
			parent = config.Links()[parentIndex(config.Links(), i)].MTU
		}

		severity := diagnosis.Failure

		if parent == 0 { // DHCP, a cloud's metadata or an alias may say otherwise
			parent, severity = defaultMTU, diagnosis.Warning
		}

		if link.MTU > parent {
			r.Add(severity, mtuPlace(link), fmt.Sprintf("set mtu: %d on the parent", link.MTU),
				"the MTU of %s is %d, and its parent's is %d", link.Label, link.MTU, parent)
		}
	}
}

// parentIndex is the last link before a VLAN that is none: in the old style VLANs follow their parent.
func parentIndex(links []*check.Link, of int) int {
	for i := of; i > 0; i-- {
		if !links[i].VLAN {
			return i
		}
	}

	return 0
}

// mtuPlace is where the link's MTU is set.
func mtuPlace(l *check.Link) check.Place {
	if l.Document {
		return l.At.Beside("mtu")
	}

	return l.At.Field("mtu")
}

// checkMembers looks for settings of a member that belong to its bond or bridge.
func checkMembers(r *check.Report, config *check.Rendered) {
	masters := map[string]string{}

	for _, link := range config.Links() {
		for _, member := range link.Members {
			masters[member.Name] = link.Label
		}
	}

	for _, link := range config.Links() {
		master := masters[link.Name]
		if master == "" || vrfMember(link, config) {
			continue
		}

		if link.DHCP || len(link.Addresses) > 0 || len(link.VIPs) > 0 {
			r.Found(link.At, "move the settings to "+master, "%s is a member of %s and has addresses, DHCP or a VIP of its own",
				link.Label, master)
		}
	}
}

// vrfMember reports whether a link is a member of a VRF, which takes its addresses along.
func vrfMember(l *check.Link, rendered *check.Rendered) bool {
	return slices.ContainsFunc(rendered.Provider.NetworkCommonLinkConfigs(),
		func(declared config.NetworkCommonLinkConfig) bool {
			vrf, ok := declared.(config.NetworkVRFConfig)

			return ok && slices.Contains(vrf.Links(), l.Name)
		})
}

// checkSharedMembers looks for links with two masters.
func checkSharedMembers(r *check.Report, config *check.Rendered) {
	masters := map[string]*check.Link{}

	for _, link := range config.Links() {
		for _, member := range link.Members {
			first := masters[member.Name]
			if first == nil || first.Name == link.Name {
				masters[member.Name] = link

				continue
			}

			severity := diagnosis.Warning
			if !first.Document && !link.Document {
				severity = diagnosis.Failure // Talos refuses it
			}

			r.Add(severity, member.At, "leave "+member.Name+" in one of the two", "%s is a member of %s and of %s", member.Name,
				first.Label, link.Label)
		}
	}
}

// maxVLAN is the highest number of a VLAN.
const maxVLAN = 4094

// checkVLANNumbers looks for numbers that no VLAN has.
func checkVLANNumbers(r *check.Report, rendered *check.Rendered) {
	for i, device := range rendered.Interfaces() {
		if device == nil {
			continue
		}

		for j, vlan := range device.DeviceVlans {
			if vlan != nil && (vlan.VlanID == 0 || vlan.VlanID > maxVLAN) {
				severity := diagnosis.Failure
				if vlan.VlanID == 0 {
					severity = diagnosis.Warning // Linux marks frames with it, for their priority
				}

				r.Add(severity, rendered.File.At("machine.network.interfaces").Item(i).Field("vlans").Item(j).Field("vlanId"),
					"use a number from 1 to 4094",
					"the VLAN number %d is out of range", vlan.VlanID)
			}
		}
	}

	for _, declared := range rendered.Provider.NetworkCommonLinkConfigs() {
		if vlan, ok := declared.(config.NetworkVLANConfig); ok && (vlan.VLANID() == 0 || vlan.VLANID() > maxVLAN) {
			r.Found(rendered.File.In(check.DocumentName(vlan), "vlanID"), "use a number from 1 to 4094",
				"the VLAN number %d of %s is out of range", vlan.VLANID(), vlan.Name())
		}
	}
}

// checkIgnoredLinks looks for settings of links that Talos leaves alone.
func checkIgnoredLinks(r *check.Report, config *check.Rendered) {
	for _, link := range config.Links() {
		if link.Ignored && (link.DHCP || link.MTU > 0 ||
			len(link.Addresses)+len(link.Routes)+len(link.VIPs)+len(link.Members) > 0) {
			r.Found(link.At.Field("ignore"), "take `ignore: true` out, or the settings",
				"%s is ignored, and so are its settings", link.Label)
		}
	}
}

// checkBothStyles finds links that a machine config configures in both ways that Talos knows.
func checkBothStyles(r *check.Report, in *check.Input) {
	r.EachNode(func(_ *inventory.Node, rendered *check.Rendered) {
		old := make(map[string]bool)

		for _, link := range rendered.Links() {
			if !link.Document && link.Name != "" {
				old[link.Name] = true
			}
		}

		for _, declared := range rendered.Provider.NetworkCommonLinkConfigs() {
			vlan, isVLAN := declared.(config.NetworkVLANConfig)

			if old[declared.Name()] || isVLAN && old[fmt.Sprintf("%s.%d", vlan.ParentLink(), vlan.VLANID())] {
				r.Warn(rendered.File.In(check.DocumentName(declared), "name"), in.Regenerate("keep one of the two"),
					"%s configures %s in machine.network.interfaces and in a document of its own", in.Shown(rendered.Path),
					declared.Name())
			}
		}
	})
}
