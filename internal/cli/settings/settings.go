// Package settings holds every knob of a run: its name, type, default and meaning stand once, in the Settings struct.
// Environment variables set them, and the flags of a target go over the environment.
package settings

import (
	"cmp"
	"path/filepath"
	"time"
)

// Settings are the knobs of one run, with defaults filled in and paths made absolute.
//
// The tags of a field are the whole truth about it: env (the variable's name), flag (that of a target's flag, if one
// takes it), argument (targets' arguments that set it), envDefault or path (the default; a path may build on settings
// above it), oneof (the words it takes), min (its smallest value), kind (what else its text is to be), input (what it
// names is read), group and doc (the documentation's table). Where env is a flag's name, with its dash, the setting
// comes from the command line alone, as all do that permit loss, and so it does where env is a target's argument, with
// its brackets; retired is the variable that it had once.
type Settings struct {
	RootDir          string `env:"ROOT_DIR" path:"" default:"the git top level of the working directory, else the working directory" group:"Files" doc:"The repository that the cluster's files lie in."`
	TalosDir         string `env:"TALOS_DIR" path:"$ROOT_DIR/talos" group:"Files" doc:"Folder with talconfig.yaml, talenv.yaml and the encrypted secrets."`
	ClusterConfigDir string `env:"CLUSTERCONFIG_DIR" path:"$TALOS_DIR/clusterconfig" group:"Files" doc:"Folder with the generated machine configs."`
	Talosconfig      string `env:"TALOSCONFIG" input:"file" path:"$CLUSTERCONFIG_DIR/talosconfig" group:"Files" doc:"Client configuration of the Talos API."`
	Kubeconfig       string `env:"KUBECONFIG" input:"file" path:"$ROOT_DIR/kubeconfig" pathlist:"first" group:"Files" doc:"Where the kubeconfig is written; of a list of paths the first."`
	SopsAgeKeyFile   string `env:"SOPS_AGE_KEY_FILE" input:"file" path:"$ROOT_DIR/age.key" group:"Files" doc:"Age key that sops decrypts the cluster's secrets with."`

	ClusterSource   string `env:"CLUSTER_SOURCE" envDefault:"auto" oneof:"auto,talconfig,profile" group:"Files" doc:"What the cluster is read from: talconfig.yaml, or a profile, cluster.yaml. By default the one that exists."`
	ConfigGenerator string `env:"CONFIG_GENERATOR" envDefault:"native" oneof:"native,talhelper,none" group:"Files" doc:"Who renders machine configs: this program, the talhelper program, or nobody: the files in CLUSTERCONFIG_DIR are then used as they are."`

	TalosContract string `env:"TALOS_CONTRACT" oneof:"v1.2,v1.3,v1.4,v1.5,v1.6,v1.7,v1.8,v1.9,v1.10,v1.11,v1.12,v1.13,v1.14" group:"Files" doc:"Talos release whose form machine configs are made in, over talosContract in talenv.yaml and talos.contract in a profile. When empty, the lower of talosVersion and v1.13, which later releases take too."`

	SecretsFrom string `env:"-from" input:"file" kind:"path" group:"Files" doc:"Machine config of a control plane that the cluster's secrets are taken out of, instead of making new ones."`
	SchemaOf    string `env:"-of" envDefault:"talconfig.yaml" oneof:"talconfig.yaml,cluster.yaml" group:"Files" doc:"File whose JSON schema is printed."`

	SnapshotFile string `env:"-file" kind:"path" group:"Files" doc:"File that a snapshot of etcd is copied to, or the bundle of diagnose; relative to the working directory. When empty, a new one in TALOS_DIR/snapshots, or in ROOT_DIR."`
	Bundle       bool   `env:"-bundle" envDefault:"false" group:"Files" doc:"Write all that diagnose has read into one archive for a bug report, without secrets."`

	SnapshotToRestore string `env:"<file>" kind:"path" group:"Files" doc:"Snapshot of etcd, or copied database, that etcd is restored from; relative to the working directory."`

	MigrateTo   string `env:"-to" envDefault:"v1.14" oneof:"v1.14" group:"Files" doc:"Talos release whose form the cluster's files are rewritten to."`
	NewDefaults bool   `env:"-newDefaults" envDefault:"false" group:"Files" doc:"Take what that release does by default, instead of writing out what older ones did."`

	LogLevel   string `env:"LOG_LEVEL" envDefault:"info" oneof:"debug,info,warn,error" group:"Logs" doc:"Lowest level of the log lines on stderr."`
	Verbose    bool   `env:"MAGEFILE_VERBOSE" envDefault:"false" group:"Logs" doc:"Leave nothing out: on a terminal log lines too, and a line for each node; the ids of checks that were not run. -v before the target sets it; so does LOG_LEVEL=debug."`
	LogFormat  string `env:"LOG_FORMAT" envDefault:"text" oneof:"text,json" group:"Logs" doc:"Form of the log lines on stderr: for people, or one JSON object a line."`
	ReportFile string `env:"REPORT_FILE" kind:"path" group:"Logs" doc:"File to append every event of a run to, one JSON object a line; relative to the working directory. None when empty."`
	KeepRuns   int    `env:"KEEP_RUNS" envDefault:"50" min:"0" group:"Logs" doc:"How many runs are kept in TALOS_DIR/.talos-mage/runs, the oldest of which go when another begins; with 0 none is recorded."`
	RunName    string `env:"-run" group:"Logs" doc:"Recorded run that is shown, by its name or the beginning of it; the last one when empty."`
	OpenReport bool   `env:"-open" envDefault:"false" group:"Logs" doc:"Open the run's page in a browser."`
	NoColor    bool   `env:"NO_COLOR" envDefault:"false" group:"Logs" doc:"No colours, whatever the terminal can do. Any value but an empty one counts as true."`

	GitHubActions   bool   `env:"GITHUB_ACTIONS" envDefault:"false" group:"Logs" doc:"Fold the log by step, and show findings beside the lines of files: GitHub Actions sets it."`
	GitHubWorkspace string `env:"GITHUB_WORKSPACE" kind:"path" group:"Logs" doc:"Folder with the repository's checkout, which the paths of such findings are relative to: GitHub Actions sets it."`

	Node               []string  `env:"NODE" flag:"node" argument:"<address>,<node>" group:"Nodes" doc:"Only these nodes, by name or declared address, comma separated; all of them when empty."`
	OfCluster          string    `env:"-cluster" group:"Nodes" doc:"All nodes, said by the name of their cluster, for a target that may lose data and is told else by -node= which nodes it is for."`
	NodeAddresses      Addresses `env:"NODE_ADDRESSES" group:"Nodes" doc:"Where nodes answer now if it isn't their declared address (DHCP in maintenance mode): name=host or name=host:port, comma separated, IPv6 with a port in brackets."`
	Discover           bool      `env:"DISCOVER" flag:"discover" envDefault:"false" group:"Nodes" doc:"Search the nodes' networks for their machines first, and again for one that falls silent, as with another DHCP lease."`
	SaveFound          bool      `env:"-save" envDefault:"false" group:"Nodes" doc:"Keep where the nodes' machines were found, for all commands to come: a hint, which NODE_ADDRESSES goes over."`
	CertFingerprints   []string  `env:"CERT_FINGERPRINTS" flag:"certFingerprints" group:"Nodes" doc:"Certificates that nodes in maintenance mode may show: base64 of the SHA-256 of the public key, comma separated, as the node's screen prints them. Any when empty."`
	SkipChecks         []string  `env:"SKIP_CHECKS" flag:"skipChecks" group:"Nodes" doc:"Ids of checks whose failures become warnings, comma separated. Identity and certificate authority can't be skipped."`
	AssumeEmpty        []string  `env:"-assumeEmpty" retired:"ASSUME_EMPTY" group:"Nodes" doc:"Control planes that do not answer and are known to hold no etcd data, comma separated; bootstrap then continues without them."`
	Member             string    `env:"<id>" group:"Nodes" doc:"Member of etcd that is removed, by its id in hex."`
	Destroyed          []string  `env:"-destroyed" group:"Nodes" doc:"Control planes whose etcd is gone for good, comma separated: etcd is restored without what they hold."`
	BootstrapNode      string    `env:"BOOTSTRAP_NODE" flag:"bootstrapNode" group:"Nodes" doc:"Control plane that etcd is bootstrapped on; the first of the inventory when empty."`
	AllowAmbiguousDisk bool      `env:"-allowAmbiguousDisk" retired:"ALLOW_AMBIGUOUS_DISK" envDefault:"false" group:"Nodes" doc:"Continue when an install disk selector matches several disks of a node: Talos wipes the first of them."`

	DiscoverCIDR []string `env:"DISCOVER_CIDR" flag:"cidr" kind:"networks" group:"Nodes" doc:"Where machines are looked for: networks, ranges and addresses, comma separated. When empty, in the networks of the inventory's addresses."`
	MatchByCount bool     `env:"-matchByCount" envDefault:"false" group:"Nodes" doc:"Match the machines in maintenance that nothing tells of with the nodes of which nothing is declared, in the order of their addresses, if there are as many."`
	Wide         bool     `env:"-wide" envDefault:"false" group:"Nodes" doc:"Look in networks that are public or larger than a /20, too."`

	AuditFormat  string `env:"AUDIT_FORMAT" flag:"format" envDefault:"table" oneof:"table,json,sarif" group:"Nodes" doc:"How an audit's findings, the machines that discover finds, or a cluster's health are written: for people, as one JSON document, or, of an audit, as SARIF 2.1.0 for code-scanning tools."`
	AuditProfile string `env:"AUDIT_PROFILE" flag:"profile" envDefault:"files" oneof:"files,interop" group:"Nodes" doc:"Which checks an audit runs: those of the files that a bring-up needs, or those of how Talos, Cilium and the Proxmox VMs are set up for each other. For mage health, whether it also asks the nodes and Kubernetes about the latter."`

	CiliumValues     string   `env:"CILIUM_VALUES" input:"file" kind:"path" group:"Interoperability" doc:"File with Cilium's Helm values, or with its Flux HelmRelease; relative to the working directory. When empty, ROOT_DIR is searched for a HelmRelease."`
	TofuDir          string   `env:"TOFU_DIR" path:"$ROOT_DIR/infrastructure/tofu" group:"Interoperability" doc:"Folder with the OpenTofu files that make the Proxmox VMs."`
	ProxmoxEndpoints []string `env:"PROXMOX_VE_ENDPOINT" kind:"URLs" group:"Interoperability" doc:"URL of the Proxmox API, such as https://pve.example.net:8006/; of several hosts, comma separated. When set it is asked for the VMs, and the OpenTofu files are not read."`
	ProxmoxTokens    []string `env:"PROXMOX_VE_API_TOKEN" kind:"Proxmox tokens" group:"Interoperability" doc:"API token for it, as user@realm!name=uuid; the role PVEAuditor is enough. One for all hosts, or one for each, comma separated."`
	ProxmoxInsecure  bool     `env:"PROXMOX_VE_INSECURE" envDefault:"false" group:"Interoperability" doc:"Accept any certificate of the Proxmox API."`

	DryRun     bool   `env:"DRY_RUN" flag:"dryRun" envDefault:"false" group:"What is allowed" doc:"Show what would be done: no node is changed, and no file but the run's record written. Ends with exit code 8 if anything would change."`
	Update     bool   `env:"-update" retired:"UPDATE" envDefault:"false" group:"What is allowed" doc:"Apply changed configs to nodes of a cluster that already has an etcd, one node at a time."`
	Reboot     bool   `env:"-reboot" retired:"REBOOT" envDefault:"false" group:"What is allowed" doc:"With -update, apply changes that need a reboot too, and reboot for them."`
	Mode       string `env:"MODE" flag:"mode" envDefault:"auto" oneof:"auto,no-reboot,reboot,staged,try" group:"What is allowed" doc:"How a changed config is applied to a configured node."`
	NoWait     bool   `env:"NO_WAIT" flag:"noWait" envDefault:"false" group:"What is allowed" doc:"Do not wait for nodes that are silent."`
	NewSecrets bool   `env:"-newSecrets" retired:"NEW_SECRETS" envDefault:"false" group:"What is allowed" doc:"Make new cluster secrets although silent nodes may already belong to a cluster."`
	Yes        bool   `env:"-yes" envDefault:"false" group:"What is allowed" doc:"Agree to what will be lost. Without it a person is asked, on a terminal."`
	Dirty      bool   `env:"-dirty" envDefault:"false" group:"What is allowed" doc:"Rewrite files that git does not know as they are."`
	Force      bool   `env:"-force" retired:"FORCE" envDefault:"false" group:"What is allowed" doc:"Replace a kubeconfig context of the same name that belongs to another cluster."`

	AllowDowngrade bool `env:"-allowDowngrade" envDefault:"false" group:"What is allowed" doc:"Upgrade nodes to an older Talos than they run, where that brings no older etcd."`

	SystemDisk bool     `env:"-systemDisk" envDefault:"false" group:"What is allowed" doc:"Have a reset wipe the whole system disk, with Talos and its boot loader: the machine then boots from other media, or not at all."`
	Disks      []string `env:"-disk" group:"What is allowed" doc:"Other disks that a reset wipes too, by device path such as /dev/sdb, comma separated; none when empty."`

	ApplyMode   string   `env:"APPLY_MODE" flag:"applyMode" envDefault:"sequential" oneof:"sequential,parallel" group:"Concurrency" doc:"How the recipe applies configs: node after node, or several at once."`
	MaxParallel Parallel `env:"MAX_PARALLEL" flag:"parallel" envDefault:"2" group:"Concurrency" doc:"Nodes that get their config at once in parallel mode: a number, or a share of the nodes such as 50%. Upgrades heed the flag alone; without it they take one node after the other."`

	ReachabilityRetries int           `env:"NODE_REACHABILITY_RETRIES" envDefault:"3" min:"1" group:"Retries" doc:"Attempts to reach a node before it counts as unreachable."`
	ReachabilityDelay   time.Duration `env:"NODE_REACHABILITY_DELAY" envDefault:"2s" group:"Retries" doc:"Pause between these attempts."`
	MaxRetries          int           `env:"MAX_RETRIES" envDefault:"5" min:"0" group:"Retries" doc:"Retries after a first attempt that failed for a temporary reason."`
	InitialDelay        time.Duration `env:"INITIAL_DELAY" envDefault:"3s" group:"Retries" doc:"Pause before the first retry."`
	BackoffMultiplier   float64       `env:"BACKOFF_MULTIPLIER" envDefault:"2" min:"1" group:"Retries" doc:"Factor by which each further pause grows."`
	MaxDelay            time.Duration `env:"MAX_DELAY" envDefault:"60s" group:"Retries" doc:"Longest pause between two attempts."`
	AttemptTimeout      time.Duration `env:"APPLY_TIMEOUT" envDefault:"60s" min:"1ms" group:"Retries" doc:"Longest time of one attempt of a call that changes a node."`
	DialTimeout         time.Duration `env:"DIAL_TIMEOUT" envDefault:"5s" min:"1ms" group:"Retries" doc:"Longest time to connect to a node, and of one read from it."`

	VerificationTimeout time.Duration `env:"VERIFICATION_TIMEOUT" envDefault:"300s" group:"Waits" doc:"How long a node may still be in maintenance mode after its config was applied, or go on with an install that fails."`
	CheckInterval       time.Duration `env:"CHECK_INTERVAL" envDefault:"5s" min:"1ms" group:"Waits" doc:"Longest pause between two checks of a node that can be neither watched nor redialled."`
	InstallTimeout      time.Duration `env:"INSTALL_TIMEOUT" envDefault:"30m" group:"Waits" doc:"How long a node may refuse connections or be installing."`
	NodeWait            time.Duration `env:"NODE_WAIT" envDefault:"15m" group:"Waits" doc:"How long a node may give no answer at all."`
	StageTimeout        time.Duration `env:"STAGE_TIMEOUT" envDefault:"15m" group:"Waits" doc:"How long a node that answers may stay in one stage."`
	EtcdTimeout         time.Duration `env:"ETCD_TIMEOUT" envDefault:"10m" group:"Waits" doc:"How long an etcd that has data or is being bootstrapped may take to become healthy, and a member to be defragmented."`
	EtcdJoinTimeout     time.Duration `env:"ETCD_JOIN_TIMEOUT" envDefault:"30m" group:"Waits" doc:"How long the other control planes may take to join etcd as voters."`
	TimeSyncTimeout     time.Duration `env:"TIME_SYNC_TIMEOUT" envDefault:"2m" group:"Waits" doc:"How long bootstrap waits for a node whose clock is not in sync."`
	APITimeout          time.Duration `env:"API_TIMEOUT" envDefault:"15m" group:"Waits" doc:"How long the Kubernetes API may take to become ready, also before a node is drained, and then the nodes to register."`
	HealthTimeout       time.Duration `env:"HEALTH_TIMEOUT" envDefault:"5m" min:"1s" group:"Waits" doc:"How long a cluster may take to pass the checks of its health."`

	ClockScale float64 `env:"CLOCK_SCALE" envDefault:"1" min:"1" group:"Rehearsals" doc:"Divisor of all waits and time limits, for runs against the emulator, whose nodes are that many times faster."`

	// given are the overrides that it was loaded with.
	given Overrides
	// chosen are the names of those that somebody set.
	chosen map[string]bool
	// names are what messages call flags otherwise.
	names map[string]string
}

