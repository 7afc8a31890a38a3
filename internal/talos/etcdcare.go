package talos

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
)

// Limits of calls that move or rewrite all of an etcd's data.
const (
	snapshotTimeout = 15 * time.Minute
	defragTimeout   = 5 * time.Minute
	// snapshotPauses is how many times as long as any read a node may pause within a snapshot.
	snapshotPauses = 12
)

// EtcdSnapshot copies a snapshot of the node's etcd: a database, and its hash after it. A node that stops in the middle
// can look as if it were done (pkg/chunker/stream of the server, and the client's stream reader), so what was copied is
// worth nothing before it was verified. One that sends nothing for a while is given up.
func (c *Conn) EtcdSnapshot(ctx context.Context, to io.Writer) error {
	return c.call(ctx, OpEtcd, snapshotTimeout, func(ctx context.Context) (err error) {
		copying, stop := context.WithCancelCause(ctx)
		defer stop(nil)

		watch := &idleWatch{to: to, limit: snapshotPauses * c.timeout}
		watch.timer = time.AfterFunc(watch.limit, func() { stop(errNoAnswer) })

		defer watch.timer.Stop()

		stream, err := c.api.EtcdSnapshot(copying, &machine.EtcdSnapshotRequest{})
		if err != nil {
			return err
		}

		defer stream.Close() //nolint:errcheck // it was only read

		_, err = io.Copy(watch, stream)

		switch {
		case copying.Err() != nil && ctx.Err() == nil:
			return context.Cause(copying)
		case err != nil:
			return fmt.Errorf("copy snapshot: %w", err)
		default:
			return nil
		}
	})
}

// idleWatch passes on what is written, and begins to wait anew.
type idleWatch struct {
	to    io.Writer
	timer *time.Timer
	limit time.Duration
}

func (w *idleWatch) Write(data []byte) (int, error) {
	w.timer.Reset(w.limit)
	return w.to.Write(data) //nolint:wrapcheck // it is the caller's own
}

// EtcdDefragment has the node's etcd give back the space that it no longer needs. Meanwhile that member answers nobody.
func (c *Conn) EtcdDefragment(ctx context.Context) error {
	return c.call(ctx, OpEtcd, defragTimeout, func(ctx context.Context) error {
		_, err := c.api.EtcdDefragment(ctx)
		return err
	})
}
