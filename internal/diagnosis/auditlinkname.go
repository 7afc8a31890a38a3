package diagnosis

// What the audit finds about the names of links: TM380 to TM384.
const (
	LinkNameTakenAway ID = "TM380"
)

var linkNameEntries = []Entry{
	{
		ID: LinkNameTakenAway, Title: "A link has a name that the node's kernel arguments take away", Severity: Warning,
		Cause: "With net.ifnames=0 the kernel numbers links, eth0 and so on, and none is called by where it is, as " +
			"enp1s0. Talos can't validate names: the apply " +
			"succeeds, and the node may never answer at its address again. The image that a node is first booted with has " +
			"arguments of its own, so that names can " +
			"change with the installation.",
		Remedy: "Select the link by its MAC address, which has no name to lose, or take net.ifnames=0 out.",
		Source: "siderolabs/terraform-provider-talos#267, siderolabs/talos#8640, #12227, #10585",
	},
}
