package diagnosis

// What looking after a cluster's etcd finds.
const (
	SnapshotImpossible ID = "TM170"
	SnapshotFailed     ID = "TM171"
	DefragHeldBack     ID = "TM172"
	DefragFailed       ID = "TM173"
	SnapshotNotIgnored ID = "TM174"
)

var etcdCareEntries = []Entry{
	{
		ID: SnapshotImpossible, Title: "No control plane can give a snapshot", Severity: Failure, Exit: ExitBootstrap,
		Cause: "A snapshot is copied from a control plane whose etcd runs and has a leader. None of those that were asked " +
			"does; the message says how each is.",
		Remedy: "mage status shows what is wrong with each. An etcd without a leader can still be copied off one member: " +
			"name it with -node=.",
		Source: "siderolabs/talos, internal/app/machined/internal/server/v1alpha1/v1alpha1_server.go at v1.14.1",
	},
	{
		ID: SnapshotFailed, Title: "The snapshot is not whole", Severity: Failure, Exit: ExitBootstrap,
		Cause: "What a node sends ends with its own hash, and what arrived does not fit it: the connection or the node " +
			"stopped in the middle. Talos does not tell that otherwise. Nothing was left on the disk.",
		Remedy: "Run it again, or name another control plane with -node=.",
		Source: "siderolabs/talos, pkg/chunker/stream/stream.go at v1.14.1",
	},
	{
		ID: DefragHeldBack, Title: "etcd is not whole, so it is not defragmented", Severity: Failure, Exit: ExitBootstrap,
		Cause: "While a member defragments its database it answers nobody. That is harmless as long as all the others are " +
			"healthy.",
		Remedy: "Make etcd whole first: mage etcd:status shows what is wrong.",
		Source: "etcd documentation, Maintenance, Defragmentation",
	},
	{
		ID: DefragFailed, Title: "A member was not defragmented", Severity: Failure, Exit: ExitBootstrap,
		Cause: "The member did not say that it is done, or was not healthy again in time. The members after it were left " +
			"alone.",
		Remedy: "Look at the member with mage etcd:status, then run it again.",
		Source: "etcd documentation, Maintenance, Defragmentation",
	},
	{
		ID: SnapshotNotIgnored, Title: "git does not ignore the snapshot", Severity: Warning,
		Cause:  "A snapshot holds everything that Kubernetes keeps, all Secrets among it.",
		Remedy: "List the file in .gitignore, or write it outside of the repository.",
		Source: sourceOurs,
	},
}
