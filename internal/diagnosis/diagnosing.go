package diagnosis

// What a look at a node that is stuck finds, beside what the steps of a bring-up find.
const (
	NodeDiagnostic      ID = "TM415"
	ServingCertificate  ID = "TM416"
	ImagePullFails      ID = "TM417"
	StorageFails        ID = "TM418"
	EtcdNotBootstrapped ID = "TM419"
	OutOfMemory         ID = "TM420"
)

var diagnosingEntries = []Entry{
	{
		ID: NodeDiagnostic, Title: "The node itself says that something is wrong", Severity: Failure, Exit: ExitVerify,
		Cause: "Talos looks for a few mistakes by itself and keeps what it finds as resources: talosctl get diagnostics. " +
			"This one has no entry of its own here.",
		Remedy: "Follow what it says; https://talos.dev/diagnostic/<its id> explains it.",
		Source: "siderolabs/talos, internal/app/machined/pkg/controllers/runtime/internal/diagnostics/diagnostic.go " +
			"at v1.14.1",
	},
	{
		ID: ServingCertificate, Title: "Nobody approves the kubelet's serving certificate", Severity: Failure,
		Exit: ExitVerify,
		Cause: "The kubelet is set up to have its serving certificate signed by Kubernetes (rotate-server-certificates), " +
			"and its request waits: Kubernetes approves such requests only if something in the cluster does. Until then logs, " +
			"exec and metrics of the node's pods fail.",
		Remedy: "Install kubelet-serving-cert-approver, or have Talos' cloud controller manager approve them; or take " +
			"rotate-server-certificates out of the machine config.",
		Source: "siderolabs/talos, internal/app/machined/pkg/controllers/runtime/internal/diagnostics/" +
			"kubelet_csr_not_approved.go at v1.14.1",
	},
	{
		ID: ImagePullFails, Title: "An image can't be pulled", Severity: Failure, Exit: ExitVerify,
		Cause: "The node does not get an image that it needs: the name or the tag does not exist, the registry or a mirror " +
			"is not reached, or names do not resolve. An image that the factory has to build first may take some minutes.",
		Remedy: "\"not found\" is permanent: correct the image's name. Anything else: check the node's name servers, its " +
			"way to the registry, and machine.registries.",
		Source: "siderolabs/image-factory#456, siderolabs/talos#3352",
	},
	{
		ID: StorageFails, Title: "A disk or a volume of the node can't be used", Severity: Failure, Exit: ExitVerify,
		Cause: "A disk has read or write errors or is full, a volume finds no disk that fits, or an encrypted one can't be " +
			"unlocked: its key is sealed to the state that the firmware had.",
		Remedy: "Replace a disk with errors; free space on a full one. After a change of the firmware's settings undo it, " +
			"or reset the node: what a TPM sealed opens in that state alone.",
		Source: "siderolabs/talos#9415, #8995; siderolabs/talos, " +
			"internal/app/machined/pkg/controllers/block/internal/volumes/locate.go at v1.14.1",
	},
	{
		ID: EtcdNotBootstrapped, Title: "etcd has not been bootstrapped", Severity: Failure, Exit: ExitBootstrap,
		Cause: "The control planes have their configs, and none holds etcd data: they wait for the one Bootstrap in the " +
			"cluster's life. Until then nothing of Kubernetes runs, and behind a VIP no worker opens its API.",
		Remedy: "mage bootstrap. The console of every control plane advises it; it is to be done on one alone.",
		Source: "siderolabs/talos#12898; " + sourceEtcd,
	},
	{
		ID: OutOfMemory, Title: "The node runs out of memory", Severity: Failure, Exit: ExitVerify,
		Cause: "The kernel ended a process since there was no memory left, or a container went beyond its limit. What was " +
			"ended is in its message.",
		Remedy: "Give the machine more memory, or move what does not fit to another node; talosctl memory and talosctl " +
			"stats show who takes it.",
		Source: "Linux, proc_pid_oom_score(5)",
	},
}
