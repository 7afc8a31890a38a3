package nodes

import (
	"cmp"
	"context"
	"errors"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/files/versions"
	"github.com/talos-mage/talos-mage/internal/cluster/release"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// checkTalosVersion compares what the node runs with what its machine config is made for. Only the minor version
// counts.
func checkTalosVersion(_ context.Context, s subject) {
	running, err := talosconfig.ParseContractFromVersion(s.Facts.Version)
	if err != nil {
		return // unread, or a development build without a version
	}

	madeFor, why := s.contract()

	if s.Config != nil {
		if needed := s.Config.TalosContract(); needed.Greater(running) && (madeFor == nil || needed.Greater(madeFor)) {
			madeFor, why = needed, "by its fields"
		}
	}

	switch {
	case madeFor == nil:
		s.ok(diagnosis.TalosVersionMismatch, "runs Talos %s", s.Facts.Version)
	case madeFor.Greater(running):
		s.fail(diagnosis.TalosVersionMismatch,
			"boot the node from a "+madeFor.String()+" image, or "+s.regenerate("set talosVersion to "+running.String()),
			"the node runs Talos %s, its machine config is made for %s (%s): it would refuse what it does not know",
			s.Facts.Version, madeFor, why)
	case running.Greater(madeFor):
		s.warn(diagnosis.TalosVersionMismatch, s.regenerate("set talosVersion to "+running.String()),
			"the node runs Talos %s, its machine config is made for the older %s (%s)", s.Facts.Version, madeFor, why)
	default:
		s.ok(diagnosis.TalosVersionMismatch, "runs Talos %s, machine config for %s", s.Facts.Version, madeFor)
	}
}

// contract is the Talos minor version that the node's machine config is made for, and where that is said; nil when
// nothing says it.
func (s subject) contract() (contract *talosconfig.VersionContract, why string) {
	if declared, err := talosconfig.ParseContractFromVersion(s.Cluster.TalosVersion); err == nil {
		return declared, "talosVersion " + s.Cluster.TalosVersion
	}

	if s.Config == nil {
		return nil, ""
	}

	if tagged, err := talosconfig.ParseContractFromVersion(s.Config.InstallerVersion()); err == nil {
		return tagged, "installer image " + s.Config.InstallerVersion()
	}

	return nil, ""
}

// checkKubernetesVersion asks machinery whether the node's Talos version runs the Kubernetes version of its machine
// config.
func checkKubernetesVersion(_ context.Context, s subject) {
	if s.Facts.Version == "" {
		return
	}

	kubelet := ""

	for _, part := range versions.Components(&check.Rendered{Config: s.Config}) {
		tag := part.Tag()
		if tag == "" {
			continue // validation refuses such an image reference
		}

		switch err := release.Fit(tag, s.Facts.Version); {
		case err == nil:
			kubelet = cmp.Or(kubelet, tag)
		case errors.Is(err, release.ErrNotTabled):
			s.warn(diagnosis.KubernetesUnsupported, "compare with the support matrix of Talos "+s.Facts.Version,
				"Talos %s is newer than this program knows, or a development build: it can't tell whether Kubernetes %s goes "+
					"with it", s.Facts.Version, tag)

			return
		default:
			s.fail(diagnosis.KubernetesUnsupported, s.regenerate("change kubernetesVersion"), "%s: %s, which the node runs",
				part.Image, err)

			return
		}
	}

	if kubelet != "" {
		s.ok(diagnosis.KubernetesUnsupported, "Kubernetes %s goes with Talos %s", kubelet, s.Facts.Version)
	}
}

// checkLiveUpgrade looks at the way from what a node runs to its installer.
func checkLiveUpgrade(_ context.Context, s subject) {
	tag, running := versions.InstallerTag(s.Config), s.Facts.Version
	if _, known := release.Numbers(running); tag == "" || !known {
		return
	}

	older := versions.CompareVersions(tag, running) < 0

	switch why := versions.Upgrade(running, tag); {
	case s.installed() && why != "":
		s.found(diagnosis.NodeUpgradePath, "upgrade by the latest patch of every minor version in between",
			"the node runs Talos %s, and its installer is %s: %s", running, tag, why)
	case s.installed() && older:
		s.found(diagnosis.NodeUpgradePath, "use an installer of "+running+" or newer",
			"the node runs Talos %s, and its installer is %s: an upgrade with it goes back", running, tag)
	case !s.installed() && older:
		s.found(diagnosis.NodeUpgradePath, "use an installer of "+running+", or boot the machine from "+tag,
			"the machine was booted from Talos %s, and its older installer %s judges the config anew after the install",
			running, tag)
	}
}
