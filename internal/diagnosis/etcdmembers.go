package diagnosis

// What taking members out of etcd, and replacing machines, finds.
const (
	UnknownMember        ID = "TM128"
	MemberAnswers        ID = "TM129"
	RemovalHeldBack      ID = "TM130"
	RemovalFailed        ID = "TM131"
	NodeObjectLeft       ID = "TM132"
	ReplacementUnnamed   ID = "TM133"
	FormerMachineAnswers ID = "TM142"
	ReplacementHoldsData ID = "TM157"
)

var etcdMemberEntries = []Entry{
	{
		ID: UnknownMember, Title: "etcd has no such member", Severity: Failure, Exit: ExitBadInput,
		Cause: "A member is named by its id: 16 hex digits, as mage etcd:members prints it. What was typed is none, or " +
			"differs little from a member's. A whole id that is like no member's is that of one that was removed already: " +
			"then there is nothing to do.",
		Remedy: "Look the id up with mage etcd:members.",
		Source: sourceOurs,
	},
	{
		ID: MemberAnswers, Title: "The member's node answers", Severity: Failure, Exit: ExitBootstrap,
		Cause: "Only what is gone for good is removed. A node that answers is a part of the cluster, and its etcd would " +
			"run on with data that nobody keeps up to date.",
		Remedy: "To take the node out of the cluster, reset it: it leaves etcd by itself then. To replace its machine, " +
			"power the machine off first.",
		Source: sourceOurs,
	},
	{
		ID: RemovalHeldBack, Title: "etcd can't do without the member", Severity: Failure, Exit: ExitBootstrap,
		Cause: "Members can be removed only by a majority of them, and a majority of those that are left has to be healthy " +
			"afterwards. The message says how many are.",
		Remedy: "Make the other members healthy first: mage etcd:status shows what is wrong. If most of them are gone for " +
			"good, mage etcd:recover restores etcd from a snapshot.",
		Source: "etcd documentation, Runtime reconfiguration",
	},
	{
		ID: RemovalFailed, Title: "The member was not removed", Severity: Failure, Exit: ExitBootstrap,
		Cause:  "etcd refused it, or lists the member still after the time that it may take. The message has its own words.",
		Remedy: "Look at the members with mage etcd:status, then run it again.",
		Source: "siderolabs/talos, internal/pkg/etcd/etcd.go at v1.14.1",
	},
	{
		ID: NodeObjectLeft, Title: "Kubernetes still lists the node", Severity: Failure, Exit: ExitKubernetes,
		Cause: "The node is gone, and its Node object could not be deleted: the Kubernetes API did not answer, or refused " +
			"it. Until it is deleted Kubernetes waits for that node's pods.",
		Remedy: "Delete the object with kubectl delete node once the API answers (mage status). mage replaceNode does so " +
			"if it is run again.",
		Source: sourceOurs,
	},
	{
		ID: ReplacementUnnamed, Title: "The files do not say which machine is the new one", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "A machine is replaced by the one that the files declare. Without its MAC address or UUID in them the old " +
			"machine could not be told from the new one.",
		Remedy: "Write the new machine's MAC address (hardwareAddr) into the files, then mage config:generate. " +
			"mage discover shows the machines that wait, with their addresses.",
		Source: sourceOurs,
	},
	{
		ID: FormerMachineAnswers, Title: "The machine that was replaced answers", Severity: Failure, Exit: ExitBootstrap,
		Cause: "What answers at the node's address runs with this cluster's certificates, and is not the machine that the " +
			"files declare: it is the one that was, or is to be, replaced.",
		Remedy: "Power it off for good, or wipe it. It must not come back with its old data.",
		Source: sourceOurs,
	},
	{
		ID: ReplacementHoldsData, Title: "The new machine may hold etcd's data of an earlier life", Severity: Failure,
		Exit: ExitBootstrap,
		Cause: "The machine that is to become a control plane is in maintenance mode, and its EPHEMERAL or ETCD partition " +
			"is not wiped. With a config its etcd would start as the member that it was, which the cluster would not know " +
			"any more, and never join. Nothing was removed.",
		Remedy: "Wipe its disk first. If it is the former machine, whose config alone is lost, give it that again: mage " +
			"applySequential.",
		Source: "siderolabs/talos, internal/app/machined/pkg/system/services/etcd.go at v1.14.1",
	},
}
