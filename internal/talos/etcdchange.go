package talos

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
)

// EtcdRemoveMember takes a member out of the etcd that the node belongs to. Ids are never given again, so that it can
// be repeated.
func (c *Conn) EtcdRemoveMember(ctx context.Context, id uint64) error {
	return c.call(ctx, OpRemoveMember, changeTimeout, func(ctx context.Context) error {
		return c.api.EtcdRemoveMemberByID(ctx, &machine.EtcdRemoveMemberByIDRequest{MemberId: id})
	})
}

// EtcdUpload sends the node a snapshot for a later Bootstrap. It changes nothing before that, and can be repeated.
func (c *Conn) EtcdUpload(ctx context.Context, snapshot io.Reader) error {
	return c.transfer(ctx, OpEtcdUpload, copyTimeout, func(ctx context.Context, moved func()) error {
		_, err := c.api.EtcdRecover(ctx, movingReader{snapshot, moved})
		return err
	})
}

// BootstrapFromUpload starts an etcd of one member from what was uploaded. The reply comes before anybody has looked
// at the upload. A database that was copied off a disk has no hash to check.
func (c *Conn) BootstrapFromUpload(ctx context.Context, skipHash bool) error {
	return c.call(ctx, OpBootstrap, changeTimeout, func(ctx context.Context) error {
		return c.api.Bootstrap(ctx, &machine.BootstrapRequest{RecoverEtcd: true, RecoverSkipHashCheck: skipHash})
	})
}

// EtcdDatabase copies the database off the node's disk, whatever etcd does. It comes in an archive, whose end and
// checksum tell that it is whole.
func (c *Conn) EtcdDatabase(ctx context.Context, to io.Writer) error {
	return c.transfer(ctx, OpEtcd, copyTimeout, func(ctx context.Context, moved func()) error {
		moved()

		stream, err := c.api.Copy(ctx, constants.EtcdDataPath+"/member/snap/db")
		if err != nil {
			return err
		}

		defer stream.Close() //nolint:errcheck // it was only read

		if err := extractFile(stream, movingWriter{to, moved}); err != nil {
			return fmt.Errorf("copy etcd's database: %w", err)
		}

		return nil
	})
}

// extractFile writes the one file of an archive, and reads the archive to its end.
func extractFile(archive io.Reader, to io.Writer) error {
	unzipped, err := gzip.NewReader(archive)
	if err != nil {
		return err
	}

	files := tar.NewReader(unzipped)
	if _, err := files.Next(); err != nil {
		return err
	}

	if _, err := io.Copy(to, files); err != nil { //nolint:gosec // as large as the node's database is
		return err
	}

	_, err = io.Copy(io.Discard, unzipped) //nolint:gosec // the rest of the archive

	return err
}

// What a restore leaves: a line in the kernel log of that boot (internal/app/machined/pkg/system/services/etcd.go of
// the server), and, for as long as etcd keeps it, the raft snapshot that a cluster of one member begins with, of term 1
// and index 1 (etcdutl/snapshot/v3_snapshot.go of etcd). An etcd that was bootstrapped has none so early.
var restoreLogged = []byte("recovering etcd from snapshot: hash")

const (
	raftSnapshots = constants.EtcdDataPath + "/member/snap"
	restoreBegins = "0000000000000001-0000000000000001.snap"
)

// EtcdRestored reports whether the etcd that the node has was restored from a snapshot, in this boot or not long ago.
func (c *Conn) EtcdRestored(ctx context.Context) (restored bool, err error) {
	if kept, err := c.ListDir(ctx, raftSnapshots); err == nil && slices.Contains(kept, restoreBegins) {
		return true, nil
	}

	err = c.call(ctx, OpRead, c.timeout, func(ctx context.Context) error {
		stream, err := c.api.Dmesg(ctx, false, false)
		if err != nil {
			return err
		}

		return receive(stream.Recv, func(message *common.Data) {
			restored = restored || bytes.Contains(message.GetBytes(), restoreLogged)
		})
	})

	return restored, err
}
