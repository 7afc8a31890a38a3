package talos

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
)

// copyTimeout bounds calls that move all of an etcd's data.
const copyTimeout = 15 * time.Minute

// EtcdSnapshot copies a snapshot of the node's etcd: a database, and its hash after it. A node that stops in the middle
// can look as if it were done (pkg/chunker/stream of the server, and the client's stream reader), so what was copied is
// worth nothing before it was verified.
func (c *Conn) EtcdSnapshot(ctx context.Context, to io.Writer) error {
	return c.transfer(ctx, OpEtcd, copyTimeout, func(ctx context.Context, moved func()) error {
		moved()

		stream, err := c.api.EtcdSnapshot(ctx, &machine.EtcdSnapshotRequest{})
		if err != nil {
			return err
		}

		defer stream.Close() //nolint:errcheck // it was only read

		if _, err := io.Copy(movingWriter{to, moved}, stream); err != nil {
			return fmt.Errorf("copy snapshot: %w", err)
		}

		return ctx.Err()
	})
}

// EtcdDefragment has the node's etcd give back the space that it no longer needs. Meanwhile that member answers nobody.
// The context bounds that, and an hour.
func (c *Conn) EtcdDefragment(ctx context.Context) error {
	return c.work(ctx, OpEtcd, func(ctx context.Context, _ func()) error {
		_, err := c.api.EtcdDefragment(ctx)
		return err
	})
}
