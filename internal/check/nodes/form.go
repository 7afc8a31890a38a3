package nodes

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// checkTalosVersion compares what the node runs now with the form of its machine config: whichever Talos the config
// installs, it is this one that reads it first. Only the minor version counts.
func checkTalosVersion(_ context.Context, s subject) {
	running, err := talosconfig.ParseContractFromVersion(s.Facts.Version)
	if err != nil {
		return // unread, or a development build without a version
	}

	if cause, next := UnknownForm(s.Cluster, s.Config, s.Facts.Version, s.rerun()); cause != "" {
		s.fail(diagnosis.TalosVersionMismatch, next, "%s", cause)

		return
	}

	form, why := formOf(s.Cluster, s.Config)

	if s.Config != nil {
		if needed := s.Config.TalosContract(); needed.Greater(running) && (form == nil || needed.Greater(form)) {
			form, why = needed, "by its fields"
		}
	}

	switch {
	case form == nil:
		s.ok(diagnosis.TalosVersionMismatch, "runs Talos %s", s.Facts.Version)
	case form.Greater(running):
		s.fail(diagnosis.TalosVersionMismatch,
			"boot the node from a "+form.String()+" image, or "+s.regenerate("set talosVersion to "+running.String()),
			"the node runs Talos %s, its machine config is made for %s (%s): it would refuse what it does not know",
			s.Facts.Version, form, why)
	case isForOlder(s.Cluster, s.Config, running):
		s.warn(diagnosis.TalosVersionMismatch, s.regenerate("set talosVersion to "+running.String()),
			"the node runs Talos %s, its machine config is made for the older %s (%s)", s.Facts.Version, form, why)
	default:
		s.ok(diagnosis.TalosVersionMismatch, "runs Talos %s, machine config for %s", s.Facts.Version, form)
	}
}

// UnknownForm says why a node that runs a Talos version would refuse a machine config whatever it says, and what to do:
// it has documents of a later release. The cause is empty if it has none.
func UnknownForm(cluster *inventory.Cluster, config *machineconfig.Config, version, rerun string) (cause, next string) {
	running, err := talosconfig.ParseContractFromVersion(version)
	if config == nil || err != nil {
		return "", ""
	}

	unknown := config.KindsSince(running)
	if len(unknown) == 0 {
		return "", ""
	}

	const shown = 3

	kinds := strings.Join(unknown[:min(shown, len(unknown))], ", ")
	if more := len(unknown) - shown; more > 0 {
		kinds += fmt.Sprintf(" and %d more", more)
	}

	change := check.InInventory(cluster.Source, "set talosVersion to "+running.String(), rerun)

	if contract := cluster.Contract; contract != nil && contract.MultidocKubernetesConfigSupported() {
		change = fmt.Sprintf("make the configs in its form: `TALOS_CONTRACT=%s %s`, then `%s`", running,
			machineconfig.HowToGenerate, rerun)
	}

	next = "boot the node from a " + config.TalosContract().String() + " image, or " + change

	return fmt.Sprintf("the node runs Talos %s, which does not know these documents of its machine config and would "+
		"refuse all of it: %s", version, kinds), next
}

// formOf is the Talos release whose form the machine config has, and where that is said; nil when nothing says it.
func formOf(cluster *inventory.Cluster, config *machineconfig.Config) (form *talosconfig.VersionContract, why string) {
	declared, err := talosconfig.ParseContractFromVersion(cluster.TalosVersion)

	switch {
	case err == nil && cluster.Contract != nil && declared.Greater(cluster.Contract):
		return cluster.Contract, "contract " + cluster.Contract.String()
	case err == nil:
		return declared, "talosVersion " + cluster.TalosVersion
	case config == nil:
		return nil, ""
	}

	if tagged, err := talosconfig.ParseContractFromVersion(config.InstallerVersion()); err == nil {
		return tagged, "installer image " + config.InstallerVersion()
	}

	return nil, ""
}

// isForOlder reports whether what is declared is older than what the node runs. Configs for a later release may have an
// older form.
func isForOlder(cluster *inventory.Cluster, config *machineconfig.Config, running *talosconfig.VersionContract) bool {
	installer := ""
	if config != nil {
		installer = config.InstallerVersion()
	}

	declared, err := talosconfig.ParseContractFromVersion(cmp.Or(cluster.TalosVersion, installer))

	return err == nil && running.Greater(declared)
}