// MoveConfigDir makes another folder that of the machine configs, and the talosconfig's with it where that was left to
// its default.
func (s *Settings) MoveConfigDir(folder string) {
	if s.Talosconfig == filepath.Join(s.ClusterConfigDir, "talosconfig") {
		s.Talosconfig = filepath.Join(folder, "talosconfig")
	}

	s.ClusterConfigDir = folder
}

// NameOf is how people gave a setting, to name it by: its variable, or the flag or argument that goes over that.
func (s *Settings) NameOf(variable string) string {
	knob, _ := Lookup(variable)

	given := knob.givenAs(s.given)

	return cmp.Or(s.names[given], given)
}

// Rename has messages call flags by other names, as whoever gave them does.
func (s *Settings) Rename(names map[string]string) { s.names = names }

// Detailed reports whether a person asked for everything that there is to tell.
func (s *Settings) Detailed() bool { return s.Verbose || s.LogLevel == "debug" }

// Environ is the environment that the programs a run starts (talhelper, sops, kubectl, helmfile) expect, as
// "NAME=value".
func (s *Settings) Environ() []string {
	return []string{
		"KUBECONFIG=" + s.Kubeconfig,
		"SOPS_AGE_KEY_FILE=" + s.SopsAgeKeyFile,
		"TALOSCONFIG=" + s.Talosconfig,
	}
}
