package diagnosis

// What waiting for the Kubernetes API finds.
const (
	KubeconfigUnavailable ID = "TM134"
	APINotReady           ID = "TM135"
	EndpointSilent        ID = "TM136"
	NotRegistered         ID = "TM137"
	NodesNotReady         ID = "TM138"
	NotReadyExpected      ID = "TM139"
)

var apiEntries = []Entry{
	{
		ID: KubeconfigUnavailable, Title: "The kubeconfig can't be fetched", Severity: Failure, Exit: ExitKubernetes,
		Cause:  "No control plane answers with this cluster's certificate authority, or the file can't be written.",
		Remedy: "mage status shows which control planes answer; check that KUBECONFIG names a writable file.",
		Source: "Talos v1.13.9: internal/app/machined/internal/server/v1alpha1/v1alpha1_server.go (Kubeconfig)",
	},
	{
		ID: APINotReady, Title: "The Kubernetes API is not ready", Severity: Failure, Exit: ExitKubernetes,
		Cause: "etcd works, but the API server's static pod does not: its image is being pulled, or its " +
			"configuration is wrong.",
		Remedy: "Read the kubelet's log on a control plane; then run the same command again.",
		Source: "Talos v1.13.9: internal/app/machined/pkg/controllers/k8s/control_plane_static_pod.go",
	},
	{
		ID: EndpointSilent, Title: "The endpoint does not lead to the Kubernetes API", Severity: Failure,
		Exit: ExitKubernetes,
		Cause: "A control plane's own port 6443 answers, but the cluster's endpoint does not: the VIP is not " +
			"up, the balancer has no backend, or the name leads elsewhere.",
		Remedy: "Check the VIP's interface name in the machine configs, the balancer's backends or the DNS record.",
		Source: "siderolabs/talos#8640",
	},
	{
		ID: NotRegistered, Title: "Nodes are not registered in Kubernetes", Severity: Failure, Exit: ExitKubernetes,
		Cause:  "Their kubelets do not reach the API at the endpoint, or their hostname is not a valid node name.",
		Remedy: "Read the kubelet's log on the node.",
		Source: "siderolabs/talos#7928",
	},
	{
		ID: NodesNotReady, Title: "Nodes are not Ready", Severity: Failure, Exit: ExitKubernetes,
		Cause:  "Talos' own CNI is declared and a node's kubelet still reports NotReady.",
		Remedy: "kubectl describe node shows the missing condition.",
		Source: "siderolabs/talos#7967",
	},
	{
		ID: NotReadyExpected, Title: "Nodes are NotReady until a CNI is installed", Severity: OK,
		Cause: "With CNI none or custom, Talos installs no pod network, and Kubernetes calls a node Ready only once " +
			"there is one.",
		Remedy: "Install your CNI.",
		Source: "siderolabs/talos#7967, #9563",
	},
}
