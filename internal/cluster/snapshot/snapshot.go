// Package snapshot judges snapshots of etcd by the hash that each carries.
package snapshot

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
)

// ErrTruncated is a snapshot that is not whole: its end is missing, or something in it has changed.
var ErrTruncated = errors.New("the snapshot is not whole")

// page divides the size of every database of bbolt, which etcd keeps its data in.
const page = 512

// Verify reads a snapshot of so many bytes: a database, and its SHA-256 after it, which is what a member sends
// (server/etcdserver/api/v3rpc/maintenance.go of etcd). A database that was copied off a disk has no hash, and is no
// snapshot.
func Verify(from io.Reader, size int64) error {
	database := size - sha256.Size

	switch {
	case database <= 0:
		return fmt.Errorf("%w: it has %d bytes", ErrTruncated, size)
	case database%page != 0:
		return fmt.Errorf("%w: %d bytes are no database and its hash", ErrTruncated, size)
	}

	hash := sha256.New()
	if _, err := io.CopyN(hash, from, database); err != nil {
		return fmt.Errorf("read snapshot: %w", err)
	}

	said := make([]byte, sha256.Size)
	if _, err := io.ReadFull(from, said); err != nil {
		return fmt.Errorf("read snapshot's hash: %w", err)
	}

	if subtle.ConstantTimeCompare(said, hash.Sum(nil)) != 1 {
		return fmt.Errorf("%w: its hash is another one than it says", ErrTruncated)
	}

	return nil
}
