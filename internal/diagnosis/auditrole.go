package diagnosis

// What the audit finds about roles and quorum: TM340 to TM349.
const (
	SingleControlPlane   ID = "TM340"
	NowhereToSchedule    ID = "TM341"
	FeatureGatesDisagree ID = "TM342"
	FeatureGateTwice     ID = "TM343"
	FeatureGatesVary     ID = "TM344"
	EtcdStartsTwice      ID = "TM345"
	NoControlPlane       ID = "TM346"
	SchedulingVaries     ID = "TM347"
)

const (
	gateSource = "kubernetes.io, Feature Gates; kubernetes.io, Kubelet Configuration (v1beta1)"
	typeSource = "machinery config/machine/type.go; Talos documentation, machine.type"
)

var roleEntries = []Entry{
	{
		ID: SingleControlPlane, Title: "One control plane, although there are enough nodes for three", Severity: Warning,
		Cause: "A single control plane tolerates no loss. While it is down or upgrades there is no Kubernetes " +
			"API, and if its disk is lost the cluster is lost. Three tolerate the loss of one.",
		Remedy: "Make two of the workers control planes, or make backups of etcd.",
		Source: "etcd documentation, FAQ, failure tolerance; Talos documentation, Production Notes",
	},
	{
		ID: NowhereToSchedule, Title: "No node takes ordinary pods", Severity: Warning,
		Cause: "There is no worker, and control planes take no pods unless cluster.allowSchedulingOnControlPlanes is " +
			"set: the cluster comes up, and everything that is installed stays Pending.",
		Remedy: "Set `allowSchedulingOnControlPlanes: true`, or add a worker.",
		Source: "machinery config/types/v1alpha1/v1alpha1_types.go, allowSchedulingOnControlPlanes",
	},
	{
		ID: FeatureGatesDisagree, Title: "The kubelet and the API server disagree on a feature gate", Severity: Warning,
		Cause: "A feature with a field in pods needs its gate on both sides: where the API server has it off, it drops " +
			"the field, and where the kubelet has it off, it ignores the field or refuses the pod.",
		Remedy: "Set the gate to the same value in machine.kubelet and cluster.apiServer of all nodes.",
		Source: gateSource,
	},
	{
		ID: FeatureGateTwice, Title: "A kubelet's feature gate has two values", Severity: Warning,
		Cause: "machine.kubelet.extraArgs and machine.kubelet.extraConfig both set it, to different values. The " +
			"argument counts; the other value has no effect.",
		Remedy: "Keep one of the two.",
		Source: gateSource,
	},
	{
		ID: FeatureGatesVary, Title: "The control planes disagree on a feature gate", Severity: Warning,
		Cause:  "A call may go to any API server: what one accepts, another refuses or strips of a field.",
		Remedy: "Set feature-gates in a patch of all control planes.",
		Source: gateSource,
	},
	{
		ID: EtcdStartsTwice, Title: "A machine config makes its node start etcd by itself", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "machine.type: init is the old way to bootstrap: the node starts an etcd of its own without being asked, " +
			"again after a reset, and two such nodes start two clusters. A single one is a warning.",
		Remedy: "Write `type: controlplane`: etcd is bootstrapped once, by a call.",
		Source: typeSource + "; siderolabs/talos#5500",
	},
	{
		ID: NoControlPlane, Title: "No control plane is declared", Severity: Warning,
		Cause: "Without one there is no etcd and no Kubernetes API. Workers alone can only join a cluster whose control " +
			"planes are declared elsewhere.",
		Remedy: "Set `controlPlane: true` on at least one node.",
		Source: typeSource,
	},
	{
		ID: SchedulingVaries, Title: "The control planes disagree on whether they take pods", Severity: Warning,
		Cause: "Each control plane sets or removes its own taint by its own file, so pods gather on some of " +
			"them.",
		Remedy: "Set allowSchedulingOnControlPlanes for all control planes at once.",
		Source: "machinery config/types/v1alpha1/v1alpha1_types.go, allowSchedulingOnControlPlanes",
	},
}
