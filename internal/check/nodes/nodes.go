// Package nodes holds the checks of a node that answers, before its machine config is sent: whether it is the declared
// machine, would take the config, and come up with it.
package nodes

import (
	"context"
	"slices"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Checks are those of a node that answered, in the order in which people read their findings.
func Checks() []check.Check {
	const inventory, config = diagnosis.NeedsTalconfig, diagnosis.NeedsConfig

	return slices.Concat(
		ofNode(checkProxy, 0, diagnosis.ThroughProxy),
		ofNode(checkUnread, 0, diagnosis.FactUnread),
		// the right machine?
		ofNode(checkIdentity, inventory, diagnosis.WrongMachine, diagnosis.IdentityUnread),
		// would it take the config?
		ofNode(checkConfigHere, config, diagnosis.ConfigRefusedHere),
		ofNode(checkTalosVersion, 0, diagnosis.TalosVersionMismatch),
		ofNode(checkKubernetesVersion, config, diagnosis.KubernetesUnsupported),
		// where would Talos go?
		ofNode(checkInstalled, 0, diagnosis.AlreadyInstalled),
		ofNode(checkInstallDisk, config, diagnosis.InstallDiskNoMatch, diagnosis.InstallDiskAmbiguous,
			diagnosis.InstallDiskAbsent, diagnosis.InstallDiskHoldsData),
		ofNode(checkHiddenInstall, config, diagnosis.InstallHidden),
		// would it boot again?
		ofNode(checkSecureBoot, config, diagnosis.InstallerSecureBoot),
		ofNode(checkTPM, config, diagnosis.TPMUnsealed),
		ofNode(checkKernelArgs, config, diagnosis.KernelArgsIgnored),
		// would it be on the network?
		ofNode(checkLinks, config, diagnosis.LinkAbsent),
		ofNode(checkLiveSubnet, config, diagnosis.VIPOutsideSubnet),
		// under which name?
		ofNode(checkLiveHostname, inventory, diagnosis.HostnameInvalid),
		// and what of the rest that is declared?
		ofNode(checkLiveSelectors, config, diagnosis.LinkSelectorUnmatched),
		ofNode(checkLiveVolumes, config, diagnosis.VolumeNoDisk, diagnosis.VolumeDiskHoldsData,
			diagnosis.VolumeDiskAmbiguous, diagnosis.VolumeOnSystemDisk),
		ofNode(checkLiveUpgrade, config, diagnosis.NodeUpgradePath),
		ofNode(checkGuestAgent, config, diagnosis.AgentElsewhere),
	)
}

func ofNode(run func(context.Context, subject), needs diagnosis.Need, ids ...diagnosis.ID) []check.Check {
	return check.OfNode(needs, func(ctx context.Context, report *check.Report, node *check.Node) {
		run(ctx, subject{node, report})
	}, ids...)
}

// subject is one node with all that is known about it, and what is said of it.
type subject struct {
	*check.Node

	report *check.Report
}

func (s subject) finding(id diagnosis.ID, severity diagnosis.Severity, next, cause string, args ...any) {
	s.report.As(id).Add(severity, check.Place{}, next, cause, args...)
}

func (s subject) ok(id diagnosis.ID, cause string, args ...any) {
	s.finding(id, diagnosis.OK, "", cause, args...)
}

func (s subject) warn(id diagnosis.ID, next, cause string, args ...any) {
	s.finding(id, diagnosis.Warning, next, cause, args...)
}

func (s subject) fail(id diagnosis.ID, next, cause string, args ...any) {
	s.finding(id, diagnosis.Failure, next, cause, args...)
}

// found is a finding about the node's machine config, with the catalogue's severity.
func (s subject) found(id diagnosis.ID, next, cause string, args ...any) {
	s.report.As(id).Found(check.Elsewhere(diagnosis.Location{Path: s.Config.Path}), next, cause, args...)
}

// rerun is the command that checks this node again.
func (s subject) rerun() string { return "mage preflight -node=" + s.Name }

// regenerate is what to do about a machine config: it is never edited by hand, as the next generation would undo that.
func (s subject) regenerate(change string) string {
	return check.InInventory(s.Cluster.Source, change, s.rerun())
}
