package diagnosis

// What keeps an upgrade of Talos from being begun.
const (
	DowngradeNotAllowed  ID = "TM175"
	DowngradeAcrossEtcd  ID = "TM176"
	UpgradeEtcdUnhealthy ID = "TM177"
	UpgradeNodeAway      ID = "TM178"
	UpgradeConfigRefused ID = "TM179"
	UpgradeUnread        ID = "TM184"
	NoQuorumToSpare      ID = "TM185"
	UpgradePlatform      ID = "TM186"
)

var upgradePlanEntries = []Entry{
	{
		ID: DowngradeNotAllowed, Title: "The declared Talos is older than the one that runs", Severity: Failure,
		Exit: ExitPreflight,
		Cause: "An installer takes a newer Talos over as far as its release allows, but nobody tests that way: what the " +
			"newer one wrote may be unknown to the older one.",
		Remedy: "Declare the version that runs or a newer one; if going back is meant, add -allowDowngrade.",
		Source: upgradeSource,
	},
	{
		ID: DowngradeAcrossEtcd, Title: "A downgrade of Talos would bring an older etcd", Severity: Failure,
		Exit: ExitPreflight,
		Cause: "Each Talos brings its own etcd (3.5 up to Talos 1.10, 3.6 from 1.11 on, 3.7 from 1.14 on). etcd refuses " +
			"to start on data that a newer minor version has taken over, and while a cluster of both runs it is not healthy.",
		Remedy: "Stay on the release. To go back for good, restore an etcd snapshot from before the upgrade.",
		Source: "siderolabs/talos, pkg/machinery/constants/constants.go; etcd documentation, Downgrading",
	},
	{
		ID: UpgradeEtcdUnhealthy, Title: "etcd is not whole, so no node is upgraded", Severity: Failure, Exit: ExitPreflight,
		Cause: "A control plane takes its member of etcd down while it reboots. With another member unhealthy that can " +
			"cost the quorum, and without an etcd no node can be drained.",
		Remedy: "Make etcd whole first: mage etcd:status shows what is wrong.",
		Source: "siderolabs/talos, internal/pkg/etcd/etcd.go (ValidateForUpgrade) at v1.13.9",
	},
	{
		ID: UpgradeNodeAway, Title: "A node that is to be upgraded does not run", Severity: Failure, Exit: ExitPreflight,
		Cause: "Only a node that answers with its own config can be upgraded: one in maintenance has nothing to upgrade, " +
			"and of a silent one nothing is known. One that gives no answer is waited for only if it has a cordon of ours, as " +
			"after a run that was killed while it rebooted. Without a control plane etcd is not whole, and nothing is upgraded.",
		Remedy: "Bring the node back; or leave a worker out: -node= names the others. A control plane that is gone for " +
			"good is replaced first, with mage replaceNode.",
		Source: sourceOurs,
	},
	{
		ID: UpgradeConfigRefused, Title: "The new Talos would not start with the config that the node runs",
		Severity: Failure, Exit: ExitPreflight,
		Cause: "After an upgrade the node boots with the config that it has, and the new release judges it by its own " +
			"rules. Where it refuses it, or reads nothing of Kubernetes in it, the node does not come back into the cluster.",
		Remedy: "Correct what is declared, apply it with -update while the old release runs, then upgrade.",
		Source: "siderolabs/talos, internal/app/machined/pkg/controllers/config/acquire.go at v1.14.1",
	},
	{
		ID: UpgradeUnread, Title: "A node does not tell what it runs", Severity: Failure, Exit: ExitPreflight,
		Cause: "Whether an upgrade is needed, allowed, and done is told by the version and the schematic that the node " +
			"itself names, by nothing else. It could not be asked.",
		Remedy: "Look at the node with mage status, then run it again.",
		Source: "siderolabs/talos, pkg/machinery/resources/runtime/version.go at v1.14.1",
	},
	{
		ID: NoQuorumToSpare, Title: "etcd has no member to spare for an upgrade", Severity: Warning,
		Cause: "With one or two members every one of them is needed: while a control plane reboots there is no etcd, and " +
			"no Kubernetes API. What runs on the nodes goes on.",
		Remedy: "Nothing, if that is agreed to: a snapshot is taken and verified first. Else add control planes, three in " +
			"all.",
		Source: "siderolabs/talos#9276",
	},
	{
		ID: UpgradePlatform, Title: "The installer is for another platform than the node runs on", Severity: Failure,
		Exit: ExitPreflight,
		Cause: "From 1.10 on an installer has the platform in its name and in its kernel arguments: the node would look " +
			"for its config and network settings elsewhere than now.",
		Remedy: "Use the installer of the node's own platform, such as nocloud-installer.",
		Source: factorySource,
	},
}
