package diagnosis

// What the audit finds about addresses: TM200 to TM214.
const (
	GatewayOutside       ID = "TM200"
	GatewayIsOwnAddress  ID = "TM201"
	NetworkAddress       ID = "TM202"
	AddressMalformed     ID = "TM203"
	AddressTwice         ID = "TM204"
	ResolverInCluster    ID = "TM205"
	TimeServerInCluster  ID = "TM206"
	TalosconfigNobody    ID = "TM207"
	AddressWithoutPrefix ID = "TM208"
	AddressNotOfOneNode  ID = "TM209"
	EndpointNotCertified ID = "TM210"
)

var addressEntries = []Entry{
	{
		ID: GatewayOutside, Title: "A gateway is in no subnet of its link", Severity: Failure, Exit: ExitBadInput,
		Cause: "The kernel refuses a route through a next hop that the link does not reach: the node has no way out of " +
			"its network, if it is the only one. For IPv6, where routers announce themselves, and for other routes it is a " +
			"warning.",
		Remedy: "Correct the gateway or the prefix length of the link's address.",
		Source: "Linux, ip-route(8); siderolabs/talos internal/app/machined/pkg/controllers/network/route_spec.go",
	},
	{
		ID: GatewayIsOwnAddress, Title: "A gateway is the node's own address", Severity: Failure, Exit: ExitBadInput,
		Cause: "A node that is its own next hop sends nothing out of its network. Where it may have another way out it " +
			"is a warning.",
		Remedy: "Set the router's address as gateway.",
		Source: "Linux, ip-route(8)",
	},
	{
		ID: NetworkAddress, Title: "A static address is its subnet's network or broadcast address", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "The first and the last address of an IPv4 subnet are no machine's; the first of an IPv6 subnet is every " +
			"router's. Neighbours never answer a broadcast address: it is a failure if the node has no other. Often the " +
			"subnet was copied where the address belongs.",
		Remedy: "Give the node an address of its own within the subnet.",
		Source: "RFC 1122, 3.2.1.3; RFC 4291, 2.6.1",
	},
	{
		ID: AddressMalformed, Title: "Something stands for an address that is none", Severity: Failure, Exit: ExitBadInput,
		Cause: "A range, an address of three numbers, a prefix length out of range, or an IPv6 address with a port and " +
			"without brackets. Fields that take any text, where one wrong entry stops nothing, are a warning.",
		Remedy: "Write one address; an IPv6 address in a URL, or before a port, has brackets.",
		Source: "machinery config/types/v1alpha1/v1alpha1_validation.go; talhelper pkg/config/validator.go; RFC 3986, 3.2.2",
	},
	{
		ID: AddressTwice, Title: "Two nodes or two links have the same address", Severity: Failure, Exit: ExitBadInput,
		Cause: "Talos sets what it is told: two machines then answer at one address by turns. In networks that exist on " +
			"each node by itself it may be meant: it is a failure where others know a node by the address.",
		Remedy: "Give each its own address.",
		Source: "RFC 5227",
	},
	{
		ID: ResolverInCluster, Title: "A node's name server is part of this cluster", Severity: Warning,
		Cause: "A name server that is a node, or lies in the pod or service subnets, answers only once the cluster is " +
			"up, and the node needs it to get there: to pull images and find its endpoint.",
		Remedy: "Name a resolver outside of the cluster.",
		Source: "Talos documentation, Host DNS; siderolabs/talos#9372",
	},
	{
		ID: TimeServerInCluster, Title: "A node's time server is part of this cluster", Severity: Warning,
		Cause: "etcd starts only once the clock is in sync. A time server that is a node, or lies in the pod or service " +
			"subnets, is not there yet.",
		Remedy: "Name a time server outside of the cluster.",
		Source: "siderolabs/talos#6493, #6818",
	},
	{
		ID: TalosconfigNobody, Title: "The talosconfig has an endpoint that is no node's", Severity: Warning,
		Cause: "No node of the inventory has the address or name: it is a typing error, a machine of the past, or a " +
			"balancer in front of the control planes.",
		Remedy: "List the control planes' own addresses as endpoints.",
		Source: "Talos documentation, talosctl, Endpoints and nodes",
	},
	{
		ID: AddressWithoutPrefix, Title: "A static address has no prefix length", Severity: Warning,
		Cause:  "Talos takes it for a network of one address: the link reaches no neighbour, and no gateway.",
		Remedy: "Add the subnet's prefix length, as in 192.0.2.11/24.",
		Source: "machinery config/types/v1alpha1/v1alpha1_types.go, Device.addresses",
	},
	{
		ID: AddressNotOfOneNode, Title: "A node has an address that no machine can have for itself", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "Loopback, multicast, broadcast and unspecified addresses don't lead to one machine, and a link-local one " +
			"only within its own segment.",
		Remedy: "Give the node an ordinary address.",
		Source: "IANA special-purpose address registries; RFC 6890",
	},
	{
		ID: EndpointNotCertified, Title: "No control plane's certificate is for an address that the talosconfig dials",
		Severity: Warning,
		Cause: "A node's certificate holds its own addresses, its hostname and certSANs. Over any other address or name " +
			"talosctl's calls fail with a certificate error, unless the address is one that is not in the files.",
		Remedy: "Add the name or address to certSANs of the control planes.",
		Source: "siderolabs/talos internal/app/machined/pkg/controllers/secrets/api.go; Talos documentation, " +
			"machine.certSANs",
	},
}
