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
		ID: ClusterNameInvalid, Title: "The cluster's name does not fit where it is used", Severity: Warning,
		Cause: "The name is part of file names, of the contexts of kubeconfig and talosconfig, and of certificates. " +
			"Anything but lower-case letters, digits, dots and hyphens has to be quoted somewhere, and a slash is a folder.",
		Remedy: "Use lower-case letters, digits and hyphens.",
		Source: "talhelper v3.1.16, pkg/config/outputfilename.go; kubernetes.io, Object Names and IDs",
	},
	{
		ID: DNSDomainInvalid, Title: "The cluster's DNS domain does not fit", Severity: Failure, Exit: ExitBadInput,
		Cause: "cluster.network.dnsDomain is the end of every service's name and in the API server's certificate: it has " +
			"to be a DNS name. One that ends in .local beside cluster.local meets multicast DNS on many networks.",
		Remedy: "Use cluster.local, or a name of a domain of your own.",
		Source: "RFC 1123, 2.1; RFC 6762, 3",
	},
	{
		ID: FileNamesCollide, Title: "Two machine configs have file names that differ in case alone", Severity: Warning,
		Cause: "The file systems of macOS and Windows take them for one file: the second node's config replaces the " +
			"first's.",
		Remedy: "Give the nodes hostnames, or filenameTmpl a pattern, that differ in more.",
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
		ID: HostnameMisleading, Title: "A hostname is something else's name", Severity: Warning,
		Cause: "A node called localhost, like an address or like the cluster's DNS names can't be told from it: its own " +
			"name leads elsewhere.",
		Remedy: "Use a name like cp1.",
		Source: "RFC 6761, 6.3; siderolabs/talos#7685",
	},
	{
		ID: HostnameTooLong, Title: "A hostname is longer than Talos takes", Severity: Failure, Exit: ExitBadInput,
		Cause:  "Talos takes a name of 63 characters, and 253 with its domain; with a longer one the node has no hostname.",
		Remedy: "Use a shorter name.",
		Source: "RFC 1123, 2.1; siderolabs/talos pkg/machinery/resources/network/hostname_spec.go",
	},
	{
		ID: HostnameIsEndpoint, Title: "A node is called like the cluster's endpoint", Severity: Warning,
		Cause: "With several control planes the endpoint's name has to lead to all of them or to the VIP. A node of that " +
			"name resolves it to itself.",
		Remedy: "Give the node, or the endpoint, another name.",
		Source: "Talos documentation, Production Notes, Kubernetes endpoint; Host DNS, resolveMemberNames",
	},
}
