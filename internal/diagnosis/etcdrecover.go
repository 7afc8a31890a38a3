package diagnosis

// What restoring an etcd that has lost its quorum for good finds.
const (
	FormerEtcdAway   ID = "TM143"
	SnapshotUnusable ID = "TM144"
	RecoverNotNeeded ID = "TM145"
	QuorumPossible   ID = "TM146"
	MemberUnsaved    ID = "TM147"
	MemberUnwiped    ID = "TM148"
	RecoverFailed    ID = "TM149"
)

var etcdRecoverEntries = []Entry{
	{
		ID: FormerEtcdAway, Title: "A silent control plane may hold the former etcd", Severity: Warning,
		Cause: "etcd was restored while this control plane did not answer, so nobody has wiped what it holds. If enough of " +
			"such machines come back, the former etcd starts again beside the restored one, and the cluster has two.",
		Remedy: "Wipe the machine's disk before it is connected to the network again. If it answers already, run the same " +
			"command again: it wipes the machine's etcd.",
		Source: "etcd documentation, Disaster recovery",
	},
	{
		ID: SnapshotUnusable, Title: "The file is no snapshot of etcd", Severity: Failure, Exit: ExitBadInput,
		Cause: "etcd can be restored from a snapshot, which ends with its own hash, or from a database that was copied off " +
			"a member's disk. The file is neither, or not whole. No node was asked anything.",
		Remedy: "Name a file that mage etcd:snapshot made, or a copy of /var/lib/etcd/member/snap/db.",
		Source: "siderolabs/talos, cmd/talosctl/cmd/talos/bootstrap.go at v1.14.1",
	},
	{
		ID: RecoverNotNeeded, Title: "etcd has its quorum", Severity: Failure, Exit: ExitBootstrap,
		Cause: "A majority of etcd's members runs and agrees. Nothing is restored over an etcd that works: its data is " +
			"newer than any snapshot, and a second etcd must never start.",
		Remedy: "mage etcd:status shows the members; mage replaceNode replaces one whose machine is gone.",
		Source: "etcd documentation, Disaster recovery",
	},
	{
		ID: QuorumPossible, Title: "The quorum may come back", Severity: Failure, Exit: ExitBootstrap,
		Cause: "As long as a majority of the members may be there, etcd can come back by itself with all its data. A " +
			"control plane that does not answer counts as one that may hold it, and so does one that boots.",
		Remedy: "Bring the control planes up; mage bootstrap waits for their etcd. Name those that are gone for good, or " +
			"whose etcd is beyond repair, with -destroyed=.",
		Source: "etcd documentation, Disaster recovery",
	},
	{
		ID: MemberUnsaved, Title: "What a member holds could not be saved", Severity: Failure, Exit: ExitBootstrap,
		Cause: "Before anything is wiped, what each control plane that answers holds is copied to this computer: it may be " +
			"newer than the snapshot. This one gave neither a snapshot nor a whole copy of its database.",
		Remedy: "Run it again. If its data is beyond use, name it with -destroyed=.",
		Source: sourceOurs,
	},
	{
		ID: MemberUnwiped, Title: "A control plane's etcd was not wiped", Severity: Failure, Exit: ExitBootstrap,
		Cause: "etcd is restored only once every control plane that answers holds none. This one refused the reset, or " +
			"did not come back without data in time.",
		Remedy: "Look at the machine's console, then run the same command again: it goes on from what it finds.",
		Source: "siderolabs/talos, internal/app/machined/internal/server/v1alpha1/v1alpha1_server.go at v1.14.1",
	},
	{
		ID: RecoverFailed, Title: "etcd was not restored", Severity: Failure, Exit: ExitBootstrap,
		Cause: "The node took the snapshot and the call, which says nothing yet: it looks at the snapshot only afterwards. " +
			"Its etcd then failed, or was not healthy in time. The message has the node's own words.",
		Remedy: "Run it again, with another snapshot if the node found fault with this one. What each member held was " +
			"saved before.",
		Source: "siderolabs/talos, internal/app/machined/pkg/system/services/etcd.go at v1.14.1",
	},
}
