package diagnosis

// What the audit finds about names: TM235 to TM244.
const (
	ClusterNameInvalid ID = "TM235"
	DNSDomainInvalid   ID = "TM236"
	FileNamesCollide   ID = "TM237"
	HostnameTwice      ID = "TM238"
	HostnameMisleading ID = "TM239"
	HostnameTooLong    ID = "TM240"
	HostnameIsEndpoint ID = "TM241"
)

var nameEntries = []Entry{
	{
		ID: ClusterNameInvalid, Title: "The cluster's name can't be used everywhere", Severity: Warning,
		Cause: "The name is part of file names, of the contexts of kubeconfig and talosconfig, and of " +
			"certificates. Any character except lower-case letters, digits, dots and hyphens has to be quoted " +
			"somewhere. A slash makes a folder.",
		Remedy: "Use lower-case letters, digits and hyphens.",
		Source: "talhelper v3.1.16, pkg/config/outputfilename.go; kubernetes.io, Object Names and IDs",
	},
	{
		ID: DNSDomainInvalid, Title: "The cluster's DNS domain is unsuitable", Severity: Failure, Exit: ExitBadInput,
		Cause: "cluster.network.dnsDomain is the end of every service's name and is in the API server's " +
			"certificate, so it must be a DNS name. On many networks a name in .local, other than " +
			"cluster.local, collides with multicast DNS.",
		Remedy: "Use cluster.local, or a name of a domain of your own.",
		Source: "RFC 1123, 2.1; RFC 6762, 3",
	},
	{
		ID: FileNamesCollide, Title: "Two machine configs have file names that differ only in case", Severity: Warning,
		Cause: "To the file systems of macOS and Windows they are one file: the second node's config replaces " +
			"the first's.",
		Remedy: "Give the nodes hostnames, or filenameTmpl a pattern, that differ in more than case.",
		Source: "talhelper v3.1.16, pkg/config/outputfilename.go",
	},
	{
		ID: HostnameTwice, Title: "The hostname is given in two places", Severity: Failure, Exit: ExitBadInput,
		Cause: "machine.network.hostname and a HostnameConfig document exclude each other: Talos refuses the config.",
		Remedy: "Keep the HostnameConfig document, and take machine.network.hostname out, or the other way round before " +
			"Talos 1.12.",
		Source: "machinery config/types/network/hostname.go",
	},
	{
		ID: HostnameMisleading, Title: "A hostname is the name of something else", Severity: Warning,
		Cause: "A node that is called localhost, or has an address or one of the cluster's DNS names as its " +
			"name, can't be told from it: its own name leads elsewhere.",
		Remedy: "Use a name like cp1.",
		Source: "RFC 6761, 6.3; siderolabs/talos#7685",
	},
	{
		ID: HostnameTooLong, Title: "A hostname is longer than Talos allows", Severity: Failure, Exit: ExitBadInput,
		Cause: "Talos accepts a name of at most 63 characters, or 253 with its domain. With a longer one the " +
			"node has no hostname.",
		Remedy: "Use a shorter name.",
		Source: "RFC 1123, 2.1; siderolabs/talos pkg/machinery/resources/network/hostname_spec.go",
	},
	{
		ID: HostnameIsEndpoint, Title: "A node has the name of the cluster's endpoint", Severity: Warning,
		Cause: "With several control planes the endpoint's name has to lead to all of them or to the VIP. A node of that " +
			"name resolves it to itself.",
		Remedy: "Give the node, or the endpoint, another name.",
		Source: "Talos documentation, Production Notes, Kubernetes endpoint; Host DNS, resolveMemberNames",
	},
}
