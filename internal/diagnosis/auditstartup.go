package diagnosis

// What the audit finds about what nodes start with: TM385 to TM394.
const (
	MachineFileRefused    ID = "TM385"
	ManifestUnusable      ID = "TM386"
	ArgumentRefused       ID = "TM387"
	ArgumentUndoes        ID = "TM388"
	RegistrationRefused   ID = "TM389"
	WorkerTaints          ID = "TM390"
	MountSourceImpossible ID = "TM391"
)

const sequencerSource = "siderolabs/talos internal/app/machined/pkg/runtime/v1alpha1/v1alpha1_sequencer_tasks.go"

var startupEntries = []Entry{
	{
		ID: MachineFileRefused, Title: "Talos refuses a file of machine.files", Severity: Failure, Exit: ExitBadInput,
		Cause: "Talos' own files are read-only. With `op: create` it makes files below /var only, besides static pods in " +
			"/etc/kubernetes/manifests and /etc/cri/conf.d/20-customization.part. At a file that it does not make, or whose " +
			"op is none of create, append and overwrite, it stops in each boot, and the node never gets ready.",
		Remedy: "Write create, append or overwrite as the op. Put a file that is created below /var; one that Talos has is " +
			"replaced with `op: overwrite`.",
		Source: sequencerSource,
	},
	{
		ID: ManifestUnusable, Title: "An inline manifest is no object of Kubernetes", Severity: Failure, Exit: ExitBadInput,
		Cause: "Control planes apply inline manifests as one list. A text that is not valid YAML, or an object without " +
			"kind, apiVersion or name, ends that, over and over, and what comes after it is missing in the cluster.",
		Remedy: "Correct the manifest. `kubectl apply --dry-run=client -f` reads one as Talos does.",
		Source: "siderolabs/talos internal/app/machined/pkg/adapters/k8s/manifest.go, " +
			"internal/app/machined/pkg/controllers/k8s/extra_manifest.go",
	},
	{
		ID: ArgumentRefused, Title: "A component does not start with its extra arguments", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "The component has no such argument, at least not in this version, or Talos sets it itself and lets nobody " +
			"change it. The kubelet or the control plane then never comes up. Arguments are written in lower case with " +
			"dashes between words, and without those in front. A misspelt name is reported only if it is close to one that " +
			"the component has.",
		Remedy: "Correct the argument or take it out. Fields of the kubelet's configuration belong into extraConfig.",
		Source: "siderolabs/talos internal/app/machined/pkg/controllers/k8s/control_plane_static_pod.go, " +
			"internal/app/machined/pkg/controllers/k8s/kubelet_spec.go, internal/app/machined/pkg/system/services/etcd.go",
	},
	{
		ID: ArgumentUndoes, Title: "An extra argument undoes another setting", Severity: Warning,
		Cause: "What stands in extraArgs counts for more than the setting of the same meaning. Other components, and what " +
			"reads the machine config, still go by the setting.",
		Remedy: "Keep the setting, and take the argument out; or write the same in both.",
		Source: "siderolabs/talos internal/app/machined/pkg/controllers/k8s/control_plane_static_pod.go, " +
			"internal/app/machined/pkg/controllers/k8s/kubelet_spec.go",
	},
	{
		ID: RegistrationRefused, Title: "A node can't be registered with its labels or taints", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "A kubelet does not start with --node-labels of kubernetes.io and k8s.io, except for a few, and the API " +
			"server does not take a node with a taint that is malformed: the node never appears in Kubernetes.",
		Remedy: "Use a label of your own domain, or set it with kubectl label node. A taint has a key and one of the " +
			"effects NoSchedule, PreferNoSchedule and NoExecute.",
		Source: "kubernetes/kubernetes cmd/kubelet/app/options/options.go; kubernetes.io, Taints and Tolerations",
	},
	{
		ID: WorkerTaints, Title: "A worker sets a taint that Kubernetes does not let it set", Severity: Warning,
		Cause: "A worker writes machine.nodeTaints as its own kubelet, and NodeRestriction lets a kubelet set taints only " +
			"when it registers its node. The whole write is refused, so the node's labels and annotations are not set either.",
		Remedy: "Register the node with the taint, by machine.kubelet.extraConfig.registerWithTaints, or run kubectl taint.",
		Source: "siderolabs/talos#13443, #10935, #8193; Talos documentation, Node labels",
	},
	{
		ID: MountSourceImpossible, Title: "A mount into the kubelet has a source that can't exist", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "Talos makes a source that is missing, before it starts the kubelet. Outside of /var nearly everything is " +
			"read-only: that fails, and the kubelet never starts.",
		Remedy: "Take a folder below /var. User volumes are mounted below /var/mnt.",
		Source: "siderolabs/talos internal/app/machined/pkg/system/services/kubelet.go",
	},
}
