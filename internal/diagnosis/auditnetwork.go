package diagnosis

// What the audit finds about pod, service and node networks: TM225 to TM234.
const (
	SubnetsOverlap        ID = "TM225"
	NodeNetworkOverlaps   ID = "TM226"
	EtcdSubnetsSelectNone ID = "TM227"
	SubnetFamilies        ID = "TM228"
	ServiceSubnetSize     ID = "TM229"
	PodSubnetSize         ID = "TM230"
	ClusterSubnetsDiffer  ID = "TM231"
	SubnetHasHostBits     ID = "TM232"
	NoClusterNetwork      ID = "TM233"
)

var networkEntries = []Entry{
	{
		ID: SubnetsOverlap, Title: "The pod and service subnets overlap", Severity: Failure, Exit: ExitBadInput,
		Cause: "Pods and services would share addresses. Kubernetes skips the services' part of a larger pod " +
			"subnet, which is a warning. If the services cover all of it, no pod gets an address. A subnet that " +
			"is not declared has Talos' default: 10.244.0.0/16 for pods, 10.96.0.0/12 for services.",
		Remedy: "Choose subnets that don't overlap, before the cluster exists.",
		Source: "machinery constants/constants.go, DefaultIPv4PodCIDR and DefaultIPv4ServiceCIDR; kubernetes.io, Cluster " +
			"Networking",
	},
	{
		ID: NodeNetworkOverlaps, Title: "A node's network overlaps the pod or service subnets", Severity: Warning,
		Cause: "The node routes the shared addresses to its own link: pods, services or neighbours there can't " +
			"be reached. Nobody notices until one of them gets such an address.",
		Remedy: "Choose other pod and service subnets, before the cluster exists, or correct the prefix length of the " +
			"node's address.",
		Source: "siderolabs/talos#8882; kubernetes.io, Cluster Networking",
	},
	{
		ID: EtcdSubnetsSelectNone, Title: "etcd's subnets leave out every address of the node", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "etcd waits forever, without an error, for an address that matches advertisedSubnets or " +
			"listenSubnets. If the filter selects addresses that a router or a private network may add, it is a " +
			"warning.",
		Remedy: "Put the control planes' subnet into cluster.etcd.advertisedSubnets and listenSubnets.",
		Source: "siderolabs/talos#7947",
	},
	{
		ID: SubnetFamilies, Title: "Pod, service and node addresses are of different families", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "Services of a family need pods and nodes of that family. Dual stack needs all three to have " +
			"both. Nodes must have the first service subnet's family. IPv6 addresses from a router are in no " +
			"file, so their absence is a warning.",
		Remedy: "Declare pod and service subnets of the families that the nodes have.",
		Source: "kubernetes.io, IPv4/IPv6 dual-stack; siderolabs/talos#11625",
	},
	{
		ID: ServiceSubnetSize, Title: "A service subnet is larger than Kubernetes allows", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "The API server refuses service ranges of more than 20 host bits and does not start: /12 is the " +
			"largest for IPv4, /108 for IPv6. Kubernetes 1.33 and newer accept larger ones, which is a warning.",
		Remedy: "Use a smaller service subnet, such as 10.96.0.0/12 or 2001:db8:96::/112.",
		Source: "kubernetes/kubernetes cmd/kube-apiserver/app/options/validation.go",
	},
	{
		ID: PodSubnetSize, Title: "A pod subnet is too small for the nodes", Severity: Failure, Exit: ExitBadInput,
		Cause: "Each node gets its own part of the pod subnet, by default /24 for IPv4 and /64 for IPv6. If " +
			"there is too little, the controller manager does not start, or the last nodes get no pod " +
			"addresses, unless their CNI has its own.",
		Remedy: "Use a larger pod subnet, or set node-cidr-mask-size in cluster.controllerManager.extraArgs.",
		Source: "kubernetes.io, kube-controller-manager, --node-cidr-mask-size",
	},
	{
		ID: ClusterSubnetsDiffer, Title: "The machine configs disagree on the pod or service subnets", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "Each node filters its addresses by the subnets of its own file, and each control plane runs Kubernetes " +
			"with its own: they must be the same everywhere. On a worker it is a warning.",
		Remedy: "Set the subnets for all nodes at once, and generate the configs again.",
		Source: "siderolabs/talos internal/app/machined/pkg/controllers/network/node_address.go",
	},
	{
		ID: SubnetHasHostBits, Title: "A subnet is written as an address in it", Severity: Warning,
		Cause: "Kubernetes uses the network that the address lies in; other programs refuse it. The intended " +
			"subnet may be another one.",
		Remedy: "Write the subnet's first address.",
		Source: "RFC 4632, 3.1",
	},
	{
		ID: NoClusterNetwork, Title: "A config for Talos 1.14 says nothing of the cluster's network", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "Up to 1.13 Talos had defaults for the pod and service subnets. Since 1.14 a config without cluster.network " +
			"and without a KubeNetworkConfig is valid, and the node then starts no kubelet and no API server, without an " +
			"error.",
		Remedy: "Write the subnets into cluster.network, or into a KubeNetworkConfig.",
		Source: "machinery config/types/v1alpha1/v1alpha1_k8s_bridge.go, K8sNetworkConfig; siderolabs/talos " +
			"internal/app/machined/pkg/controllers/k8s/kubelet_config.go",
	},
}
