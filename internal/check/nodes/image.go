package preflight

import (
	"context"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"

	"github.com/talos-mage/talos-mage/internal/cluster/release"
	"github.com/talos-mage/talos-mage/internal/cluster/schematic"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// image is an installer image's reference, as it is judged here.
type image struct{ schematic.Reference }

// lastOnGHCR is the last Talos minor version whose installer was published outside of the image factory, by the release
// notes of 1.14.
var lastOnGHCR = talosconfig.TalosVersion1_13

// newerThan reports whether the tag is a version newer than a minor version.
func (i image) newerThan(contract *talosconfig.VersionContract) bool {
	tagged, err := talosconfig.ParseContractFromVersion(i.Tag)

	return err == nil && tagged.Greater(contract)
}

// ImageFault says in plain words what is wrong with an installer image's reference; empty when nothing is.
func ImageFault(reference string) string { return image{schematic.ParseReference(reference)}.fault() }

// fault says in plain words what is wrong with the reference; empty when nothing is.
func (i image) fault() string {
	switch {
	case i.Registry == schematic.DefaultRegistry && !i.HasSchematic, i.HasSchematic && i.Schematic == "":
		return "the schematic id is missing"
	case i.HasSchematic && !schematic.IsID(i.Schematic):
		return "the schematic id " + i.Schematic + " is not 64 hexadecimal digits"
	case i.Tag == "" && i.Digest == "":
		return "the tag is missing"
	case i.Tag != "" && i.Official() && !release.IsTag(i.Tag):
		return "the tag " + i.Tag + " is not a version like v1.13.9"
	case i.Registry == "ghcr.io" && i.Repository == "siderolabs/installer" && i.newerThan(lastOnGHCR):
		return "it is published up to " + lastOnGHCR.String() + " only: newer ones come from the image factory"
	default:
		return ""
	}
}

// checkImages looks at each installer image's reference: Talos itself would only find out while pulling.
func checkImages(_ context.Context, w whole) []diagnosis.Finding {
	var findings []diagnosis.Finding

	for node, config := range w.each() {
		reference := config.InstallImage()
		if reference == "" {
			continue // Talos installs its own version's image
		}

		image := image{schematic.ParseReference(reference)}

		if fault := image.fault(); fault != "" {
			findings = append(findings, w.about(node, diagnosis.InstallerReference, diagnosis.Failure,
				w.regenerate("correct the image of "+node.Name), "installer image %s: %s", reference, fault)...)

			continue
		}

		if declared := w.cluster.TalosVersion; declared != "" && release.IsTag(image.Tag) && image.Tag != declared {
			findings = append(findings, w.about(node, diagnosis.InstallerVersion, diagnosis.Warning,
				w.regenerate("bring talosVersion and the image of "+node.Name+" together"),
				"the installer image is %s, talosVersion is %s: the node will run %s", image.Tag, declared, image.Tag)...)
		}
	}

	return w.okUnless(findings, diagnosis.InstallerReference, "the installer images' references are sound")
}

// checkSecureBoot compares the installer image with the way the node booted. A node that has Talos on a disk does not
// install, so there it is a warning about the next upgrade.
func checkSecureBoot(_ context.Context, s subject) []diagnosis.Finding {
	if s.config == nil || s.facts.Security == nil || s.config.InstallImage() == "" {
		return nil
	}

	machine, installer := s.facts.Security.SecureBoot, s.config.SecureBootImage()

	severity := diagnosis.Failure
	if s.installed() {
		severity = diagnosis.Warning
	}

	switch {
	case machine && !installer:
		return s.finding(diagnosis.InstallerSecureBoot, severity,
			s.regenerate("use the -secureboot installer image for "+s.node.Name),
			"the node booted with SecureBoot, and %s is not for SecureBoot: it would not boot again", s.config.InstallImage())
	case !machine && installer:
		return s.finding(diagnosis.InstallerSecureBoot, severity,
			"enable SecureBoot in the machine's firmware and boot the -secureboot image, or "+
				s.regenerate("use the ordinary installer image for "+s.node.Name),
			"the node booted without SecureBoot, and %s is for SecureBoot only", s.config.InstallImage())
	case machine:
		return s.ok(diagnosis.InstallerSecureBoot, "SecureBoot, and so is the installer image")
	default:
		return s.ok(diagnosis.InstallerSecureBoot, "no SecureBoot, and none in the installer image")
	}
}
