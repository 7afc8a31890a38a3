// Code generated from the functions in targets and internal/dev/rehearsal: go test ./internal/cli/commandline -update. DO NOT EDIT.

package main

import (
	"context"

	"github.com/talos-mage/talos-mage/internal/cli/commandline"
	"github.com/talos-mage/talos-mage/internal/dev/rehearsal"
	"github.com/talos-mage/talos-mage/targets"
)

// allTargets are the functions with what people type to call them.
func allTargets() []commandline.Target {
	return []commandline.Target{
		{
			Name:      "applyNode",
			Summary:   "sends one node its machine config, by address or name, also on a cluster that is up: naming a node is asking.",
			More:      "-mode is auto (the default; it may reboot, and says so first), no-reboot, reboot, staged or try.",
			Arguments: []string{"address"},
			Flags: []commandline.Flag{
				{Name: "mode", Kind: commandline.Text},
				{Name: "certFingerprints", Kind: commandline.Text},
				{Name: "dryRun", Kind: commandline.Switch},
			},
			Run: func(ctx context.Context, given commandline.Values) error {
				return targets.ApplyNode(ctx, given.Argument("address"), given.Text("mode"), given.Text("certFingerprints"), given.Switch("dryRun"))
			},
		},
		{
			Name:    "applyParallel",
			Summary: "sends the machine configs to several nodes at once (-parallel=N or N%, 2 by default).",
			Flags: []commandline.Flag{
				{Name: "node", Kind: commandline.Text},
				{Name: "parallel", Kind: commandline.Text},
				{Name: "mode", Kind: commandline.Text},
				{Name: "skipChecks", Kind: commandline.Text},
				{Name: "certFingerprints", Kind: commandline.Text},
				{Name: "discover", Kind: commandline.Switch},
				{Name: "update", Kind: commandline.Switch},
				{Name: "reboot", Kind: commandline.Switch},
				{Name: "allowAmbiguousDisk", Kind: commandline.Switch},
				{Name: "noWait", Kind: commandline.Switch},
				{Name: "dryRun", Kind: commandline.Switch},
			},
			Run: func(ctx context.Context, given commandline.Values) error {
				return targets.ApplyParallel(ctx, given.Text("node"), given.Text("parallel"), given.Text("mode"), given.Text("skipChecks"), given.Text("certFingerprints"), given.Switch("discover"), given.Switch("update"), given.Switch("reboot"), given.Switch("allowAmbiguousDisk"), given.Switch("noWait"), given.Switch("dryRun"))
			},
		},
		{
			Name:    "applySequential",
			Summary: "sends each node its machine config, one node after the other, control planes first.",
			More:    "Nodes that have their config are skipped. On a cluster that is up nothing changes without -update, and nothing reboots without -reboot.",
			Flags: []commandline.Flag{
				{Name: "node", Kind: commandline.Text},
				{Name: "mode", Kind: commandline.Text},
				{Name: "skipChecks", Kind: commandline.Text},
				{Name: "certFingerprints", Kind: commandline.Text},
				{Name: "discover", Kind: commandline.Switch},
				{Name: "update", Kind: commandline.Switch},
				{Name: "reboot", Kind: commandline.Switch},
				{Name: "allowAmbiguousDisk", Kind: commandline.Switch},
				{Name: "noWait", Kind: commandline.Switch},
				{Name: "dryRun", Kind: commandline.Switch},
			},
			Run: func(ctx context.Context, given commandline.Values) error {
				return targets.ApplySequential(ctx, given.Text("node"), given.Text("mode"), given.Text("skipChecks"), given.Text("certFingerprints"), given.Switch("discover"), given.Switch("update"), given.Switch("reboot"), given.Switch("allowAmbiguousDisk"), given.Switch("noWait"), given.Switch("dryRun"))
			},
		},
		{
			Name:    "apps",
			Summary: "installs the cluster's first applications: it waits for the nodes, then applies namespaces, secrets, CRDs and releases.",
			More:    "Namespaces are the folders of kubernetes/apps/. Secrets are decrypted with sops and applied from memory. CRDs and releases come from bootstrap/helmfile.d/00-crds.yaml and 01-apps.yaml, with helmfile. Run again, it does what is missing. A repository with a scripts/bootstrap-apps.sh of its own keeps running that.",
			Flags: []commandline.Flag{
				{Name: "dryRun", Kind: commandline.Switch},
			},
			Run: func(ctx context.Context, given commandline.Values) error {
				return targets.Apps(ctx, given.Switch("dryRun"))
			},
		},
		{
			Name:    "audit",
			Summary: "finds what is wrong in the files alone, without a node or the network, and says what to change.",
			More:    "-format is table, json or sarif. Bad files end with code 2. docs/checks.md lists the checks. -profile=interop judges instead how Talos, Cilium and the Proxmox VMs are set up for each other (docs/interop.md).",
			Flags: []commandline.Flag{
				{Name: "format", Kind: commandline.Text},
				{Name: "profile", Kind: commandline.Text},
				{Name: "skipChecks", Kind: commandline.Text},
			},
			Run: func(ctx context.Context, given commandline.Values) error {
				return targets.Audit(ctx, given.Text("format"), given.Text("profile"), given.Text("skipChecks"))
			},
		},
		{
			Name:    "bootstrap",
			Summary: "starts etcd on one control plane, exactly once, and waits until it is whole and the Kubernetes API answers.",
			Flags: []commandline.Flag{
				{Name: "bootstrapNode", Kind: commandline.Text},
				{Name: "assumeEmpty", Kind: commandline.Text},
				{Name: "noWait", Kind: commandline.Switch},
				{Name: "dryRun", Kind: commandline.Switch},
			},
			Run: func(ctx context.Context, given commandline.Values) error {
				return targets.Bootstrap(ctx, given.Text("bootstrapNode"), given.Text("assumeEmpty"), given.Switch("noWait"), given.Switch("dryRun"))
			},
		},
		{
			Name:    "config:generate",
			Summary: "renders the machine configs and the talosconfig into clusterconfig/, and replaces those that changed.",
			More:    "-dryRun shows what would change, with secrets masked, and exits 8 if anything would.",
			Flags: []commandline.Flag{
				{Name: "dryRun", Kind: commandline.Switch},
			},
			Run: func(ctx context.Context, given commandline.Values) error {
				return targets.Config{}.Generate(ctx, given.Switch("dryRun"))
			},
		},
		{
			Name:    "config:migrate",
			Summary: "rewrites talconfig.yaml or cluster.yaml, and their patches, to the documents of Talos 1.14; the nodes' configs stay equal.",
			More:    "Both forms are rendered and compared in everything that Talos reads. If they differ, or a person has to decide something, nothing is changed and it is said what. What Talos 1.14 does otherwise by default is written out as it was; -newDefaults takes it. -dryRun shows the diff. Files are replaced only if git has them as they are, or with -dirty. No node is changed.",
			Flags: []commandline.Flag{
				{Name: "to", Kind: commandline.Text},
				{Name: "newDefaults", Kind: commandline.Switch},
				{Name: "dryRun", Kind: commandline.Switch},
				{Name: "dirty", Kind: commandline.Switch},
			},
			Run: func(ctx context.Context, given commandline.Values) error {
				return targets.Config{}.Migrate(ctx, given.Text("to"), given.Switch("newDefaults"), given.Switch("dryRun"), given.Switch("dirty"))
			},
		},
		{
			Name:    "config:rotate",
			Summary: "renews the talosconfig's client certificate from the cluster's secrets, if it has expired or soon will.",
			More:    "No node is asked. The context keeps its name, endpoints, nodes and roles; other contexts of the file stay as they are. It is refused if the secrets are another cluster's.",
			Flags: []commandline.Flag{
				{Name: "dryRun", Kind: commandline.Switch},
			},
			Run: func(ctx context.Context, given commandline.Values) error {
				return targets.Config{}.Rotate(ctx, given.Switch("dryRun"))
			},
		},
		{
			Name:    "config:schema",
			Summary: "prints the JSON schema of talconfig.yaml, or of -of=cluster.yaml, for editors that complete and check as you type.",
			Flags: []commandline.Flag{
				{Name: "of", Kind: commandline.Text},
			},
			Run: func(_ context.Context, given commandline.Values) error {
				return targets.Config{}.Schema(given.Text("of"))
			},
		},
		{
			Name:    "config:schematic",
			Summary: "shows each node's Image Factory schematic, its installer image, and the image to boot it with.",
			More:    "No node and no factory is asked.",
			Run: func(ctx context.Context, _ commandline.Values) error {
				return targets.Config{}.Schematic(ctx)
			},
		},
		{
			Name:    "config:secrets",
			Summary: "makes the cluster's secrets, encrypted by the rules of .sops.yaml, and never replaces any.",
			More:    "-from takes them out of a control plane's machine config instead. New ones are refused while a machine config or a talosconfig exists, or a node answers that is configured already.",
			Flags: []commandline.Flag{
				{Name: "from", Kind: commandline.Text},
				{Name: "dryRun", Kind: commandline.Switch},
			},
			Run: func(ctx context.Context, given commandline.Values) error {
				return targets.Config{}.Secrets(ctx, given.Text("from"), given.Switch("dryRun"))
			},
		},
		{
			Name:    "demo",
			Summary: "brings six emulated nodes up to a Kubernetes cluster, over real gRPC and TLS on loopback, and then shows that a second run has nothing to do.",
			More:    "With -discover the nodes have other addresses than the declared ones, as from DHCP.",
			Flags: []commandline.Flag{
				{Name: "talosVersion", Kind: commandline.Text, Meaning: "Talos release that the nodes run and the files are for; by default v1.14.1."},
				{Name: "discover", Kind: commandline.Switch},
			},
			Run: func(ctx context.Context, given commandline.Values) error {
				return rehearsal.Demo(ctx, given.Text("talosVersion"), given.Switch("discover"))
			},
		},
		{
			Name:    "diagnose",
			Summary: "says why nodes are stuck: the likely causes of each, best first, with what points to them.",
			More:    "It looks once at every node, in whatever state that is, with or without a talosconfig, and changes nothing. -discover looks for machines that are not where they should be. -format is table or json. It ends with 5 if anything is wrong. -bundle writes all that was read, without secrets, into an archive for a bug report, at -file or beside the cluster.",
			Flags: []commandline.Flag{
				{Name: "node", Kind: commandline.Text},
				{Name: "format", Kind: commandline.Text},
				{Name: "file", Kind: commandline.Text},
				{Name: "discover", Kind: commandline.Switch},
				{Name: "bundle", Kind: commandline.Switch},
			},
			Run: func(ctx context.Context, given commandline.Values) error {
				return targets.Diagnose(ctx, given.Text("node"), given.Text("format"), given.Text("file"), given.Switch("discover"), given.Switch("bundle"))
			},
		},
		{
			Name:    "discover",
			Summary: "finds the machines of some networks that answer as Talos does, and shows what each tells of itself.",
			More:    "-cidr names the networks; without it, it is those of the inventory's addresses. -wide asks public ones and large ones too. -matchByCount matches what nothing tells of by order, if the numbers are equal. -format is table or json. -save keeps where the nodes' machines are. docs/discover.md says more.",
			Flags: []commandline.Flag{
				{Name: "cidr", Kind: commandline.Text},
				{Name: "node", Kind: commandline.Text},
				{Name: "format", Kind: commandline.Text},
				{Name: "wide", Kind: commandline.Switch},
				{Name: "matchByCount", Kind: commandline.Switch},
				{Name: "save", Kind: commandline.Switch},
			},
			Run: func(ctx context.Context, given commandline.Values) error {
				return targets.Discover(ctx, given.Text("cidr"), given.Text("node"), given.Text("format"), given.Switch("wide"), given.Switch("matchByCount"), given.Switch("save"))
			},
		},
		{
			Name:    "etcd:defrag",
			Summary: "has every member give back the space that it no longer needs, one at a time, the leader last.",
			More:    "All members have to be healthy, before and after each.",
			Flags: []commandline.Flag{
				{Name: "node", Kind: commandline.Text},
				{Name: "dryRun", Kind: commandline.Switch},
			},
			Run: func(ctx context.Context, given commandline.Values) error {
				return targets.Etcd{}.Defrag(ctx, given.Text("node"), given.Switch("dryRun"))
			},
		},
		{
			Name:    "etcd:members",
			Summary: "shows the members that etcd itself lists, and which nodes they are.",
			More:    "It changes nothing.",
			Run: func(ctx context.Context, _ commandline.Values) error {
				return targets.Etcd{}.Members(ctx)
			},
		},
		{
			Name:      "etcd:recover",
			Summary:   "restores an etcd that has lost its quorum for good, from a snapshot or a copied database.",
			More:      "It proves first that no quorum can be had: every control plane is asked, and those that do not answer have to be named with -destroyed. What the others hold is saved beside the cluster's files. Once the cluster's name was typed, or with -yes, their etcd is wiped, and restored on one; the others join it. Interrupted, run it again.",
			Arguments: []string{"file"},
			Flags: []commandline.Flag{
				{Name: "destroyed", Kind: commandline.Text},
				{Name: "bootstrapNode", Kind: commandline.Text},
				{Name: "yes", Kind: commandline.Switch},
				{Name: "noWait", Kind: commandline.Switch},
				{Name: "dryRun", Kind: commandline.Switch},
			},
			Run: func(ctx context.Context, given commandline.Values) error {
				return targets.Etcd{}.Recover(ctx, given.Argument("file"), given.Text("destroyed"), given.Text("bootstrapNode"), given.Switch("yes"), given.Switch("noWait"), given.Switch("dryRun"))
			},
		},
		{
			Name:      "etcd:removeMember",
			Summary:   "takes a member out of etcd whose node is gone for good, by its id in hex, and that node out of Kubernetes.",
			More:      "It is refused while that node answers at any known address, or if etcd would lose its quorum without it. mage etcd:members shows the ids.",
			Arguments: []string{"id"},
			Flags: []commandline.Flag{
				{Name: "dryRun", Kind: commandline.Switch},
			},
			Run: func(ctx context.Context, given commandline.Values) error {
				return targets.Etcd{}.RemoveMember(ctx, given.Argument("id"), given.Switch("dryRun"))
			},
		},
		{
			Name:    "etcd:snapshot",
			Summary: "copies etcd's data to a file, verifies it by its hash, and leaves nothing that is not whole.",
			More:    "It is copied from a control plane that has a leader, or from the one that -node names, whatever state that is in. The file, for you alone, holds all Secrets: by default it is a new one in the folder snapshots, which git ignores.",
			Flags: []commandline.Flag{
				{Name: "file", Kind: commandline.Text},
				{Name: "node", Kind: commandline.Text},
				{Name: "dryRun", Kind: commandline.Switch},
			},
			Run: func(ctx context.Context, given commandline.Values) error {
				return targets.Etcd{}.Snapshot(ctx, given.Text("file"), given.Text("node"), given.Switch("dryRun"))
			},
		},
		{
			Name:    "etcd:status",
			Summary: "shows how etcd is on every control plane: its member, its role, the size of its database.",
			More:    "It changes nothing.",
			Run: func(ctx context.Context, _ commandline.Values) error {
				return targets.Etcd{}.Status(ctx)
			},
		},
		{
			Name:      "explain",
			Summary:   "tells what a finding's id, such as TM065, stands for: its cause, remedy and source.",
			Arguments: []string{"finding"},
			Run: func(_ context.Context, given commandline.Values) error {
				return targets.Explain(given.Argument("finding"))
			},
		},
		{
			Name:    "generateConfig",
			Summary: "is config:generate under its older name.",
			Flags: []commandline.Flag{
				{Name: "dryRun", Kind: commandline.Switch},
			},
			Run: func(ctx context.Context, given commandline.Values) error {
				return targets.GenerateConfig(ctx, given.Switch("dryRun"))
			},
		},
		{
			Name:    "health",
			Summary: "checks a cluster that is up: its nodes, etcd and Kubernetes, images against the files, and certificates.",
			More:    "A control plane makes the check of the cluster, another one if it can't. It ends with code 7 if anything fails. -profile=interop also asks the nodes and Kubernetes what docs/interop.md says. -format is table or json. -node names the nodes to look at. -noWait gives a check that does not pass at once no time to do so. It changes nothing.",
			Flags: []commandline.Flag{
				{Name: "node", Kind: commandline.Text},
				{Name: "format", Kind: commandline.Text},
				{Name: "profile", Kind: commandline.Text},
				{Name: "noWait", Kind: commandline.Switch},
			},
			Run: func(ctx context.Context, given commandline.Values) error {
				return targets.Health(ctx, given.Text("node"), given.Text("format"), given.Text("profile"), given.Switch("noWait"))
			},
		},
		{
			Name:    "kubeconfig",
			Summary: "merges the cluster's admin kubeconfig into the user's file; the file is kept if it is good.",
			Flags: []commandline.Flag{
				{Name: "force", Kind: commandline.Switch},
				{Name: "dryRun", Kind: commandline.Switch},
			},
			Run: func(ctx context.Context, given commandline.Values) error {
				return targets.Kubeconfig(ctx, given.Switch("force"), given.Switch("dryRun"))
			},
		},
		{
			Name:    "preflight",
			Summary: "finds what would make the bring-up fail, in the files and on each node, before anything is sent.",
			Flags: []commandline.Flag{
				{Name: "node", Kind: commandline.Text},
				{Name: "skipChecks", Kind: commandline.Text},
				{Name: "certFingerprints", Kind: commandline.Text},
				{Name: "discover", Kind: commandline.Switch},
				{Name: "allowAmbiguousDisk", Kind: commandline.Switch},
			},
			Run: func(ctx context.Context, given commandline.Values) error {
				return targets.Preflight(ctx, given.Text("node"), given.Text("skipChecks"), given.Text("certFingerprints"), given.Switch("discover"), given.Switch("allowAmbiguousDisk"))
			},
		},
		{
			Name:      "replaceNode",
			Summary:   "puts the machine that the files declare in the place of one that is gone for good, by the node's name.",
			More:      "The former machine's member of etcd and its Kubernetes node go, once the new machine answers and etcd can do without the former one; then the new one gets its config, and joins as a voter. The new machine's MAC address has to be in the files. The former one is refused if it comes back.",
			Arguments: []string{"node"},
			Flags: []commandline.Flag{
				{Name: "certFingerprints", Kind: commandline.Text},
				{Name: "discover", Kind: commandline.Switch},
				{Name: "noWait", Kind: commandline.Switch},
				{Name: "dryRun", Kind: commandline.Switch},
			},
			Run: func(ctx context.Context, given commandline.Values) error {
				return targets.ReplaceNode(ctx, given.Argument("node"), given.Text("certFingerprints"), given.Switch("discover"), given.Switch("noWait"), given.Switch("dryRun"))
			},
		},
		{
			Name:    "report",
			Summary: "shows a recorded run: the last one, or the one that -run names.",
			More:    "-open shows its page in a browser: a timeline of the nodes, the results, each finding, the settings.",
			Flags: []commandline.Flag{
				{Name: "run", Kind: commandline.Text},
				{Name: "open", Kind: commandline.Switch},
			},
			Run: func(ctx context.Context, given commandline.Values) error {
				return targets.Report(ctx, given.Text("run"), given.Switch("open"))
			},
		},
		{
			Name:    "reset",
			Summary: "wipes nodes and takes them back to maintenance mode: those that -node names, or with -cluster=<its name> all.",
			More:    "It lists what is lost, and goes on once the name of the node or cluster was typed, or with -yes. Their config goes, and all that a life in the cluster left behind. -systemDisk wipes all of the disk that Talos is on, -disk other disks. Workers first, then control planes, one by one; a node that leaves a cluster must not cost etcd its quorum. A node in maintenance is skipped, so that it can be run again.",
			Flags: []commandline.Flag{
				{Name: "node", Kind: commandline.Text},
				{Name: "cluster", Kind: commandline.Text},
				{Name: "disk", Kind: commandline.Text},
				{Name: "systemDisk", Kind: commandline.Switch},
				{Name: "discover", Kind: commandline.Switch},
				{Name: "yes", Kind: commandline.Switch},
				{Name: "dryRun", Kind: commandline.Switch},
			},
			Run: func(ctx context.Context, given commandline.Values) error {
				return targets.Reset(ctx, given.Text("node"), given.Text("cluster"), given.Text("disk"), given.Switch("systemDisk"), given.Switch("discover"), given.Switch("yes"), given.Switch("dryRun"))
			},
		},
		{
			Name:    "runs",
			Summary: "lists the recorded runs, and sums up how their steps ended for nodes, and why.",
			More:    "KEEP_RUNS says how many are kept (docs/runs.md).",
			Run: func(ctx context.Context, _ commandline.Values) error {
				return targets.Runs(ctx)
			},
		},
		{
			Name:    "status",
			Summary: "shows every node's state, stage, version, config and etcd at once, and the next command.",
			More:    "It works at every stage.",
			Flags: []commandline.Flag{
				{Name: "node", Kind: commandline.Text},
			},
			Run: func(ctx context.Context, given commandline.Values) error {
				return targets.Status(ctx, given.Text("node"))
			},
		},
		{
			Name:    "talos",
			Summary: "brings the whole cluster up: secrets, configs, preflight, apply, verify, bootstrap, kubeconfig, workers.",
			More:    "Run again, it does what is missing, and nothing if the cluster is up: then -update gives changed configs to nodes that have one, and -reboot lets them reboot for it. -node leaves the other nodes out. -discover searches the nodes' networks for their machines first, wherever DHCP has put them.",
			Flags: []commandline.Flag{
				{Name: "node", Kind: commandline.Text},
				{Name: "parallel", Kind: commandline.Text},
				{Name: "applyMode", Kind: commandline.Text},
				{Name: "bootstrapNode", Kind: commandline.Text},
				{Name: "assumeEmpty", Kind: commandline.Text},
				{Name: "skipChecks", Kind: commandline.Text},
				{Name: "certFingerprints", Kind: commandline.Text},
				{Name: "discover", Kind: commandline.Switch},
				{Name: "update", Kind: commandline.Switch},
				{Name: "reboot", Kind: commandline.Switch},
				{Name: "allowAmbiguousDisk", Kind: commandline.Switch},
				{Name: "newSecrets", Kind: commandline.Switch},
				{Name: "noWait", Kind: commandline.Switch},
				{Name: "dryRun", Kind: commandline.Switch},
				{Name: "force", Kind: commandline.Switch},
			},
			Run: func(ctx context.Context, given commandline.Values) error {
				return targets.Talos(ctx, given.Text("node"), given.Text("parallel"), given.Text("applyMode"), given.Text("bootstrapNode"), given.Text("assumeEmpty"), given.Text("skipChecks"), given.Text("certFingerprints"), given.Switch("discover"), given.Switch("update"), given.Switch("reboot"), given.Switch("allowAmbiguousDisk"), given.Switch("newSecrets"), given.Switch("noWait"), given.Switch("dryRun"), given.Switch("force"))
			},
		},
		{
			Name:    "upgrade",
			Summary: "brings nodes to the Talos version and the schematic that the files declare, and stops at the first that does not come back whole.",
			More:    "-cluster=<its name> is all of them, -node some: control planes first, one by one, then workers, -parallel of them at once (1 by default). Before the first control plane a snapshot of etcd is taken and verified. Each node pulls the image, is drained, installs and reboots; believed is what it runs then. Run again, it goes on with the rest. -dryRun shows the plan.",
			Flags: []commandline.Flag{
				{Name: "cluster", Kind: commandline.Text},
				{Name: "node", Kind: commandline.Text},
				{Name: "parallel", Kind: commandline.Text},
				{Name: "allowDowngrade", Kind: commandline.Switch},
				{Name: "yes", Kind: commandline.Switch},
				{Name: "dryRun", Kind: commandline.Switch},
			},
			Run: func(ctx context.Context, given commandline.Values) error {
				return targets.Upgrade(ctx, given.Text("cluster"), given.Text("node"), given.Text("parallel"), given.Switch("allowDowngrade"), given.Switch("yes"), given.Switch("dryRun"))
			},
		},
		{
			Name:    "upgradeK8s",
			Summary: "brings Kubernetes to the version that talenv.yaml or the profile declares, on every node, with talosctl.",
			More:    "The way there, the nodes' Talos, deprecated APIs in use and talosctl's own version are looked at first, and a dry run is shown. Run again, it goes on where it stopped. docs/targets.md says more.",
			Flags: []commandline.Flag{
				{Name: "skipChecks", Kind: commandline.Text},
				{Name: "dryRun", Kind: commandline.Switch},
			},
			Run: func(ctx context.Context, given commandline.Values) error {
				return targets.UpgradeK8s(ctx, given.Text("skipChecks"), given.Switch("dryRun"))
			},
		},
		{
			Name:      "upgradeNode",
			Summary:   "brings one node, by address or name, to the Talos version and the schematic that the files declare.",
			More:      "It is upgrade for that node alone: with a snapshot first, if it is a control plane.",
			Arguments: []string{"address"},
			Flags: []commandline.Flag{
				{Name: "allowDowngrade", Kind: commandline.Switch},
				{Name: "yes", Kind: commandline.Switch},
				{Name: "dryRun", Kind: commandline.Switch},
			},
			Run: func(ctx context.Context, given commandline.Values) error {
				return targets.UpgradeNode(ctx, given.Argument("address"), given.Switch("allowDowngrade"), given.Switch("yes"), given.Switch("dryRun"))
			},
		},
		{
			Name:    "verify",
			Summary: "waits until the nodes have left maintenance with their own config; once etcd runs, the workers must be up too.",
			Flags: []commandline.Flag{
				{Name: "node", Kind: commandline.Text},
				{Name: "discover", Kind: commandline.Switch},
				{Name: "noWait", Kind: commandline.Switch},
			},
			Run: func(ctx context.Context, given commandline.Values) error {
				return targets.Verify(ctx, given.Text("node"), given.Switch("discover"), given.Switch("noWait"))
			},
		},
		{
			Name:    "verifyNodes",
			Summary: "shows whether the machines of nodes.yaml, or of the inventory where there is none, answer as Talos nodes.",
			Run: func(ctx context.Context, _ commandline.Values) error {
				return targets.VerifyNodes(ctx)
			},
		},
	}
}
