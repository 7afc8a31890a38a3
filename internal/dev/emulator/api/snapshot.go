package api

import (
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
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

	snapshot, err := b.Etcd.Snapshot(stream.Context())
	if err != nil {
		return err
	}

	for chunk := range slices.Chunk(snapshot, snapshotFrame) {
		if err := stream.Send(&common.Data{Bytes: chunk}); err != nil {
			return err
		}
	}

	return nil
}
