package diagnosis

// What the audit finds about versions: TM302 to TM314.
const (
	ConfigNewer             ID = "TM302"
	InstallerVersionsDiffer ID = "TM303"
	KubernetesSkew          ID = "TM304"
	KubernetesNotDeclared   ID = "TM305"
	ConfigKubernetes        ID = "TM306"
	TalosUpgradePath        ID = "TM307"
	KubernetesUpgradePath   ID = "TM308"
	NodeUpgradePath         ID = "TM309"
	TalosVersionUnknown     ID = "TM310"
	VersionIncomplete       ID = "TM311"
	ConfigOlder             ID = "TM312"
)

const (
	upgradeSource = "machinery compatibility/talos_version.go; siderolabs/talos " +
		"cmd/installer/pkg/install/preflight.go; Talos documentation, Upgrading Talos Linux; siderolabs/talos#6551"
	skewSource = "kubernetes.io, Version Skew Policy"
)

var versionEntries = []Entry{
	{
		ID: ConfigNewer, Title: "A machine config has keys or documents that its Talos version does not know",
		Severity: Failure,
		Exit:     ExitBadInput,
		Cause: "Talos refuses a config with a key or a document that it does not know. This one was made for a " +
			"later version than its installer's, or than talosVersion, often by a program that assumed its own " +
			"version.",
		Remedy: "Make talosVersion, the installer and the config agree: mage config:generate.",
		Source: "cozystack/talm#132; siderolabs/terraform-provider-talos#304; machinery config/types, v1.5.0 to v1.13.9",
	},
	{
		ID: InstallerVersionsDiffer, Title: "The nodes' installers are of different Talos versions", Severity: Warning,
		Cause:  "Some machine configs were not made again when the version changed, or a node has an image of its own.",
		Remedy: "Make all machine configs again: mage config:generate.",
		Source: "Talos documentation, Upgrading Talos Linux",
	},
	{
		ID: KubernetesSkew, Title: "Kubernetes' components have versions that don't go together", Severity: Warning,
		Cause: "A kubelet, a controller manager or a scheduler must not be newer than any API server. A " +
			"controller manager or a scheduler may be one minor version older, a kubelet three.",
		Remedy: "Use one version for all; upgrade control planes first.",
		Source: skewSource,
	},
	{
		ID: KubernetesNotDeclared, Title: "A machine config has another Kubernetes version than the inventory",
		Severity: Warning,
		Cause: "The config was made before kubernetesVersion was changed, or a patch names an image. The node " +
			"will run what its config says.",
		Remedy: "Make the machine configs again: mage config:generate. A running cluster is upgraded with mage " +
			"upgradeK8s.",
		Source: "Talos documentation, Upgrading Kubernetes",
	},
	{
		ID: ConfigKubernetes, Title: "A machine config's Kubernetes does not go with its installer", Severity: Failure,
		Exit:   ExitBadInput,
		Cause:  "Each Talos release runs a range of Kubernetes versions, and refuses configs with others.",
		Remedy: "Change the Kubernetes version, or the installer's.",
		Source: "machinery compatibility/kubernetes_version.go, config/types/v1alpha1/v1alpha1_validation.go; " +
			"siderolabs/talos#11198",
	},
	{
		ID: TalosUpgradePath, Title: "There is no upgrade from the machine configs' Talos to the declared one",
		Severity: Warning,
		Cause: "The machine configs on disk say what was installed. An installer upgrades only from a range of " +
			"versions, and downgrades only to a range. Only steps of one minor version are tested.",
		Remedy: "Upgrade by the latest patch of every minor version in between.",
		Source: upgradeSource,
	},
	{
		ID: KubernetesUpgradePath, Title: "There is no upgrade from the machine configs' Kubernetes to the declared one",
		Severity: Warning,
		Cause:    "Kubernetes is upgraded one minor version at a time, and never downgraded.",
		Remedy:   "Declare the next minor version, upgrade, and repeat.",
		Source:   "siderolabs/talos pkg/cluster/kubernetes/talos_managed.go; " + skewSource,
	},
	{
		ID: NodeUpgradePath, Title: "The installer does not follow on from the Talos that the node runs", Severity: Warning,
		Cause: "An installed node is upgraded step by step, and an installer refuses hosts that are too old or " +
			"too new. A machine that is not installed yet takes any installer. But an installer older than the " +
			"booted version applies its own rules to the config after the install.",
		Remedy: "Upgrade by the latest patch of every minor version in between, or boot the machine from an image of the " +
			"installer's version.",
		Source: "cozystack/talm#219; " + upgradeSource,
	},
	{
		ID: TalosVersionUnknown, Title: "This program does not know the declared Talos version", Severity: Warning,
		Cause: "This program knows Talos from 1.5 to 1.14. It can't judge what a later release added, removed " +
			"or checks, or which Kubernetes goes with it.",
		Remedy: "Update this program, or take a version that it knows.",
		Source: "machinery compatibility; talhelper v3.1.16",
	},
	{
		ID: VersionIncomplete, Title: "A version does not have three numbers", Severity: Failure, Exit: ExitBadInput,
		Cause:  "Versions become image tags, and no image is tagged v1.13 or latest, so the node can't pull it.",
		Remedy: "Write the whole version, such as v1.13.9.",
		Source: "onedr0p/cluster-template#1398; ghcr.io/siderolabs, factory.talos.dev",
	},
	{
		ID: ConfigOlder, Title: "A machine config was made for an older Talos than the declared one", Severity: Warning,
		Cause: "It has what configs up to 1.11 have, and lacks what later ones get by default, such as " +
			"HostnameConfig and grubUseUKICmdline. Newer Talos accepts it, with the older defaults.",
		Remedy: "Make the machine configs again: mage config:generate.",
		Source: "machinery config/contract.go",
	},
}
