package diagnosis

// What apply, verify, bootstrap and the making of configs find.
const (
	NodeRefused         ID = "TM090"
	NodeSilent          ID = "TM091"
	NodeState           ID = "TM092"
	NobodyAnswers       ID = "TM093"
	StillMaintenance    ID = "TM094"
	InstallFailed       ID = "TM095"
	StageStuck          ID = "TM096"
	WorkerJoining       ID = "TM097"
	NodesSwapped        ID = "TM098"
	ConfigUnsent        ID = "TM099"
	ConfigDrifted       ID = "TM100"
	ConfigUnusable      ID = "TM101"
	ApplyRejected       ID = "TM102"
	ApplyGaveUp         ID = "TM103"
	ApplyOutcomeUnknown ID = "TM104"
	UpdateNeedsReboot   ID = "TM105"
	QuorumWouldBeLost   ID = "TM106"
	BootstrapBlocked    ID = "TM107"
	BootstrapFailed     ID = "TM108"
	TimeNotSynced       ID = "TM109"
	AssumeEmptyRefused  ID = "TM110"
	EtcdNotHealthy      ID = "TM111"
	EtcdIncomplete      ID = "TM112"
	EtcdStopped         ID = "TM113"
	EtcdSplit           ID = "TM114"
	UnknownMembers      ID = "TM115"
	LockTaken           ID = "TM116"
	WouldChange         ID = "TM117"
	Interrupted         ID = "TM118"
	Unexpected          ID = "TM119"
)

// Sources that several entries share.
const (
	sourceStages    = "Talos v1.13.9: internal/app/machined/pkg/controllers/runtime/machine_status.go"
	sourceSequencer = "Talos v1.13.9: internal/app/machined/pkg/runtime/v1alpha1/v1alpha1_sequencer_tasks.go"
	sourceApply     = "Talos v1.13.9: internal/app/machined/internal/server/v1alpha1/v1alpha1_server.go " +
		"(ApplyConfiguration)"
	sourceBootstrap = "Talos v1.13.9: internal/app/machined/internal/server/v1alpha1/v1alpha1_server.go (Bootstrap)"
	sourceEtcd      = "Talos v1.13.9: internal/app/machined/pkg/system/services/etcd.go"
	sourceOurs      = "talos-mage: docs/reliability.md"
)

