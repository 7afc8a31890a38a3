// Package targets holds the Mage targets that take machines in Talos maintenance mode to a healthy Kubernetes cluster.
//
// Import it in a magefile:
//
//	//mage:import
//	_ "github.com/talos-mage/talos-mage/targets"
//
// Every target reads its settings from the environment (docs/settings.md), its flags go over them, and every target can
// be run again: it looks at the nodes first and does only what is missing.
package targets

import (
	"context"

	"github.com/talos-mage/talos-mage/internal/cli/invocation"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/steps"
)

// Talos brings the whole cluster up: secrets, configs, preflight, apply, verify, bootstrap, kubeconfig, workers.
//
// Run again, it does what is missing, and nothing if the cluster is up: then -update gives changed configs to nodes
// that have one, and -reboot lets them reboot for it. -node leaves the other nodes out. -discover searches the nodes'
// networks for their machines first, wherever DHCP has put them.
func Talos(ctx context.Context, node, parallel, applyMode, bootstrapNode, assumeEmpty, skipChecks,
	certFingerprints *string, discover, update, reboot, allowAmbiguousDisk, newSecrets, noWait, dryRun,
	force *bool) error {
	return execute(ctx, "talos", overrides{
		"node": node, "parallel": parallel, "applyMode": applyMode, "bootstrapNode": bootstrapNode,
		"assumeEmpty": assumeEmpty, "skipChecks": skipChecks, "certFingerprints": certFingerprints,
		"discover": discover, "update": update, "reboot": reboot, "allowAmbiguousDisk": allowAmbiguousDisk,
		"newSecrets": newSecrets,
		"noWait":     noWait, "dryRun": dryRun, "force": force,
	}, steps.Talos)
}

// Preflight finds what would make the bring-up fail, in the files and on each node, before anything is sent.
func Preflight(ctx context.Context, node, skipChecks, certFingerprints *string, discover,
	allowAmbiguousDisk *bool) error {
	return execute(ctx, "preflight", overrides{
		"node": node, "skipChecks": skipChecks, "certFingerprints": certFingerprints, "discover": discover,
		"allowAmbiguousDisk": allowAmbiguousDisk,
	}, steps.Located(steps.Preflight{}))
}

// Audit finds what is wrong in the files alone, without a node or the network, and says what to change.
//
// -format is table, json or sarif. Bad files end with code 2. docs/checks.md lists the checks. -profile=interop judges
// instead how Talos, Cilium and the Proxmox VMs are set up for each other (docs/interop.md).
func Audit(ctx context.Context, format, profile, skipChecks *string) error {
	return exit(invocation.FromProcess("audit").Audit(ctx,
		overrides{"format": format, "profile": profile, "skipChecks": skipChecks}.set()))
}

// Explain tells what a finding's id, such as TM065, stands for: its cause, remedy and source.
func Explain(finding string) error {
	return exit(invocation.FromProcess("explain").Explain(finding))
}

// ApplySequential sends each node its machine config, one node after the other, control planes first.
//
// Nodes that have their config are skipped. On a cluster that is up nothing changes without -update, and nothing
// reboots without -reboot.
func ApplySequential(ctx context.Context, node, mode, skipChecks, certFingerprints *string, discover, update, reboot,
	allowAmbiguousDisk, noWait, dryRun *bool) error {
	return execute(ctx, "applySequential", overrides{
		"node": node, "mode": mode, "skipChecks": skipChecks,
		"certFingerprints": certFingerprints, "discover": discover, "update": update, "reboot": reboot,
		"allowAmbiguousDisk": allowAmbiguousDisk,
		"noWait":             noWait, "dryRun": dryRun,
	}, steps.Located(steps.Apply{}))
}

// ApplyParallel sends the machine configs to several nodes at once (-parallel=N or N%, 2 by default).
func ApplyParallel(ctx context.Context, node, parallel, mode, skipChecks, certFingerprints *string, discover, update,
	reboot, allowAmbiguousDisk, noWait, dryRun *bool) error {
	return execute(ctx, "applyParallel", overrides{
		"node": node, "parallel": parallel, "mode": mode, "skipChecks": skipChecks,
		"certFingerprints": certFingerprints, "discover": discover, "update": update, "reboot": reboot,
		"allowAmbiguousDisk": allowAmbiguousDisk,
		"noWait":             noWait, "dryRun": dryRun,
	}, steps.Located(steps.Apply{Parallel: true}))
}

