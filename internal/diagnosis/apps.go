package diagnosis

// Installing a cluster's first applications.
const (
	AppsFilesMissing   ID = "TM410"
	AppsProgramMissing ID = "TM411"
	AppsScriptFailed   ID = "TM412"
	AppsApplyRefused   ID = "TM413"
	AppsReleaseFailed  ID = "TM414"
)

var appsEntries = []Entry{
	{
		ID: AppsFilesMissing, Title: "A file or folder that applications are installed from is missing", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "mage apps takes namespaces from the folders of kubernetes/apps/, and CRDs and releases from the " +
			"helmfiles bootstrap/helmfile.d/00-crds.yaml and 01-apps.yaml, with the kubeconfig of the cluster.",
		Remedy: "Add what is named, or keep a scripts/bootstrap-apps.sh of your own: then that is run.",
		Source: "onedr0p/cluster-template scripts/bootstrap-apps.sh",
	},
	{
		ID: AppsProgramMissing, Title: "A program that installs applications is missing", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "Objects are applied with kubectl, and releases with helmfile, which calls helm. One of them is not on " +
			"the PATH; nothing was begun.",
		Remedy: "Install it: kubernetes.io/docs/tasks/tools, helm.sh/docs/intro/install, " +
			"github.com/helmfile/helmfile/releases.",
		Source: "https://helmfile.readthedocs.io/en/latest/#installation",
	},
	{
		ID: AppsScriptFailed, Title: "The repository's own bootstrap-apps.sh failed", Severity: Failure, Exit: ExitKubernetes,
		Cause: "A repository with a scripts/bootstrap-apps.sh keeps running that; it ended with an error, and its lines " +
			"above say which.",
		Remedy: "Correct what it complains about. Without that script mage apps does the same by itself.",
		Source: "onedr0p/cluster-template scripts/bootstrap-apps.sh",
	},
	{
		ID: AppsApplyRefused, Title: "kubectl could not apply an application's objects", Severity: Failure,
		Exit: ExitKubernetes,
		Cause: "A namespace, a secret or a CRD was not taken: the Kubernetes API does not answer, the object is not " +
			"valid, or a field of it belongs to somebody else by now, as to Flux.",
		Remedy: "Correct it and run the same command again: what is there already is left alone.",
		Source: "kubernetes.io/docs/reference/using-api/server-side-apply",
	},
	{
		ID: AppsReleaseFailed, Title: "helmfile could not render or install the releases", Severity: Failure,
		Exit: ExitKubernetes,
		Cause: "helmfile ended with an error: a chart can't be fetched, a value is not valid, or a release did not get " +
			"ready in time.",
		Remedy: "Correct what it complains about and run the same command again: it goes on with the releases that are " +
			"missing or differ.",
		Source: "https://helmfile.readthedocs.io/en/latest/#sync",
	},
}
