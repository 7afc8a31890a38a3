package gate

import (
	"context"

	"github.com/talos-mage/talos-mage/internal/talos"
)

// Reset has a node wipe what it has, and reboot.
func (g Gate) Reset(ctx context.Context, conn *talos.Conn, reset talos.Reset) error {
	return g.pass(func() error { return conn.Reset(ctx, reset) })
}
