package nodes

import (
	"context"
	"errors"
	"slices"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/files/documents"
	"github.com/talos-mage/talos-mage/internal/check/files/versions"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/release"
	"github.com/talos-mage/talos-mage/internal/cluster/schematic"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// Upgrade is a node that runs, and what is to take the place of its system.
type Upgrade struct {
	// Node has the machine config that is declared for it by now, which names the installer, and how the node booted.
	Node *check.Node
	// Running is the machine config that it runs with, and boots again with.
	Running *machineconfig.Config
	// Platform is the one that it runs on; empty if that is not known.
	Platform string
	// Version is the installer's.
	Version string
	// AllowDowngrade permits an older one.
	AllowDowngrade bool
}

// Refusals are why the node is not to be upgraded: what a preflight only warns of would keep it from coming back.
func (u Upgrade) Refusals(ctx context.Context) []diagnosis.Finding {
	on := func(run func(context.Context, subject), ids ...diagnosis.ID) []check.Check {
		return ofNode(run, diagnosis.NeedsConfig, ids...)
	}

	findings := check.RunNode(ctx, slices.Concat(
		on(u.checkPath, diagnosis.NodeUpgradePath, diagnosis.DowngradeNotAllowed, diagnosis.DowngradeAcrossEtcd),
		on(checkSecureBoot, diagnosis.InstallerSecureBoot),
		on(u.checkPlatform, diagnosis.UpgradePlatform),
		on(u.checkRunning, diagnosis.UpgradeConfigRefused),
		on(u.checkKubernetes, diagnosis.KubernetesUnsupported),
	), u.Node)

	findings = slices.DeleteFunc(findings,
		func(finding diagnosis.Finding) bool { return finding.Severity <= diagnosis.OK })
	for i := range findings {
		findings[i].Severity, findings[i].Skipped = diagnosis.Failure, false
	}

	return findings
}

// checkPath looks at the way from what the node runs to the installer's version.
func (u Upgrade) checkPath(_ context.Context, s subject) {
	running := s.Facts.Version

	if why := versions.Upgrade(running, u.Version); why != "" {
		s.fail(diagnosis.NodeUpgradePath, "upgrade by the latest patch of every minor version in between",
			"the node runs Talos %s, and its installer is %s: %s", running, u.Version, why)
	}

	switch back := versions.CompareVersions(u.Version, running) < 0; {
	case back && s.Role == inventory.ControlPlane && !release.SameEtcd(running, u.Version):
		s.fail(diagnosis.DowngradeAcrossEtcd, "declare "+running+" or newer",
			"from Talos %s to %s is a downgrade of etcd by a minor version, which etcd refuses", running, u.Version)
	case back && !u.AllowDowngrade:
		s.fail(diagnosis.DowngradeNotAllowed, "declare "+running+" or newer, or add -allowDowngrade",
			"from Talos %s to %s is a downgrade", running, u.Version)
	}
}

// checkPlatform compares the installer's platform with the node's own.
func (u Upgrade) checkPlatform(_ context.Context, s subject) {
	image := s.Config.InstallImage()

	if platform := schematic.ParseReference(image).PlatformIn(u.Version); platform != "" && u.Platform != "" &&
		platform != u.Platform {
		s.fail(diagnosis.UpgradePlatform, s.regenerate("use "+u.Platform+"-installer for "+s.Name),
			"the node runs on platform %s, and the installer %s is for %s", u.Platform, image, platform)
	}
}

// checkKubernetes asks whether the new Talos runs the Kubernetes that the node has: an upgrade of Talos leaves that as
// it is.
func (u Upgrade) checkKubernetes(_ context.Context, s subject) {
	for _, part := range versions.Components(&check.Rendered{Config: u.Running}) {
		// What the config does not name is the default of this program's release, and tells nothing.
		if part.Tag() == "" || !strings.Contains(string(u.Running.Bytes), part.Image) {
			continue
		}

		err := release.Fit(part.Tag(), u.Version)
		if err == nil || errors.Is(err, release.ErrNotTabled) || errors.Is(err, release.ErrNoVersion) {
			continue
		}

		s.fail(diagnosis.KubernetesUnsupported, "bring Kubernetes into that range first: mage upgradeK8s",
			"the node runs %s: %s", part.Image, err)

		return
	}
}

// checkRunning judges the config that the node will boot with as the new release does.
func (u Upgrade) checkRunning(_ context.Context, s subject) {
	target, err := talosconfig.ParseContractFromVersion(u.Version)
	if err != nil {
		return
	}

	var why string

	_, refused := u.Running.Validate(machineconfig.Mode{Metal: true, Installed: true, Release: target})

	switch unknown := u.Running.KindsSince(target); {
	case len(unknown) > 0:
		why = "would refuse the config that the node runs, for these documents: " + strings.Join(unknown, ", ")
	case refused != nil:
		why = "would refuse the config that the node runs: " + strings.Join(documents.Problems(refused), "; ")
	case !talosconfig.TalosVersion1_14.Greater(target) && u.Running.RunsKubernetes() && !u.Running.HasNetwork():
		why = "starts no kubelet with the config that the node runs, which says nothing of the cluster's network"
	default:
		return
	}

	s.fail(diagnosis.UpgradeConfigRefused,
		s.regenerate("correct "+s.Name)+", then `mage applySequential -update -node="+s.Name+"`", "Talos %s %s", u.Version,
		why)
}
