package nodes

import (
	"cmp"
	"context"
	"errors"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/files/versions"
	"github.com/talos-mage/talos-mage/internal/cluster/release"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

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
