package api

import (
	"fmt"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/etcd"
)

// snapshotFrame is how much of a snapshot a frame carries, in bytes.
const snapshotFrame = 1024

// EtcdSnapshot streams a snapshot of the local etcd, which needs no quorum for that.
func (s *etcdAPI) EtcdSnapshot(_ *machineapi.EtcdSnapshotRequest,
	stream machineapi.MachineService_EtcdSnapshotServer) error {
	b := s.boot

	if err := onlyOnControlPlane(b, "etcd snapshot"); err != nil {
		return err
	}

	if err := b.Etcd.ClientReady(); err != nil {
		return fmt.Errorf("failed to create etcd client: %w", err)
	}

	var cluster *etcd.Cluster

	if err := b.Etcd.Await(stream.Context(), func() bool {
		cluster = localCluster(b)

		return cluster != nil
	}); err != nil {
		return fmt.Errorf("failed reading etcd snapshot: %w", err)
	}

	snapshot, err := cluster.Snapshot()
	if err != nil {
		return err
	}

	if end := b.Node.Faults().SnapshotEnd; end > 0 {
		snapshot = snapshot[:min(end, len(snapshot))]
	}

	for chunk := range slices.Chunk(snapshot, snapshotFrame) {
		if err := stream.Send(&common.Data{Bytes: chunk}); err != nil {
			return err
		}
	}

	return nil
}
