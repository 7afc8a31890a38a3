package machine

import (
	"errors"
	"fmt"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/etcd"
)

// recoverData makes a cluster of one member from the snapshot that the node was sent.
func (e *etcdService) recoverData(skipHash bool) (*etcd.Member, error) {
	snapshot := e.boot.Node.ReadDrive().Recovery

	if err := etcd.CheckDatabase(snapshot); err != nil {
		return nil, preStageFailure(fmt.Errorf("error verifying snapshot: %w", err))
	}

	digest := etcd.Digest(snapshot)
	e.boot.Log("recovering etcd from snapshot: hash %x, revision 2, total keys 1, total size %d", digest[:4],
		len(snapshot))

	if e.boot.Node.Faults().RestoreFails {
		return nil, preStageFailure(errors.New("error recovering from the snapshot: unexpected EOF"))
	}

	if err := etcd.CheckHash(snapshot); err != nil && !skipHash {
		return nil, preStageFailure(fmt.Errorf("error recovering from the snapshot: %w", err))
	}

	member := e.boot.Node.Lab.etcd.Restore(snapshot, e.ca(), e.boot.Config.Hostname(), e.boot.Node.Address(),
		e.boot.controlPlane.options())

	e.boot.Node.EditDrive(func(d *Drive) { d.Etcd, d.Recovery = member, nil })

	return member, nil
}

// preStageFailure is how a service ends that could not even begin.
func preStageFailure(reason error) error {
	return fmt.Errorf("Failed to run pre stage: %w", reason) //nolint:staticcheck // Talos' own text
}
