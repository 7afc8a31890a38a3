package nodes

import (
	"context"
	"strings"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// checkTPM warns where disks are to be sealed by a TPM on a machine whose boot is not measured.
func checkTPM(_ context.Context, s subject) {
	if s.Facts.Security == nil || !s.Config.HasTPMKeys() {
		return
	}

	var missing []string

	if !s.Facts.Security.SecureBoot {
		missing = append(missing, "SecureBoot")
	}

	if !s.Facts.Security.UKI {
		missing = append(missing, "a unified kernel image (UKI)")
	}

	if len(missing) == 0 {
		s.ok(diagnosis.TPMUnsealed, "TPM keys, with SecureBoot and a UKI")

		return
	}

	s.warn(diagnosis.TPMUnsealed,
		"enable SecureBoot and boot a -secureboot image, or "+s.regenerate("use other disk encryption keys for "+s.Name),
		"disks are to be encrypted with TPM keys, and the node booted without %s: it may never unlock them again",
		strings.Join(missing, " and "))
}

// checkKernelArgs warns about kernel arguments that only a node that boots with GRUB and its own command line takes
// from the machine config.
func checkKernelArgs(_ context.Context, s subject) {
	args := strings.Join(s.Config.ExtraKernelArgs(), " ")
	if args == "" || s.Facts.Security == nil || !s.Facts.Security.UKI {
		return
	}

	s.warn(diagnosis.KernelArgsIgnored,
		"put them into the image's schematic, then "+s.regenerate("drop install.extraKernelArgs of "+s.Name),
		"the node boots a unified kernel image: install.extraKernelArgs (%s) will be ignored", args)
}

// checkSecureBoot compares the installer image with the way the node booted. A node that has Talos on a disk does not
// install, so there it is a warning about the next upgrade.
func checkSecureBoot(_ context.Context, s subject) {
	if s.Facts.Security == nil || s.Config.InstallImage() == "" {
		return
	}

	machine, installer := s.Facts.Security.SecureBoot, s.Config.SecureBootImage()

	severity := diagnosis.Failure
	if s.installed() {
		severity = diagnosis.Warning
	}

	switch {
	case machine && !installer:
		s.finding(diagnosis.InstallerSecureBoot, severity,
			s.regenerate("use the -secureboot installer image for "+s.Name),
			"the node booted with SecureBoot, and %s is not for SecureBoot: it would not boot again", s.Config.InstallImage())
	case !machine && installer:
		s.finding(diagnosis.InstallerSecureBoot, severity,
			"enable SecureBoot in the machine's firmware and boot the -secureboot image, or "+
				s.regenerate("use the ordinary installer image for "+s.Name),
			"the node booted without SecureBoot, and %s is for SecureBoot only", s.Config.InstallImage())
	case machine:
		s.ok(diagnosis.InstallerSecureBoot, "SecureBoot, and so is the installer image")
	default:
		s.ok(diagnosis.InstallerSecureBoot, "no SecureBoot, and none in the installer image")
	}
}
