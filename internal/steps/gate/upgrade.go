package gate

import (
	"context"

	"github.com/talos-mage/talos-mage/internal/kube/drain"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// PullImage has a node fetch an image.
func (g Gate) PullImage(ctx context.Context, conn *talos.Conn, image string, tell func(done, total int64)) error {
	return g.pass(func() error { return conn.PullImage(ctx, image, tell) })
}

// InstallUpgrade has a node write another system beside the one that it runs.
func (g Gate) InstallUpgrade(ctx context.Context, conn *talos.Conn, image string, tell func(line string)) error {
	return g.pass(func() error { return conn.InstallUpgrade(ctx, image, tell) })
}

// UpgradeAtOnce has a node pull and install another system, and reboot into it.
func (g Gate) UpgradeAtOnce(ctx context.Context, conn *talos.Conn, image string) error {
	return g.pass(func() error { return conn.UpgradeAtOnce(ctx, image) })
}

// Drain takes the pods off a Kubernetes node and keeps new ones away.
func (g Gate) Drain(ctx context.Context, drainer drain.Drainer, node string, tell func(drain.Progress)) error {
	return g.pass(func() error { return drainer.Drain(ctx, node, tell) })
}

// Uncordon takes back our own cordon of a Kubernetes node, and reports whether the node takes pods.
func (g Gate) Uncordon(ctx context.Context, drainer drain.Drainer, node string) (schedulable bool, err error) {
	return schedulable, g.pass(func() error {
		schedulable, err = drainer.Uncordon(ctx, node)
		return err //nolint:wrapcheck // it names the node
	})
}
