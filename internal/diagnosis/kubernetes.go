package diagnosis

// What the kubeconfig step finds in the user's file, and who answers as the Kubernetes API.
const (
	KubeconfigConflict   ID = "TM120"
	KubeconfigBroken     ID = "TM121"
	KubeconfigUnwritable ID = "TM122"
	KubeconfigLocked     ID = "TM123"
	KubeconfigUnusable   ID = "TM124"
	APIForeign           ID = "TM125"
	APIRefusesClient     ID = "TM126"
	KubeconfigNotIgnored ID = "TM127"
)

var kubernetesEntries = []Entry{
	{
		ID:       KubeconfigConflict,
		Title:    "The kubeconfig has a context of this name for another cluster",
		Severity: Failure,
		Exit:     ExitBadInput,
		Cause: "Talos names the context admin@<cluster name>. The file already has one of that name, with " +
			"another server or CA: a cluster of the same name, or this one before it was reset with new " +
			"secrets. Replacing it without being asked could remove the only access to that cluster.",
		Remedy: "If the old context is no longer needed, run again with -force: it replaces that context alone and keeps " +
			"a backup of the file. " +
			"Otherwise point KUBECONFIG to another file, or rename the old context with kubectl config rename-context.",
		Source: "Talos v1.13.9: pkg/kubeconfig/generate.go (the names); siderolabs/go-kubeconfig (talosctl renames instead)",
	},
	{
		ID:       KubeconfigBroken,
		Title:    "The existing kubeconfig can't be read",
		Severity: Failure,
		Exit:     ExitBadInput,
		Cause: "The file is not valid YAML, not a kubeconfig, or holds several documents. Writing a new one in its place " +
			"would lose whatever access is in it, " +
			"so it is left alone.",
		Remedy: "Correct the file or move it away, then run again; or point KUBECONFIG to another file.",
		Source: "client-go tools/clientcmd/loader.go",
	},
	{
		ID:       KubeconfigUnwritable,
		Title:    "The kubeconfig can't be written",
		Severity: Failure,
		Exit:     ExitBadInput,
		Cause: "The new file is written beside the old one and then takes its place, so that a crash or a full " +
			"disk can't leave half a file. For that the folder must be writable and have room. The old file is " +
			"unchanged.",
		Remedy: "Make the folder writable or free some space, then run again; or point KUBECONFIG to another file.",
		Source: "Linux, rename(2)",
	},
	{
		ID:       KubeconfigLocked,
		Title:    "Another program is changing the kubeconfig",
		Severity: Failure,
		Exit:     ExitPreflight,
		Cause: "kubectl, and this program, hold <kubeconfig>.lock while they change the file, so that neither " +
			"loses what the other wrote. The lock stayed: the other program is still running, or was killed " +
			"before it could remove it.",
		Remedy: "If no other program is changing the file, remove <kubeconfig>.lock and run again.",
		Source: "client-go tools/clientcmd/loader.go (lockFile)",
	},
	{
		ID:       KubeconfigUnusable,
		Title:    "The kubeconfig that the node gave can't be used",
		Severity: Failure,
		Exit:     ExitKubernetes,
		Cause: "A control plane makes the kubeconfig from its machine config. A kubeconfig without a server, a " +
			"CA or a matching client certificate is useless, and is not merged into the user's file.",
		Remedy: "Look at the Kubernetes CA and the endpoint in the control planes' machine configs, and check the " +
			"node's clock.",
		Source: "Talos v1.13.9: pkg/kubeconfig/generate.go",
	},
	{
		ID:       APIForeign,
		Title:    "Another cluster's API answers at the endpoint",
		Severity: Failure,
		Exit:     ExitKubernetes,
		Cause: "The certificate at the endpoint's address is not signed by this cluster's Kubernetes CA. The VIP is in " +
			"use by another cluster, or the balancer or DNS record leads " +
			"to one, or to something that is not Kubernetes.",
		Remedy: "Find who holds the endpoint's address (arping, the balancer's backends, the DNS record), or give this " +
			"cluster another one.",
		Source: "Talos v1.13.9: internal/app/machined/pkg/controllers/secrets/kubernetes_dynamic_certs.go",
	},
	{
		ID:       APIRefusesClient,
		Title:    "The Kubernetes API does not accept the client certificate",
		Severity: Failure,
		Exit:     ExitKubernetes,
		Cause: "The API server answers with 401 to a certificate that its CA did not sign or that is out of date by its " +
			"own clock, and with 403 to a user outside of system:masters. " +
			"Anonymous requests get 401 too, even at /readyz: Talos runs it with --anonymous-auth=false.",
		Remedy: "Fetch a new kubeconfig (mage kubeconfig), and compare the control planes' clocks with this machine's.",
		Source: "Talos v1.13.9: internal/app/machined/pkg/controllers/k8s/control_plane_static_pod.go",
	},
	{
		ID:       KubeconfigNotIgnored,
		Title:    "Git does not ignore the kubeconfig",
		Severity: Warning,
		Cause: "The kubeconfig holds an administrator's key of the cluster. It lies in a git repository that does not " +
			"ignore it, so the next `git add` publishes it.",
		Remedy: "List it, and the copies that are kept beside it, in .gitignore; or point KUBECONFIG outside of the " +
			"repository.",
		Source: "https://git-scm.com/docs/git-check-ignore",
	},
}
