package diagnosis

// What the audit finds about VIPs and the endpoint: TM215 to TM224.
const (
	VIPsDiffer          ID = "TM215"
	VIPOnBareLink       ID = "TM216"
	VIPOnWorker         ID = "TM217"
	EndpointWithoutPort ID = "TM218"
	VIPNotShared        ID = "TM219"
	VIPOffLink          ID = "TM220"
)

const vipSource = "Talos documentation, Virtual (shared) IP"

var endpointEntries = []Entry{
	{
		ID: VIPsDiffer, Title: "The control planes declare several VIPs", Severity: Warning,
		Cause: "Each VIP is an address of its own that etcd elects an owner for. Two of one family are usually " +
			"a typo in one node's file.",
		Remedy: "Declare the same VIP on every control plane.",
		Source: vipSource,
	},
	{
		ID: VIPOnBareLink, Title: "The VIP is on a link that gets no address", Severity: Warning,
		Cause: "The VIP is added to a link that is up already: a link with neither DHCP nor a static address is " +
			"in no network, so nobody finds the VIP there, unless a router or a cloud's metadata gives it an " +
			"address.",
		Remedy: "Put the VIP on the link that has the node's address.",
		Source: vipSource,
	},
	{
		ID: VIPOnWorker, Title: "A worker declares a VIP", Severity: Failure, Exit: ExitBadInput,
		Cause: "The owner of the VIP is elected through etcd, which workers don't have. Talos refuses the older " +
			"form of such a config; in a document it has no effect, which is a warning.",
		Remedy: "Take the VIP out of the worker's config.",
		Source: "machinery config/types/v1alpha1/v1alpha1_validation.go; " + vipSource,
	},
	{
		ID: EndpointWithoutPort, Title: "The endpoint has no port", Severity: Warning,
		Cause:  "Without one, clients use 443, while control planes serve the Kubernetes API on 6443.",
		Remedy: "Write the port out: https://192.0.2.10:6443, or :443 if a balancer takes calls there.",
		Source: "Talos documentation, Production Notes, Kubernetes endpoint",
	},
	{
		ID: VIPNotShared, Title: "A control plane does not declare the VIP", Severity: Warning,
		Cause: "Other control planes declare the VIP, but this one does not. When they are down the endpoint is " +
			"gone, although etcd may be up.",
		Remedy: "Declare the VIP on every control plane.",
		Source: vipSource,
	},
	{
		ID: VIPOffLink, Title: "The VIP is on another link than its subnet", Severity: Warning,
		Cause: "The node adds the VIP to the link that declares it, and announces it there. Machines of the VIP's subnet " +
			"look for it on the other link's network: they find it late or not at all when the owner changes.",
		Remedy: "Declare the VIP on the link that has an address of its subnet.",
		Source: vipSource,
	},
}
