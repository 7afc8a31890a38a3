package preflight

import (
	"context"
	"strings"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// checkTPM warns where disks are to be sealed by a TPM on a machine whose boot is not measured.
func checkTPM(_ context.Context, s subject) []diagnosis.Finding {
	if s.config == nil || s.facts.Security == nil || !s.config.HasTPMKeys() {
		return nil
	}

	var missing []string

	if !s.facts.Security.SecureBoot {
		missing = append(missing, "SecureBoot")
	}

	if !s.facts.Security.UKI {
		missing = append(missing, "a unified kernel image (UKI)")
	}

	if len(missing) == 0 {
		return s.ok(diagnosis.TPMUnsealed, "TPM keys, with SecureBoot and a UKI")
	}

	return s.warn(diagnosis.TPMUnsealed,
		"enable SecureBoot and boot a -secureboot image, or "+s.regenerate("use other disk encryption keys for "+s.node.Name),
		"disks are to be encrypted with TPM keys, and the node booted without %s: it may never unlock them again",
		strings.Join(missing, " and "))
}

// checkKernelArgs warns about kernel arguments that only a node that boots with GRUB and its own command line takes
// from the machine config.
func checkKernelArgs(_ context.Context, s subject) []diagnosis.Finding {
	if s.config == nil {
		return nil
	}

	args := strings.Join(s.config.ExtraKernelArgs(), " ")
	if args == "" || s.facts.Security == nil || !s.facts.Security.UKI {
		return nil
	}

	return s.warn(diagnosis.KernelArgsIgnored,
		"put them into the image's schematic, then "+s.regenerate("drop install.extraKernelArgs of "+s.node.Name),
		"the node boots a unified kernel image: install.extraKernelArgs (%s) will be ignored", args)
}
