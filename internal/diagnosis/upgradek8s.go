package diagnosis

// What an upgrade of Kubernetes finds.
const (
	K8sUpgradeRefused   ID = "TM163"
	TalosctlUnfit       ID = "TM164"
	DeprecatedAPIsUsed  ID = "TM165"
	K8sUpgradeHeldBack  ID = "TM166"
	K8sUpgradeFailed    ID = "TM167"
	K8sUpgradeNotSeen   ID = "TM168"
	K8sConfigsDifferent ID = "TM169"
)

const sourceUpgradeK8s = "siderolabs/talos, pkg/cluster/kubernetes/talos_managed.go at v1.14.1"

var upgradeK8sEntries = []Entry{
	{
		ID: K8sUpgradeRefused, Title: "Kubernetes can't be upgraded to that version from here", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "Kubernetes goes up by one minor at a time and never down, a kubelet may be at most three minors older than " +
			"the API servers, and each release of Talos runs some minors only. The message names the component and its " +
			"version, or the node and its Talos. Nothing was begun.",
		Remedy: "Set kubernetesVersion (talenv.yaml, or cluster.yaml) to a version on the way, and upgrade step by step; " +
			"upgrade Talos first if its release is what forbids it.",
		Source: "https://kubernetes.io/releases/version-skew-policy/; siderolabs/go-kubernetes, kubernetes/upgrade/path.go " +
			"at v0.2.41",
	},
	{
		ID: TalosctlUnfit, Title: "An upgrade of Kubernetes needs the talosctl of the nodes' release", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "The upgrade is Talos' own, and it runs in talosctl: that changes the machine configs, watches the static " +
			"pods, and knows which flags and APIs a version of Kubernetes has removed. talosctl is not on the PATH, or it is " +
			"of another minor than the nodes. Nothing was begun. Tested is v1.14.1.",
		Remedy: "Put the talosctl that the message names on the PATH: https://github.com/siderolabs/talos/releases",
		Source: sourceUpgradeK8s,
	},
	{
		ID: DeprecatedAPIsUsed, Title: "Deprecated APIs are in use", Severity: Warning,
		Cause: "Since the API servers started, somebody has asked them for an API that a later release of Kubernetes does " +
			"not serve: a controller, a chart, or a person. If the version to upgrade to no longer has it, nothing is begun.",
		Remedy: "Find who uses it (the audit log names the user agent), and move it to the newer API. What no longer uses " +
			"it is still counted until the API servers restart. -skipChecks with the id upgrades all the same.",
		Source: "https://kubernetes.io/docs/reference/using-api/deprecation-guide/",
	},
	{
		ID: K8sUpgradeHeldBack, Title: "The cluster is not whole, so Kubernetes is not upgraded", Severity: Failure,
		Exit: ExitKubernetes,
		Cause: "talosctl upgrades every node that Kubernetes lists, one after the other, and stops at the first that does " +
			"not come back. A node that does not answer, is not Ready or is not in the files would stop it halfway.",
		Remedy: "Make the node answer and Ready (mage status), or delete its Node object if the machine is gone.",
		Source: sourceUpgradeK8s,
	},
	{
		ID: K8sUpgradeFailed, Title: "talosctl gave up the upgrade of Kubernetes", Severity: Failure, Exit: ExitKubernetes,
		Cause: "What was upgraded before stays so, and what comes after was left alone: Kubernetes supports such a mix as " +
			"long as the API servers are the newest. The message names the component and the node, and what talosctl says.",
		Remedy: "Mend what it names, and run it again: it goes on with what is missing.",
		Source: sourceUpgradeK8s,
	},
	{
		ID: K8sUpgradeNotSeen, Title: "A component does not run the version after the upgrade", Severity: Failure,
		Exit: ExitKubernetes,
		Cause: "talosctl ended well, but Kubernetes shows another version of a component, or it is not ready: an image " +
			"that can't be pulled, a kubelet that does not come back, or somebody who changes it back.",
		Remedy: "Look at the component on that node, and run it again.",
		Source: sourceOurs,
	},
	{
		ID: K8sConfigsDifferent, Title: "A node's config differs from its file after the upgrade", Severity: Warning,
		Cause: "The upgrade writes the images of Kubernetes into the nodes' machine configs. They are equal to the files " +
			"again once these are made for the same version; until then the next apply would take the nodes back.",
		Remedy: "Make the machine configs again: mage config:generate; then mage applySequential -dryRun shows what is left.",
		Source: sourceUpgradeK8s,
	},
}
