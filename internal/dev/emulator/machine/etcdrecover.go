package machine

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// recoverData makes a cluster of one member from the snapshot that the node was sent. What Kubernetes kept in it is
// there again.
func (e *etcdService) recoverData(skipHash bool) (*etcdMember, error) {
	snapshot := e.boot.Node.ReadDrive().Recovery

	if err := checkSnapshot(snapshot); err != nil {
		return nil, preStageFailure(fmt.Errorf("error verifying snapshot: %w", err))
	}

	key := snapshotKey(snapshot)
	e.boot.Log("recovering etcd from snapshot: hash %x, revision 2, total keys 1, total size %d", key[:4], len(snapshot))

	if err := checkSnapshotHash(snapshot); err != nil && !skipHash {
		return nil, preStageFailure(fmt.Errorf("error recovering from the snapshot: %w", err))
	}

	member := e.makeCluster()
	lab := e.boot.Node.Lab

	lab.mu.Lock()
	if former := lab.snapshots[key]; former != nil {
		member.Cluster.kube, member.Cluster.network = former.kube, former.network
	}
	lab.mu.Unlock()

	e.boot.Node.EditDrive(func(d *Drive) { d.Recovery = nil })

	return member, nil
}

// preStageFailure is how a service ends that could not even begin.
func preStageFailure(reason error) error {
	return fmt.Errorf("Failed to run pre stage: %w", reason) //nolint:staticcheck // Talos' own text
}

// What a database of bbolt begins with, and where. Source: bbolt's page and meta structures.
const (
	boltMagic       = 0xED0CDAED
	boltMagicOffset = 16
)

// checkSnapshot reports whether a snapshot is a database at all.
func checkSnapshot(snapshot []byte) error {
	switch {
	case snapshot == nil:
		return errors.New("open /var/lib/etcd.snapshot: no such file or directory")
	case len(snapshot) < boltMagicOffset+4 || binary.NativeEndian.Uint32(snapshot[boltMagicOffset:]) != boltMagic:
		return errors.New("invalid database")
	default:
		return nil
	}
}

// pageOfHash is what the sizes of databases are multiples of, so that a hash at the end shows.
const pageOfHash = 512

// splitSnapshot takes the hash at the end of a snapshot from its data; a copied database has none.
func splitSnapshot(snapshot []byte) (database, hash []byte) {
	if len(snapshot)%pageOfHash != sha256.Size {
		return snapshot, nil
	}

	return snapshot[:len(snapshot)-sha256.Size], snapshot[len(snapshot)-sha256.Size:]
}

// checkSnapshotHash reports whether a snapshot is whole.
func checkSnapshotHash(snapshot []byte) error {
	database, hash := splitSnapshot(snapshot)
	if hash == nil {
		return errors.New("snapshot missing hash but --skip-hash-check=false")
	}

	if now := sha256.Sum256(database); !bytes.Equal(now[:], hash) {
		return fmt.Errorf("expected sha256 %v, got %v", hash, now[:])
	}

	return nil
}

// snapshotKey tells snapshots apart, with a hash at their end or without.
func snapshotKey(snapshot []byte) [sha256.Size]byte {
	database, _ := splitSnapshot(snapshot)

	return sha256.Sum256(database)
}
