package gate

import (
	"context"

	"github.com/talos-mage/talos-mage/internal/talos/talosctl"
)

// UpgradeKubernetes has talosctl upgrade Kubernetes.
func (g Gate) UpgradeKubernetes(ctx context.Context, program talosctl.Talosctl, upgrade talosctl.KubernetesUpgrade,
	told func(talosctl.Line)) error {
	return g.pass(func() error { return program.UpgradeKubernetes(ctx, upgrade, told) })
}

// RehearseKubernetes has talosctl tell what it would upgrade. It does not pass a shut gate: the control planes are sent
// their own configs again.
func (g Gate) RehearseKubernetes(ctx context.Context, program talosctl.Talosctl, upgrade talosctl.KubernetesUpgrade,
	told func(talosctl.Line)) error {
	upgrade.DryRun = true

	return g.pass(func() error { return program.UpgradeKubernetes(ctx, upgrade, told) })
}
