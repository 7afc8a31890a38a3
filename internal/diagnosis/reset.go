package diagnosis

// What stands in the way of a target that may lose data, and what a reset finds.
const (
	ObjectMissing      ID = "TM190"
	NotAgreed          ID = "TM191"
	UnknownCluster     ID = "TM192"
	ResetHeldBack      ID = "TM193"
	ResetFailed        ID = "TM194"
	ResetWithoutEffect ID = "TM195"
	ResetNoReturn      ID = "TM196"
	DiskNotWipeable    ID = "TM197"
	NotReset           ID = "TM198"
)

var resetEntries = []Entry{
	{
		ID: ObjectMissing, Severity: Failure, Exit: ExitBadInput,
		Title:  "A target that may lose data was not told what it is for",
		Cause:  "Such a target never means all nodes by itself: its command line names some, or the cluster.",
		Remedy: "Give it -node=<node>, or -cluster=<its name> for all nodes.",
		Source: sourceOurs,
	},
	{
		ID: NotAgreed, Title: "Nobody agreed to a loss", Severity: Failure, Exit: ExitBadInput,
		Cause: "What is lost can't be taken back, so the name of the node or of the cluster is typed before it begins. " +
			"Without a terminal nobody can be asked, and another name is no consent. Nothing was changed.",
		Remedy: "Look at what would be lost with -dryRun. -yes agrees to it; no variable does.",
		Source: sourceOurs,
	},
	{
		ID: UnknownCluster, Title: "-cluster names another cluster", Severity: Failure, Exit: ExitBadInput,
		Cause:  "-cluster stands for all nodes of the cluster that the files declare, and only by its name.",
		Remedy: "Correct the name, or TALOS_DIR if these are another cluster's files.",
		Source: sourceOurs,
	},
	{
		ID: ResetHeldBack, Title: "A reset would cost etcd its quorum", Severity: Failure, Exit: ExitBootstrap,
		Cause: "More than half of etcd's members have to be healthy, or Kubernetes stops. Without the nodes that were " +
			"named, those that are left would not be.",
		Remedy: "Make the other members healthy first: mage etcd:status shows what is wrong. To wipe the whole cluster, " +
			"name it with -cluster=.",
		Source: "etcd documentation, Failure modes",
	},
	{
		ID: ResetFailed, Title: "A node was not reset", Severity: Failure, Exit: ExitApply,
		Cause: "The node refused, or did not begin although it was asked several times: Talos runs one sequence at a time, " +
			"and an install or an upgrade gives way to no reset.",
		Remedy: "Wait until what the node does is over (mage status), then run it again.",
		Source: "siderolabs/talos, internal/app/machined/pkg/runtime/v1alpha1/v1alpha1_priority_lock.go at v1.14.1",
	},
	{
		ID: ResetWithoutEffect, Title: "A node came back from its reset with its config", Severity: Failure, Exit: ExitApply,
		Cause: "It rebooted, and still has what should have been wiped. A reset that fails before it wipes ends with a " +
			"reboot: most often since the node could not leave etcd, or a partition could not be opened.",
		Remedy: "Look at the console, or run it again and watch mage status. etcd has to answer for a member to leave it.",
		Source: "siderolabs/talos#8057, #9448; internal/app/machined/pkg/runtime/v1alpha1/v1alpha1_sequencer.go at v1.14.1",
	},
	{
		ID: ResetNoReturn, Title: "A node did not come back from its reset", Severity: Failure, Exit: ExitApply,
		Cause: "It was wiped, rebooted, and does not answer. With its config went its static addresses, so it may be where " +
			"DHCP puts it. It may have nothing to boot from; or it boots from an ISO although Talos is on its disk, " +
			"which stops it (talos.halt_if_installed); or it is off.",
		Remedy: "Look at its console. Put its disk first in the boot order, or with -systemDisk boot it from the ISO or " +
			"PXE. mage discover finds it at another address.",
		Source: "siderolabs/talos#12053, #7558, #12954",
	},
	{
		ID: DiskNotWipeable, Title: "-disk names a disk that can't be wiped", Severity: Failure, Exit: ExitBadInput,
		Cause:  "-disk is for disks that a node has besides the one that Talos is on, and that can be written to.",
		Remedy: "Correct -disk. -systemDisk wipes the disk that Talos is on.",
		Source: "siderolabs/talos, internal/app/machined/internal/server/v1alpha1/v1alpha1_server.go at v1.14.1",
	},
	{
		ID: NotReset, Title: "A node keeps what it has", Severity: Failure, Exit: ExitApply,
		Cause: "It does not answer, so it can't be asked to wipe anything. When it comes back it still has its config, its " +
			"certificates and, on a control plane, etcd's data.",
		Remedy: "Switch it on, then run it again. What can't be reached any more, wipe from other media.",
		Source: sourceOurs,
	},
}