var bringUpEntries = []Entry{
	{
		ID: NodeRefused, Title: "Port 50000 is refused", Severity: Warning, Exit: ExitVerify,
		Cause: "The machine is there and its Talos API is closed: it is installing, rebooting or booting. The API is on " +
			"port 50000 in maintenance mode and with a config alike; " +
			"50001 is trustd, which signs certificates and answers no talosctl. A worker's API stays closed until a control " +
			"plane has signed its certificate; so does that of a node whose host name is `auto: stable`, until Talos is on " +
			"its disk.",
		Remedy: "Wait: a slow install can take half an hour (INSTALL_TIMEOUT). If it never ends, look at the machine's " +
			"console, and at firewalls in between: 50000 from here to every node, 50001 from workers to control planes.",
		Source: "siderolabs/talos#12227; " + sourceStages,
	},
	{
		ID: NodeSilent, Title: "A node gives no answer", Severity: Warning, Exit: ExitVerify,
		Cause: "The machine is off, in its self-test, or at another address: a DHCP lease can change when the machine " +
			"reboots with its config.",
		Remedy: "Power it on, or have it looked for with -discover; NODE_ADDRESSES says where it answers. Some machines " +
			"need minutes for their self-test (NODE_WAIT). What mage discover -save kept of it may be out of " +
			"date: run that again.",
		Source: "siderolabs/talos#7872, #4626",
	},
	{
		ID: NodeState, Title: "State of a node", Severity: OK,
		Cause:  "What the node answered: in maintenance, or configured by this cluster and in which stage.",
		Remedy: "Nothing.",
		Source: sourceStages,
	},
	{
		ID: NobodyAnswers, Title: "No node answers", Severity: Failure, Exit: ExitPreflight,
		Cause: "Not one of the inventory's machines could be reached: they are off, the operator is in another network, " +
			"or a proxy or firewall is in the way.",
		Remedy: "Boot the machines; check the route to them; with -discover they are looked for at other addresses.",
		Source: "siderolabs/talos#10880, #12684",
	},
	{
		ID: StillMaintenance, Title: "A node is still in maintenance", Severity: Failure, Exit: ExitVerify,
		Cause: "It was sent no config, did not accept it, or the connection broke before the config arrived. A " +
			"node in maintenance refuses `reboot --insecure` and `reset --insecure`, so these do not help.",
		Remedy: "Apply its config again: mage applySequential -node=<node>.",
		Source: "siderolabs/talos#9241; " + sourceApply,
	},
	{
		ID: InstallFailed, Title: "The install failed", Severity: Failure, Exit: ExitVerify,
		Cause: "The node took its config, tried to install and came back to maintenance: the install disk does not " +
			"exist, the installer image can't be pulled, or the power was cut. Nothing was written, so the node keeps no " +
			"trace of the reason. From Talos 1.14 on, a node with an UnattendedInstallConfig stays where it is instead, " +
			"says why, and tries again and again.",
		Remedy: "Check the install disk and the installer image in the machine config, then apply again: a node that " +
			"tries again by itself takes the corrected config too. The machine's console shows the reason during the ten " +
			"seconds before it reboots.",
		Source: sourceSequencer + "; Talos v1.14.1: " +
			"internal/app/machined/pkg/controllers/runtime/unattended_install.go",
	},
	{
		ID: StageStuck, Title: "A node does not get any further", Severity: Failure, Exit: ExitVerify,
		Cause: "The node answers, and nothing changes: a service does not become healthy, time or network is missing. Or " +
			"it keeps rebooting.",
		Remedy: "Read its log: talosctl -n <node> -e <node> dmesg.",
		Source: sourceStages,
	},
	{
		ID: WorkerJoining, Title: "A worker does not open its API", Severity: Failure, Exit: ExitVerify,
		Cause: "A worker's API certificate is signed by a control plane's trustd on port 50001, at the " +
			"cluster's endpoint or where discovery finds one. A closed port, a wrong token or a wrong clock " +
			"prevents that.",
		Remedy: "Make the endpoint and the control planes' port 50001 reachable from the worker, and let it reach its NTP " +
			"servers.",
		Source: "Talos v1.13.9: internal/app/machined/pkg/controllers/secrets/api.go",
	},
	{
		ID: NodesSwapped, Title: "A machine runs another node's config", Severity: Failure, Exit: ExitVerify,
		Cause: "The inventory has two machines' addresses swapped, and no MAC or UUID is declared that would " +
			"have stopped it.",
		Remedy: "Correct the addresses, declare the MACs in the talconfig, mage reset -node=<node> and apply again.",
		Source: sourceOurs,
	},
	{
		ID: ConfigUnsent, Title: "A node runs a config that this run did not send", Severity: Failure, Exit: ExitVerify,
		Cause:  "Between this run's apply and its look at the node, somebody else sent it another config.",
		Remedy: "Find the other operator; then run mage status.",
		Source: sourceOurs,
	},
	{
		ID: ConfigDrifted, Title: "A node's config differs from its file", Severity: Warning,
		Cause: "The file was changed, or the node was, since the config was applied. A cluster that has an etcd " +
			"is not changed unless you ask.",
		Remedy: "Look at the difference, then mage applySequential -node=<node> -update.",
		Source: sourceOurs,
	},
	{
		ID: ConfigUnusable, Title: "A machine config can't be used", Severity: Failure, Exit: ExitBadInput,
		Cause:  "The file is missing or can't be read.",
		Remedy: "mage config:generate",
		Source: sourceOurs,
	},
	{
		ID: ApplyRejected, Title: "A node refused its config", Severity: Failure, Exit: ExitApply,
		Cause:  "Talos loaded the config and found it invalid for this machine. Sending it again would not help.",
		Remedy: "Correct what it names, render the configs again and apply.",
		Source: sourceApply,
	},
	{
		ID: ApplyGaveUp, Title: "A config could not be delivered", Severity: Failure, Exit: ExitApply,
		Cause: "Every attempt failed for a reason that may be temporary: the connection broke, or the node was " +
			"busy with another apply.",
		Remedy: "Apply again to this node; raise MAX_RETRIES on a bad network. If reads work but a config never " +
			"arrives, large packets get lost: compare the MTUs.",
		Source: "siderolabs/talos#8566",
	},
	{
		ID: ApplyOutcomeUnknown, Title: "It is unknown whether a config arrived", Severity: Failure, Exit: ExitApply,
		Cause:  "The connection broke after the config was sent, and the node has not answered since.",
		Remedy: "Check it once it answers: mage verify -node=<node>. Applying again is safe too.",
		Source: "siderolabs/talos#8566, #9268",
	},
	{
		ID: UpdateNeedsReboot, Title: "A change would reboot the node", Severity: Failure, Exit: ExitApply,
		Cause: "Talos can't apply this change while it runs. Before 1.14 it would reboot for it; since then it would take " +
			"the config and go on as before until somebody reboots it.",
		Remedy: "Ask for it: -update -reboot.",
		Source: sourceApply,
	},
	{
		ID: QuorumWouldBeLost, Title: "A reboot would cost etcd its quorum", Severity: Failure, Exit: ExitApply,
		Cause:  "Too few other members are healthy.",
		Remedy: "Bring the other control planes up first.",
		Source: "siderolabs/talos#9276",
	},
	{
		ID: BootstrapBlocked, Title: "Bootstrap is not safe", Severity: Failure, Exit: ExitBootstrap,
		Cause: "Talos does not prevent a second Bootstrap on another control plane, which would make a second " +
			"etcd cluster. So every control plane must first say that it holds no data.",
		Remedy: "Bring the node up; or, if it is sure to be empty, name it with -assumeEmpty=.",
		Source: "siderolabs/talos#5500; " + sourceBootstrap,
	},
	{
		ID: BootstrapFailed, Title: "Bootstrap was refused", Severity: Failure, Exit: ExitBootstrap,
		Cause: "The control plane answered with an error that is permanent, such as a machine config without etcd's " +
			"certificate authority, or that did not go away in time.",
		Remedy: "mage status shows each control plane's etcd.",
		Source: sourceBootstrap,
	},
	{
		ID: TimeNotSynced, Title: "The node's clock is not synced", Severity: Failure, Exit: ExitBootstrap,
		Cause:  "Talos starts etcd only once its time is in sync, but the node does not reach a time source.",
		Remedy: "Let it reach its NTP servers (machine.time.servers, UDP 123), then run mage bootstrap again.",
		Source: "siderolabs/talos#6493",
	},
	{
		ID: AssumeEmptyRefused, Title: "A node can't be assumed empty", Severity: Failure, Exit: ExitBootstrap,
		Cause:  "There is proof that the cluster already has an etcd.",
		Remedy: "mage status; bring the silent control plane up.",
		Source: sourceOurs,
	},
	{
		ID: EtcdNotHealthy, Title: "etcd is not healthy", Severity: Failure, Exit: ExitBootstrap,
		Cause: "There is etcd data, but etcd is not healthy: quorum is lost, a clock or a disk is bad, or the " +
			"data is left from an earlier install.",
		Remedy: "Bring all members up; read the etcd service's log. If only one control plane holds data, and " +
			"nobody needs it, mage reset -node=<node>, then mage talos.",
		Source: sourceEtcd,
	},
	{
		ID: EtcdIncomplete, Title: "Control planes are missing from etcd", Severity: Failure, Exit: ExitBootstrap,
		Cause: "etcd works with fewer members than the inventory has control planes. Ignore the console's " +
			"advice to run bootstrap on the others.",
		Remedy: "Bring them up, then run the same command again.",
		Source: "siderolabs/talos#12898, #5942",
	},
	{
		ID: EtcdStopped, Title: "A second Bootstrap stopped etcd", Severity: Failure, Exit: ExitBootstrap,
		Cause: "A Bootstrap that follows another one too soon stops the etcd that is starting, and Talos does not start " +
			"it again until the node reboots.",
		Remedy: "Reboot that node, then mage bootstrap. It happens when two operators run the recipe at once from two " +
			"machines.",
		Source: sourceBootstrap,
	},
	{
		ID: EtcdSplit, Title: "Two etcd clusters exist", Severity: Failure, Exit: ExitBootstrap,
		Cause:  "Two control planes were bootstrapped. They do not know each other, and neither will join the other.",
		Remedy: "Decide which one holds your data, reset the nodes of the other (mage reset -node=) and let them join.",
		Source: "siderolabs/talos#5500",
	},
	{
		ID: UnknownMembers, Title: "etcd has members that the inventory does not name", Severity: Warning,
		Cause:  "A control plane was removed from the talconfig, or renamed, and is still a member.",
		Remedy: "Remove members that are gone with mage etcd:removeMember.",
		Source: sourceEtcd,
	},
	{
		ID: LockTaken, Title: "Another run is changing this cluster", Severity: Failure, Exit: ExitPreflight,
		Cause:  "Only one run at a time may change a cluster from one machine. The lock dies with the process that holds it.",
		Remedy: "Wait for it, or stop it, and run the same command again.",
		Source: sourceOurs,
	},
	{
		ID: WouldChange, Title: "A dry run found changes", Severity: Warning, Exit: ExitDryRun,
		Cause:  "Without -dryRun this step would change the named nodes or files.",
		Remedy: "Run it without -dryRun.",
		Source: sourceOurs,
	},
	{
		ID: Interrupted, Title: "The run was stopped", Severity: Failure, Exit: ExitInterrupt,
		Cause: "Ctrl-C or a signal ended it. Nothing is half-written. The nodes continue with what they were " +
			"sent.",
		Remedy: "Run the same command again: it looks at each node first and does only what is missing.",
		Source: sourceOurs,
	},
	{
		ID: Unexpected, Title: "An error that should not happen", Severity: Failure, Exit: ExitUnexpected,
		Cause:  "This is a bug in talos-mage.",
		Remedy: "Run the same command again; report what it printed.",
		Source: sourceOurs,
	},
}
