package diagnosis

// What the audit finds about addresses: TM200 to TM214.
const (
	GatewayOutside        ID = "TM200"
	GatewayIsOwnAddress   ID = "TM201"
	NetworkAddress        ID = "TM202"
	AddressMalformed      ID = "TM203"
	AddressTwice          ID = "TM204"
	ResolverInCluster     ID = "TM205"
	TimeServerInCluster   ID = "TM206"
	TalosconfigNobody     ID = "TM207"
	AddressWithoutPrefix  ID = "TM208"
	AddressNotOfOneNode   ID = "TM209"
	EndpointNotCertified  ID = "TM210"
	DefaultRoutesEqual    ID = "TM211"
	DefaultWithoutGateway ID = "TM212"
)

var addressEntries = []Entry{
	{
		ID: GatewayOutside, Title: "A gateway is not in any subnet of its link", Severity: Failure, Exit: ExitBadInput,
		Cause: "The kernel refuses a route through a next hop that the link does not reach: if it is the only " +
			"one, the node can't leave its network. It is a warning for IPv6, where routers announce " +
			"themselves, and for other routes.",
		Remedy: "Correct the gateway or the prefix length of the link's address.",
		Source: "Linux, ip-route(8); siderolabs/talos internal/app/machined/pkg/controllers/network/route_spec.go",
	},
	{
		ID: GatewayIsOwnAddress, Title: "A gateway is the node's own address", Severity: Failure, Exit: ExitBadInput,
		Cause: "A node that is its own next hop sends nothing out of its network. If it may have another way " +
			"out, it is a warning.",
		Remedy: "Set the router's address as gateway.",
		Source: "Linux, ip-route(8)",
	},
	{
		ID: NetworkAddress, Title: "A static address is its subnet's network or broadcast address", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "The first and the last address of an IPv4 subnet belong to no machine. The first address of an " +
			"IPv6 subnet belongs to every router. Neighbours never answer a broadcast address: it is a failure " +
			"if the node has no other. Often the subnet was copied where the address belongs.",
		Remedy: "Give the node an address of its own within the subnet.",
		Source: "RFC 1122, 3.2.1.3; RFC 4291, 2.6.1",
	},
	{
		ID: AddressMalformed, Title: "A value is not a usable address", Severity: Failure, Exit: ExitBadInput,
		Cause: "A range, an address of three numbers, a prefix length out of range, or an IPv6 address with a " +
			"port and without brackets. In fields that accept any text, where one wrong entry stops nothing, it " +
			"is a warning.",
		Remedy: "Write one address. Put an IPv6 address in brackets in a URL or before a port.",
		Source: "machinery config/types/v1alpha1/v1alpha1_validation.go; talhelper pkg/config/validator.go; RFC 3986, 3.2.2",
	},
	{
		ID: AddressTwice, Title: "Two nodes or two links have the same address", Severity: Failure, Exit: ExitBadInput,
		Cause: "Talos sets what the config says: two machines then answer at one address in turn. It is a " +
			"failure if others know a node by the address. In networks local to each node it may be intended.",
		Remedy: "Give each its own address.",
		Source: "RFC 5227",
	},
	{
		ID: ResolverInCluster, Title: "A node's name server is part of this cluster", Severity: Warning,
		Cause: "A name server that is a node, or lies in the pod or service subnets, answers only once the " +
			"cluster is up. The node needs it before that, to pull images and find its endpoint.",
		Remedy: "Name a resolver outside of the cluster.",
		Source: "Talos documentation, Host DNS; siderolabs/talos#9372",
	},
	{
		ID: TimeServerInCluster, Title: "A node's time server is part of this cluster", Severity: Warning,
		Cause: "etcd starts only once the clock is in sync. A time server that is a node, or lies in the pod or " +
			"service subnets, is not up yet.",
		Remedy: "Name a time server outside of the cluster.",
		Source: "siderolabs/talos#6493, #6818",
	},
	{
		ID: TalosconfigNobody, Title: "The talosconfig has an endpoint that belongs to no node", Severity: Warning,
		Cause: "No node of the inventory has the address or name: it is a typo, a machine that is gone, or a " +
			"balancer in front of the control planes.",
		Remedy: "List the control planes' own addresses as endpoints.",
		Source: "Talos documentation, talosctl, Endpoints and nodes",
	},
	{
		ID: AddressWithoutPrefix, Title: "A static address has no prefix length", Severity: Warning,
		Cause:  "Talos reads it as a network of one address: the link reaches no neighbour and no gateway.",
		Remedy: "Add the subnet's prefix length, as in 192.0.2.11/24.",
		Source: "machinery config/types/v1alpha1/v1alpha1_types.go, Device.addresses",
	},
	{
		ID: AddressNotOfOneNode, Title: "A node has an address that can't belong to one machine", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "Loopback, multicast, broadcast and unspecified addresses don't lead to one machine. A " +
			"link-local address works only within its own segment.",
		Remedy: "Give the node an ordinary address.",
		Source: "IANA special-purpose address registries; RFC 6890",
	},
	{
		ID: EndpointNotCertified, Title: "The talosconfig dials an address that no control plane's certificate " +
			"covers",
		Severity: Warning,
		Cause: "A node's certificate holds its own addresses, its hostname and certSANs. Over any other address or name " +
			"talosctl's calls fail with a certificate error, unless the address is one that is not in the files.",
		Remedy: "If it is the address of a control plane that was replaced, set the endpoints anew: " +
			"talosctl config endpoint <control planes>; mage kubeconfig does that too. Otherwise add the name or " +
			"address to certSANs of the control planes.",
		Source: "siderolabs/talos internal/app/machined/pkg/controllers/secrets/api.go; Talos documentation, " +
			"machine.certSANs",
	},
	{
		ID: DefaultRoutesEqual, Title: "Two default routes on two links have the same metric", Severity: Warning,
		Cause: "The kernel keeps one route to a network for each metric. Which of the two links leads out of the network " +
			"depends on which came up first, and answers may leave by another link than the calls came in on.",
		Remedy: "Keep one of the routes, or give the second a higher metric.",
		Source: "Linux, ip-route(8); machinery resources/network/network.go, DefaultRouteMetric",
	},
	{
		ID: DefaultWithoutGateway, Title: "A default route has no gateway", Severity: Warning,
		Cause: "Without one the node takes every address for a neighbour of the link, and asks in vain who has it. It " +
			"works on tunnels, and where a router answers for others. From Talos 1.12 on it is refused.",
		Remedy: "Add the router's address as gateway.",
		Source: "Linux, ip-route(8); machinery config/types/network/link.go",
	},
}
