package diagnosis

// What the audit finds about interfaces: TM245 to TM259.
const (
	LinkNamedTwice        ID = "TM245"
	LinkNameAndSelector   ID = "TM246"
	LinkParentMissing     ID = "TM247"
	MTUAboveParent        ID = "TM248"
	MemberConfigured      ID = "TM249"
	LinkSelectorWide      ID = "TM250"
	LinkSelectorNever     ID = "TM251"
	LinkSelectorUnmatched ID = "TM252"
	VLANNumber            ID = "TM253"
	MemberShared          ID = "TM254"
	LinkIgnored           ID = "TM255"
)

const (
	deviceSource = "siderolabs/talos internal/app/machined/pkg/controllers/network/device_config.go, link_alias_config.go"
	bondSource   = "Linux kernel documentation, bonding; machinery config/types/network/bond.go"
)

var interfaceEntries = []Entry{
	{
		ID: LinkNamedTwice, Title: "A link is configured twice in one style", Severity: Warning,
		Cause: "Two items of machine.network.interfaces have the same name, or two VLANs of a link the same " +
			"number. Which setting counts depends on their order.",
		Remedy: "Make one of the two.",
		Source: "machinery config/types/network/vlan.go; budimanjojo/talhelper#1538",
	},
	{
		ID: LinkNameAndSelector, Title: "An interface has both a name and a selector, or neither", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "interface and deviceSelector exclude each other, and one of the two must say which link is " +
			"meant.",
		Remedy: "Keep one of the two; a selector by MAC address keeps working when links are renamed.",
		Source: "machinery config/types/v1alpha1/v1alpha1_validation.go; budimanjojo/talhelper#1380",
	},
	{
		ID: LinkParentMissing, Title: "A VLAN or bond is built on a link that nothing makes", Severity: Warning,
		Cause: "The parent or member has the name of a bond, a bridge, a VLAN or an alias, which exists only if the " +
			"config, or a cloud's metadata, makes it. Talos waits for it without an error, and the node stays off the network.",
		Remedy: "Declare the parent, or correct its name.",
		Source: "siderolabs/talos internal/app/machined/pkg/controllers/network/link_spec.go",
	},
	{
		ID: MTUAboveParent, Title: "A link's MTU is larger than its parent's", Severity: Failure, Exit: ExitBadInput,
		Cause: "The kernel refuses a VLAN with a larger MTU than the link that it runs on, which has 1500 " +
			"unless the config says otherwise. If the files don't say, it is a warning.",
		Remedy: "Raise the parent's mtu as well.",
		Source: "Linux, net/8021q/vlan_dev.c, vlan_dev_change_mtu",
	},
	{
		ID: MemberConfigured, Title: "A member of a bond or bridge has addresses of its own", Severity: Warning,
		Cause: "What arrives at a member goes to the bond or bridge: an address, DHCP or VIP on the member " +
			"itself works partly, if at all.",
		Remedy: "Move them to the bond or bridge.",
		Source: bondSource,
	},
	{
		ID: LinkSelectorWide, Title: "A link selector matches more than one link", Severity: Warning,
		Cause: "A selector that asks for any physical link, or names only a kernel driver or the bus that all links are " +
			"on, picks every link that fits. In machine.network each of them gets the settings, a static address too. The " +
			"alias of a LinkAliasConfig goes to none of several, and the node may stay off the network.",
		Remedy: "Select the link by its MAC address; machines that share an entry, by a busPath that is the same in all.",
		Source: deviceSource,
	},
	{
		ID: LinkSelectorNever, Title: "A link selector can never match", Severity: Failure, Exit: ExitBadInput,
		Cause: "MAC addresses are compared as text in lower case with colons. Capital letters, hyphens or a " +
			"wrong length match nothing, silently. It is a failure if no link is left that has addresses or asks for them.",
		Remedy: "Write the address in lower case, with colons.",
		Source: deviceSource,
	},
	{
		ID: LinkSelectorUnmatched, Title: "A link selector does not match exactly one of the node's links", Severity: Failure,
		Exit: ExitPreflight,
		Cause: "Without a match the settings are left out and the node may stay off the network; with several, each of " +
			"the links gets them. The alias of a LinkAliasConfig goes to none of several, unless its name counts, as " +
			"net%d. A bond that has other members is a warning.",
		Remedy: "Select one of the links that the message lists by its MAC address.",
		Source: deviceSource,
	},
	{
		ID: VLANNumber, Title: "A VLAN's number is out of range", Severity: Failure, Exit: ExitBadInput,
		Cause:  "VLANs have the numbers 1 to 4094: 0 marks frames of no VLAN, and 4095 is reserved.",
		Remedy: "Correct vlanId.",
		Source: "IEEE 802.1Q, 9.6; machinery config/types/network/vlan.go",
	},
	{
		ID: MemberShared, Title: "A link is a member of two bonds or bridges", Severity: Failure, Exit: ExitBadInput,
		Cause: "A link has one master. The second bond or bridge does not get it. Talos refuses this in " +
			"machine.network.interfaces and accepts it in documents, which is a warning.",
		Remedy: "Leave the link in one of the two.",
		Source: "machinery config/types/v1alpha1/v1alpha1_validation.go; Linux, ip-link(8), master",
	},
	{
		ID: LinkIgnored, Title: "An ignored link has settings", Severity: Warning,
		Cause:  "With `ignore: true` Talos leaves the link alone and ignores everything else that is set on it.",
		Remedy: "Take `ignore` out, or the settings.",
		Source: "machinery config/types/v1alpha1/v1alpha1_types.go, Device.ignore",
	},
}
