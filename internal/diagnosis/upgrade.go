package diagnosis

// What goes wrong while a node is upgraded.
const (
	UpgradeEtcdNotBack     ID = "TM155"
	UpgradeNotInKubernetes ID = "TM156"
	UpgradeOtherSystem     ID = "TM158"
	UpgradeImageMissing    ID = "TM159"
	UpgradePullFailed      ID = "TM187"
	UpgradeFailed          ID = "TM188"
	UpgradeRolledBack      ID = "TM189"
)

var upgradeEntries = []Entry{
	{
		ID: UpgradeEtcdNotBack, Title: "etcd is not whole after a control plane was upgraded", Severity: Failure,
		Exit: ExitApply,
		Cause: "The control plane runs the new Talos, and the members of etcd are not all healthy again in time. The nodes " +
			"after it were left alone: one more control plane that reboots could cost the quorum.",
		Remedy: "mage etcd:status shows what is wrong. Once etcd is whole run the upgrade again; it goes on with the rest.",
		Source: "siderolabs/talos, internal/pkg/etcd/etcd.go (ValidateForUpgrade) at v1.13.9",
	},
	{
		ID: UpgradeNotInKubernetes, Title: "Kubernetes does not have an upgraded node back", Severity: Failure,
		Exit: ExitApply,
		Cause: "The node runs the new Talos, but the Kubernetes API does not answer, does not have the node Ready, or its " +
			"cordon could not be taken back in time. The nodes after it were left alone.",
		Remedy: "Look at the node with kubectl describe node, then run the upgrade again: it takes the cordon back and " +
			"goes on with the rest.",
		Source: sourceOurs,
	},
	{
		ID: UpgradeOtherSystem, Title: "A node runs something else than it was upgraded to", Severity: Failure,
		Exit: ExitApply,
		Cause: "After its reboot the node names a version or a schematic that is neither what it ran before nor what was " +
			"installed: the installer image is made of something else than its name says, or somebody else upgrades it too.",
		Remedy: "Compare the installer image with the schematic: mage config:schematic. Then run the upgrade again.",
		Source: "siderolabs/image-factory",
	},
	{
		ID: UpgradeImageMissing, Title: "No registry has the installer image", Severity: Failure, Exit: ExitApply,
		Cause: "The node asked its registries for the installer image, and it is not there: a version that does not exist, " +
			"a schematic that the factory was never given, or a mirror that lacks it. Nothing was changed on the node.",
		Remedy: "Correct the version or the schematic; a schematic of your own has to be given to the factory once.",
		Source: "siderolabs/talos, internal/app/images/images.go at v1.14.1",
	},
	{
		ID: UpgradePullFailed, Title: "The installer image can't be pulled", Severity: Failure, Exit: ExitApply,
		Cause: "The node could not fetch the installer image, also when it was asked again: no way to the registry, a " +
			"proxy or mirror that is missing in its config, or a factory that takes longer to make an image than the node " +
			"waits. Nothing was changed on the node.",
		Remedy: "Run it again: an image that the factory has made by then comes at once. Else look at the node's DNS, " +
			"proxy and registry mirrors.",
		Source: "siderolabs/image-factory#456; siderolabs/talos#3352",
	},
	{
		ID: UpgradeFailed, Title: "A node could not be upgraded", Severity: Failure, Exit: ExitApply,
		Cause: "The node refused the upgrade, or its installer ended with a code other than 0; the message has its last " +
			"words. The node runs the system that it ran before, and takes pods again. The nodes after it were left alone.",
		Remedy: "talosctl dmesg has what the installer printed. Then run the upgrade again.",
		Source: "siderolabs/talos, internal/app/lifecycle/lifecycle.go at v1.14.1",
	},
	{
		ID: UpgradeRolledBack, Title: "A node went back to its old system after an upgrade", Severity: Failure,
		Exit: ExitApply,
		Cause: "The new system is written beside the old one and started by the next boot. If that boot fails, Talos makes " +
			"the old system the one to start, and reboots. Every call has ended well by then; only the running version " +
			"tells. Usual causes: an image without an extension that the machine config or the machine needs, a kernel " +
			"argument that went missing, or a config that the new release refuses. The nodes after it were left alone.",
		Remedy: "Compare the extensions of the old and the new schematic, and look at the machine's console while it boots " +
			"the new system. Then run the upgrade again.",
		Source: "cozystack/talm#175; siderolabs/talos, internal/app/machined/revert.go at v1.14.1",
	},
}
