package diagnosis

// What the audit finds about the names of links: TM380 to TM384.
const (
	LinkNameTakenAway ID = "TM380"
)

var linkNameEntries = []Entry{
	{
		ID: LinkNameTakenAway, Title: "A link has a name that the node's kernel arguments rule out", Severity: Warning,
		Cause: "With net.ifnames=0 the kernel numbers links (eth0 and so on). None has a name by its position, " +
			"such as enp1s0. Talos can't validate names: the apply succeeds, and the node may never answer at " +
			"its address again. The image that a node is first booted with has arguments of its own, so that " +
			"names can change with the installation.",
		Remedy: "Select the link by its MAC address, or remove net.ifnames=0.",
		Source: "siderolabs/terraform-provider-talos#267, siderolabs/talos#8640, #12227, #10585",
	},
}
