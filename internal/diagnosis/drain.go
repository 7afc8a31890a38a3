package diagnosis

// What draining a node finds.
const (
	DrainBlocked   ID = "TM180"
	DrainUnending  ID = "TM181"
	CordonLeft     ID = "TM182"
	CordonOfOthers ID = "TM183"
)

var drainEntries = []Entry{
	{
		ID: DrainBlocked, Title: "A pod can't be evicted", Severity: Failure, Exit: ExitKubernetes,
		Cause: "Before a node reboots its pods are evicted, and Kubernetes evicts no pod whose PodDisruptionBudget forbids " +
			"it. A budget that allows no disruption at all, such as minAvailable: 1 for a single replica, holds its pod for " +
			"ever, and so do two budgets for one pod. Our cordon was taken back, and the node goes on as before.",
		Remedy: "Give the workload another replica, wait until its pods are ready, or relax or delete the budget that the " +
			"message names; then run it again.",
		Source: "kubernetes/kubernetes, pkg/registry/core/pod/storage/eviction.go at v1.37.0",
	},
	{
		ID: DrainUnending, Title: "An evicted pod does not end", Severity: Failure, Exit: ExitKubernetes,
		Cause: "The pod was told to end and is still there after the limit: its terminationGracePeriodSeconds is long, " +
			"a finalizer holds it, or the kubelet of its node does not work. Our cordon was taken back.",
		Remedy: "kubectl describe pod shows what it waits for. Run it again once the pod is gone.",
		Source: "kubernetes.io, Pod Lifecycle, Termination of Pods",
	},
	{
		ID: CordonLeft, Title: "The node stays cordoned", Severity: Failure, Exit: ExitKubernetes,
		Cause: "The node was cordoned for a drain, and the cordon was not taken back: it has not come back whole from its " +
			"upgrade, the Kubernetes API was away, or a run was killed. Until that is done it gets no new pods.",
		Remedy: "kubectl uncordon <node>, or run it again: a cordon of ours is marked as such, and taken back at the end.",
		Source: sourceOurs,
	},
	{
		ID: CordonOfOthers, Title: "Somebody else cordoned the node", Severity: Warning,
		Cause: "The node takes no new pods, and it was not this program that cordoned it. Who did had a reason, so the " +
			"cordon stays as it is.",
		Remedy: "kubectl uncordon <node>, when that reason is gone.",
		Source: "kubernetes.io, Nodes, Manual Node administration",
	},
}
