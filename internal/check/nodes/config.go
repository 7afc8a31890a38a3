package preflight

import (
	"context"
	"errors"
	"slices"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// mildest is the kind of machine that refuses least: what it refuses, every machine refuses.
var mildest = machineconfig.Mode{Metal: true, Installed: true}

// checkConfigs validates each machine config as far as the file alone decides.
func checkConfigs(_ context.Context, w whole) []diagnosis.Finding {
	var findings []diagnosis.Finding

	for node, config := range w.each() {
		warnings, err := config.Validate(mildest)

		if err != nil {
			findings = append(findings, w.about(node, diagnosis.ConfigInvalid, diagnosis.Failure,
				w.regenerate("correct "+node.Name), "%s is not valid: %s", config.Path, problems(err))...)

			continue
		}

		for _, warning := range warnings {
			findings = append(findings, w.about(node, diagnosis.ConfigInvalid, diagnosis.Warning,
				w.regenerate("correct "+node.Name), "%s: %s", config.Path, warning)...)
		}
	}

	return w.okUnless(findings, diagnosis.ConfigInvalid, "%d machine configs are valid", len(w.configs))
}

// checkConfigHere validates the machine config for the very machine that answered: with its disks, and knowing whether
// it is installed.
func checkConfigHere(ctx context.Context, s subject) []diagnosis.Finding {
	if s.config == nil {
		return nil
	}

	if _, err := s.config.Validate(mildest); err != nil {
		return nil // the file is broken wherever it goes: checkConfigs says so
	}

	mode := s.mode()

	_, err := s.config.Validate(mode)
	if err == nil && !s.facts.unread(readDisks) {
		err = s.runtimeValidate(ctx, mode)
	}

	if refusals := s.others(err); len(refusals) > 0 {
		return s.fail(diagnosis.ConfigRefusedHere, s.regenerate("correct "+s.node.Name),
			"the node would refuse %s: %s", s.config.Path, strings.Join(refusals, "; "))
	}

	return s.ok(diagnosis.ConfigRefusedHere, "the node would accept %s", s.config.Path)
}

// runtimeValidate is what the node itself does with its own disks right before it accepts a config.
func (s subject) runtimeValidate(ctx context.Context, mode machineconfig.Mode) error {
	disks, err := talos.StateOf(ctx, s.facts.Disks)
	if err != nil {
		return err
	}

	return s.config.RuntimeValidate(ctx, disks, mode)
}

// mode is what the node validates its config as. Machines here are bare metal or virtual ones booted from metal images.
func (s subject) mode() machineconfig.Mode {
	return machineconfig.Mode{Metal: true, Installed: s.installed() && !s.alwaysAsksForInstall()}
}

// alwaysAsksForInstall tells of Talos before 1.13 in maintenance mode: it judges an install section that it then
// ignores, as it is installed.
func (s subject) alwaysAsksForInstall() bool {
	running, err := talosconfig.ParseContractFromVersion(s.facts.Version)

	return err == nil && !running.Greater(talosconfig.TalosVersion1_12) && s.facts.State != talos.Ours
}

// installed reports whether the node ignores its install section: Talos is on a disk, or it runs from one.
func (s subject) installed() bool {
	return s.facts.Installed || s.facts.State == talos.Ours
}

// others leaves out what checks of their own explain better: the disk selector of a machine that will install, and the
// Kubernetes versions, which machinery compares with the Talos version that it belongs to itself instead of the node's.
func (s subject) others(err error) []string {
	return slices.DeleteFunc(list(err), func(problem string) bool {
		return !s.installed() && strings.Contains(problem, "no disks matched the expression") ||
			strings.Contains(problem, "to be used with Talos") ||
			strings.Contains(problem, "compatibility with version")
	})
}

// list gives the single problems of a validation error.
func list(err error) []string {
	var invalid *machineconfig.ValidationError

	switch {
	case err == nil:
		return nil
	case errors.As(err, &invalid):
		return slices.Clone(invalid.Problems)
	default:
		return []string{err.Error()}
	}
}

func problems(err error) string { return strings.Join(list(err), "; ") }

// each goes over the nodes that have a machine config, in inventory order; machines that share a file each get a turn.
func (w whole) each() func(yield func(*inventory.Node, *machineconfig.Config) bool) {
	return func(yield func(*inventory.Node, *machineconfig.Config) bool) {
		for _, node := range w.cluster.Nodes {
			if config := w.configs[node.Name]; config != nil && !yield(node, config) {
				return
			}
		}
	}
}
