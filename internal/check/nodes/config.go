package nodes

import (
	"context"
	"slices"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/files/documents"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// checkConfigHere validates the machine config for the very machine that answered: with its disks, and knowing whether
// it is installed.
func checkConfigHere(ctx context.Context, s subject) {
	if _, err := s.Config.Validate(documents.Mildest); err != nil {
		return // the file is broken wherever it goes: the check of files says so
	}

	mode := s.mode()

	_, err := s.Config.Validate(mode)
	if err == nil && !s.Facts.Lacks(check.FactDisks) {
		err = s.runtimeValidate(ctx, mode)
	}

	if refusals := s.others(err); len(refusals) > 0 {
		s.fail(diagnosis.ConfigRefusedHere, s.regenerate("correct "+s.Name),
			"the node would refuse %s: %s", s.Config.Path, strings.Join(refusals, "; "))

		return
	}

	s.ok(diagnosis.ConfigRefusedHere, "the node would accept %s", s.Config.Path)
}

// runtimeValidate is what the node itself does with its own disks right before it accepts a config.
func (s subject) runtimeValidate(ctx context.Context, mode machineconfig.Mode) error {
	disks, err := talos.StateOf(ctx, s.Facts.Disks)
	if err != nil {
		return err
	}

	return s.Config.RuntimeValidate(ctx, disks, mode)
}

// mode is what the node validates its config as. Machines here are bare metal or virtual ones booted from metal images.
func (s subject) mode() machineconfig.Mode {
	mode := machineconfig.Mode{Metal: true, Installed: s.installed() && !s.alwaysAsksForInstall()}

	if running, err := talosconfig.ParseContractFromVersion(s.Facts.Version); err == nil {
		mode.Release = running
	}

	return mode
}

// alwaysAsksForInstall tells of Talos before 1.13 in maintenance mode: it judges an install section that it then
// ignores, as it is installed.
func (s subject) alwaysAsksForInstall() bool {
	running, err := talosconfig.ParseContractFromVersion(s.Facts.Version)

	return err == nil && !running.Greater(talosconfig.TalosVersion1_12) && s.Facts.State != talos.Ours
}

// installed reports whether the node ignores its install section: Talos is on a disk, or it runs from one.
func (s subject) installed() bool {
	return s.Facts.Installed || s.Facts.State == talos.Ours
}

// others leaves out what a check of its own explains better: the disk selector of a machine that will install.
func (s subject) others(err error) []string {
	return slices.DeleteFunc(documents.Problems(err), func(problem string) bool {
		return !s.installed() && strings.Contains(problem, "no disks matched the expression")
	})
}
