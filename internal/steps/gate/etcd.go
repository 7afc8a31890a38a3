package gate

import (
	"context"
	"io"

	"github.com/talos-mage/talos-mage/internal/kube"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// RemoveMember takes a member out of the etcd that a node belongs to.
func (g Gate) RemoveMember(ctx context.Context, conn *talos.Conn, id uint64) error {
	return g.pass(func() error { return conn.EtcdRemoveMember(ctx, id) })
}

// DeleteNode takes a node out of Kubernetes.
func (g Gate) DeleteNode(ctx context.Context, client *kube.Client, name string) error {
	return g.pass(func() error { return client.DeleteNode(ctx, name) })
}

// UploadSnapshot sends a node the snapshot that its etcd is restored from.
func (g Gate) UploadSnapshot(ctx context.Context, conn *talos.Conn, snapshot io.Reader) error {
	return g.pass(func() error { return conn.EtcdUpload(ctx, snapshot) })
}

// BootstrapFromUpload restores a node's etcd from what was uploaded.
func (g Gate) BootstrapFromUpload(ctx context.Context, conn *talos.Conn, skipHash bool) error {
	return g.pass(func() error { return conn.BootstrapFromUpload(ctx, skipHash) })
}
