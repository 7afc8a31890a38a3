package diagnosis

// What the audit finds about patches and documents: TM275 to TM289.
const (
	DocumentTwice     ID = "TM275"
	JSONPatchRefused  ID = "TM276"
	PatchEmpty        ID = "TM277"
	PatchMissing      ID = "TM278"
	PatchUnusable     ID = "TM279"
	PatchUnknownKey   ID = "TM280"
	PatchNewerKey     ID = "TM281"
	DocumentConflict  ID = "TM282"
	PatchDeletesNone  ID = "TM283"
	PatchListedTwice  ID = "TM284"
	ManifestDuplicate ID = "TM285"
	ControlPlaneKind  ID = "TM286"
	FieldReplaced     ID = "TM287"
)

const (
	patchSource  = "machinery config/configpatcher/load.go"
	loaderSource = "machinery config/configloader/internal/decoder/decoder.go"
)

var documentEntries = []Entry{
	{
		ID: DocumentTwice, Title: "A patch has a document twice", Severity: Warning,
		Cause: "Up to Talos 1.13 talosctl, and talhelper, take one document of a kind and name in one text, and one " +
			"without a kind: two parts with `machine:`, separated by `---`, are refused as duplicates. Later ones merge both, one " +
			"after the other.",
		Remedy: "Put the two into one document, or make two patches of them.",
		Source: loaderSource + "; budimanjojo/talhelper#1538",
	},
	{
		ID: JSONPatchRefused, Title: "A JSON patch for a config of several documents", Severity: Failure, Exit: ExitBadInput,
		Cause: "Talos applies lists of operations (RFC 6902) to configs of one document only. From 1.12 on each " +
			"generated config has a second one, HostnameConfig, so that every such patch is refused; before, " +
			"ingressFirewall, volumes and extensionServices make more than one.",
		Remedy: "Write a strategic merge patch: values under their keys, and `$patch: delete` under a key to remove it.",
		Source: "siderolabs/talos#12510, #12613, #13029; siderolabs/docs#752; budimanjojo/talhelper#1226; machinery " +
			"config/configpatcher/json6902.go",
	},
	{
		ID: PatchEmpty, Title: "A patch is empty", Severity: Warning,
		Cause: "It has nothing but comments, or nothing at all. Talos takes such a text for a JSON patch, and refuses it " +
			"from 1.12 on with a message that names no file. A template whose condition does not hold leaves such files behind.",
		Remedy: "Take it out of the list of patches, or find out why its template gives nothing.",
		Source: "siderolabs/talos#13029; " + patchSource,
	},
	{
		ID: PatchMissing, Title: "A patch that is listed does not exist", Severity: Failure, Exit: ExitBadInput,
		Cause: "Machine configs can't be made without it. Where templates write the files, the list is often written " +
			"always and the file only if a condition holds; a variable that nobody defines is false, without an error.",
		Remedy: "Write the file, correct its name, or take it out of the list; with templates, make the list depend on " +
			"the same condition as the file.",
		Source: "talhelper v3.1.16, pkg/patcher; " + patchSource,
	},
	{
		ID: PatchUnusable, Title: "A patch is not something that Talos can merge", Severity: Failure, Exit: ExitBadInput,
		Cause: "A patch is a mapping like a machine config, or documents with kind and apiVersion, or a list of " +
			"operations. A single value, another list, broken YAML or a value of the wrong type is refused.",
		Remedy: "Correct the patch; the name of a file begins with @.",
		Source: patchSource + "; " + loaderSource,
	},
	{
		ID: PatchUnknownKey, Title: "A patch has a key that Talos does not know", Severity: Failure, Exit: ExitBadInput,
		Cause: "Talos refuses what it does not know: a misspelt key, one at the wrong depth, or a Kubernetes manifest " +
			"where a patch belongs.",
		Remedy: "Correct the key; manifests belong into inlineManifests or extraManifests of the cluster section.",
		Source: loaderSource,
	},
	{
		ID: PatchNewerKey, Title: "A patch has a key that is newer than the declared Talos version", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "The key or the kind of document came with a later Talos than talosVersion says: nodes of that version " +
			"refuse the config.",
		Remedy: "Raise talosVersion, or use what that version has.",
		Source: "cozystack/talm#132; machinery config/types, v1.5.0 to v1.13.9",
	},
	{
		ID: DocumentConflict, Title: "An old field and a document say the same thing", Severity: Failure, Exit: ExitBadInput,
		Cause: "What has a document of its own since 1.12 can't stand in machine: as well. Talos refuses both " +
			"for resolvers, time, KubeSpan and disk encryption; for registries and environment variables the " +
			"document silently wins, which is a warning.",
		Remedy: "Keep the document and take the field out.",
		Source: "machinery config/types/network/resolver.go, time_sync.go, kubespan.go; " +
			"config/types/block/volume_config.go; config/container/container.go; cozystack/talm#232",
	},
	{
		ID: PatchDeletesNone, Title: "A patch deletes what is not there", Severity: Failure, Exit: ExitBadInput,
		Cause: "`$patch: delete` under a key that the config does not have ends with \"lookup failed\"; for a document " +
			"that does not exist it leaves an empty document behind, which no node takes.",
		Remedy: "Take the deletion out, or correct the key that it stands under.",
		Source: "machinery config/configloader/internal/decoder/selector.go; config/configpatcher/strategic.go",
	},
	{
		ID: PatchListedTwice, Title: "A node gets a patch twice", Severity: Warning,
		Cause: "Patches of the cluster, of the role and of the node add up, and lists are merged by appending: " +
			"whatever the patch adds to a list is then in it twice.",
		Remedy: "List it once: for all, for a role, or for a node.",
		Source: "machinery config/merge/merge.go; talhelper v3.1.16, pkg/config",
	},
	{
		ID: ManifestDuplicate, Title: "extraManifests add a document that exists already", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "The documents of extraManifests are added, not merged. If the node's config already has one of " +
			"that kind and name, it is refused as a duplicate.",
		Remedy: "Make it a patch, which is merged, or drop one of the two.",
		Source: "machinery config/container/container.go; talhelper v3.1.16, pkg/generate",
	},
	{
		ID: ControlPlaneKind, Title: "A worker has a document that only control planes may have", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "Since Talos 1.14 the API server, the controller manager, the scheduler, kube-proxy, CoreDNS, flannel and " +
			"the cluster's keys have documents of their own. Only control planes run these: Talos refuses a worker's config " +
			"with such a document, where it ignored the fields that they replace.",
		Remedy: "Put the patch among those of control planes alone.",
		Source: "machinery config/container/validate.go, ControlplaneOnlyDocument of config/types/k8s",
	},
	{
		ID: FieldReplaced, Title: "A patch sets a field that a document has replaced", Severity: Failure, Exit: ExitBadInput,
		Cause: "With the contract v1.14 machine configs have documents where they had fields before. A patch that still " +
			"sets the field gives a config with both, which Talos refuses. What Talos takes beside the document is a warning.",
		Remedy: "mage config:migrate rewrites the patches, and proves that the configs stay equal.",
		Source: "machinery v1.14.1 config/types, V1Alpha1ConflictValidate; Talos documentation, what's new in 1.14",
	},
}