// ApplyNode sends one node its machine config, by address or name, also on a cluster that is up: naming a node is
// asking.
//
// -mode is auto (the default; it may reboot, and says so first), no-reboot, reboot, staged or try.
func ApplyNode(ctx context.Context, address string, mode, certFingerprints *string, dryRun *bool) error {
	yes := true
	return execute(ctx, "applyNode", overrides{
		"<address>": &address, "mode": mode, "certFingerprints": certFingerprints, "dryRun": dryRun, "update": &yes,
		"reboot": &yes,
	}, only(steps.Apply{}))
}

// ReplaceNode puts the machine that the files declare in the place of one that is gone for good, by the node's name.
//
// The former machine's member of etcd and its Kubernetes node go, once the new machine answers and etcd can do without
// the former one; then the new one gets its config, and joins as a voter. The new machine's MAC address has to be in
// the files. The former one is refused if it comes back.
func ReplaceNode(ctx context.Context, node string, certFingerprints *string, discover, noWait, dryRun *bool) error {
	return execute(ctx, "replaceNode", overrides{"<node>": &node, "certFingerprints": certFingerprints,
		"discover": discover, "noWait": noWait, "dryRun": dryRun}, steps.ReplaceNode)
}

// Verify waits until the nodes have left maintenance with their own config; once etcd runs, the workers must be up too.
func Verify(ctx context.Context, node *string, discover, noWait *bool) error {
	return execute(ctx, "verify", overrides{"node": node, "discover": discover, "noWait": noWait},
		steps.Located(steps.Verify{}))
}

// Bootstrap starts etcd on one control plane, exactly once, and waits until it is whole and the Kubernetes API answers.
func Bootstrap(ctx context.Context, bootstrapNode, assumeEmpty *string, noWait, dryRun *bool) error {
	return execute(ctx, "bootstrap", overrides{
		"bootstrapNode": bootstrapNode, "assumeEmpty": assumeEmpty, "noWait": noWait, "dryRun": dryRun,
	}, only(steps.Bootstrap{}))
}

// Kubeconfig merges the cluster's admin kubeconfig into the user's file; the file is kept if it is good.
func Kubeconfig(ctx context.Context, force, dryRun *bool) error {
	return execute(ctx, "kubeconfig", overrides{"force": force, "dryRun": dryRun}, only(steps.Kubeconfig{}))
}

// GenerateConfig is config:generate under its older name.
func GenerateConfig(ctx context.Context, dryRun *bool) error {
	return Config{}.Generate(ctx, dryRun)
}

// Status shows every node's state, stage, version, config and etcd at once, and the next command. It works at every
// stage.
func Status(ctx context.Context, node *string) error {
	return exit(invocation.FromProcess("status").Status(ctx, overrides{"node": node}.set()))
}

// Discover finds the machines of some networks that answer as Talos does, and shows what each tells of itself.
//
// -cidr names the networks; without it, it is those of the inventory's addresses. -wide asks public ones and large ones
// too. -matchByCount matches what nothing tells of by order, if the numbers are equal. -format is table or json. -save
// keeps where the nodes' machines are. docs/discover.md says more.
func Discover(ctx context.Context, cidr, node, format *string, wide, matchByCount, save *bool) error {
	return exit(invocation.FromProcess("discover").Discover(ctx, overrides{"cidr": cidr, "node": node, "format": format,
		"wide": wide, "matchByCount": matchByCount, "save": save}.set()))
}

// VerifyNodes shows whether the machines of nodes.yaml, or of the inventory where there is none, answer as Talos nodes.
func VerifyNodes(ctx context.Context) error {
	return exit(invocation.FromProcess("verifyNodes").VerifyNodes(ctx, overrides{}.set()))
}

func only(list ...steps.Step) func(*settings.Settings) []steps.Step {
	return func(*settings.Settings) []steps.Step { return list }
}
