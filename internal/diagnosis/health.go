package diagnosis

// What a look at a cluster that is up finds.
const (
	HealthFails           ID = "TM400"
	HealthUnasked         ID = "TM401"
	NodeNotReady          ID = "TM402"
	ImageDiffers          ID = "TM403"
	CertificateEnds       ID = "TM404"
	CertificateNotRenewed ID = "TM405"
	RotateRefused         ID = "TM406"
	LiveDiffers           ID = "TM407"
)

var healthEntries = []Entry{
	{
		ID: HealthFails, Title: "A check of the cluster's health does not pass", Severity: Failure, Exit: ExitKubernetes,
		Cause: "A control plane checks the whole cluster, one thing after the other: etcd, the nodes, then " +
			"Kubernetes. The message names the check that did not pass in time, the node that it is about, and " +
			"what Talos says of it. The checks after it were not made.",
		Remedy: "Do what the message says, then mage health. HEALTH_TIMEOUT is how long it may take.",
		Source: "siderolabs/talos, pkg/cluster/check/default.go at v1.14.1",
	},
	{
		ID: HealthUnasked, Title: "No control plane could check the cluster", Severity: Failure, Exit: ExitKubernetes,
		Cause: "Control planes alone make that check, and none of them could: the message says of each why. One " +
			"that hung, or stopped in the middle, was left for the next.",
		Remedy: "mage status shows how each node is.",
		Source: "siderolabs/talos, internal/app/machined/internal/server/v1alpha1/v1alpha1_cluster.go at v1.14.1",
	},
	{
		ID: NodeNotReady, Title: "A node waits for something", Severity: Failure, Exit: ExitKubernetes,
		Cause: "The node runs its config, and says itself that it is not ready: a service does not run or is not " +
			"healthy, its clock is not in sync, its network is not up, or a static pod is missing.",
		Remedy: "mage status shows every node; the log of a service tells more: talosctl -n <node> service " +
			"<service>.",
		Source: "siderolabs/talos, internal/app/machined/pkg/controllers/runtime/machine_status.go at v1.14.1",
	},
	{
		ID: ImageDiffers, Title: "A node runs another image than its machine config names", Severity: Warning,
		Cause: "The installer image in a machine config takes effect with an upgrade only. The node booted from " +
			"an image with another version or another schematic, so that it may lack extensions or kernel " +
			"arguments that are declared.",
		Remedy: "Upgrade the node to the declared image: mage upgradeNode <node>. Or declare the image that it " +
			"runs.",
		Source: "siderolabs/talos, internal/app/machined/pkg/controllers/runtime/extension_status.go at v1.14.1",
	},
	{
		ID: CertificateEnds, Title: "A certificate ends soon, or has ended", Severity: Warning, Exit: ExitKubernetes,
		Cause: "Nothing renews a talosconfig's or a kubeconfig's certificate, which are good for a year, nor a " +
			"certificate authority, which is good for ten. It is a warning within 30 days of the end, and a " +
			"failure after it.",
		Remedy: "mage config:rotate renews the talosconfig, mage kubeconfig the kubeconfig, talosctl rotate-ca " +
			"the authorities of Talos and Kubernetes.",
		Source: "siderolabs/talos, pkg/machinery/constants/constants.go at v1.14.1",
	},
	{
		ID: CertificateNotRenewed, Title: "A node does not renew the certificate of its API", Severity: Warning,
		Cause: "It is good for a day, and Talos renews it by itself after half of that. This one has less than a " +
			"quarter left: a worker may not reach port 50001 of the control planes, or the node's clock or this " +
			"computer's is wrong.",
		Remedy: "Compare the clocks, and let the workers reach port 50001 of every control plane.",
		Source: "siderolabs/talos, internal/app/machined/pkg/controllers/secrets/api.go at v1.14.1",
	},
	{
		ID: RotateRefused, Severity: Failure, Exit: ExitBadInput,
		Title: "The talosconfig can't be renewed from these secrets",
		Cause: "A talosconfig's certificate is signed with the key of the cluster's machine CA. The secrets file " +
			"is missing, can't be decrypted here, is another cluster's, or its CA has ended itself: nodes would " +
			"refuse what it signs.",
		Remedy: "Bring the cluster's own secrets file back, with the key that decrypts it; then mage " +
			"config:rotate. Without it, whoever still has a valid talosconfig can make another one: talosctl " +
			"config new.",
		Source: "siderolabs/talos, pkg/machinery/config/generate/secrets/bundle.go at v1.14.1",
	},
	{
		ID: LiveDiffers, Title: "What runs is not what the files say", Severity: Warning,
		Cause: "The interoperability profile compared what the nodes and Kubernetes tell of themselves with what " +
			"the files declare, or with what Talos and Cilium need of each other.",
		Remedy: "Look at the area in docs/interop.md. A node that has drifted takes its config with mage " +
			"applySequential -update.",
		Source: "talos-mage: docs/interop.md",
	},
}
