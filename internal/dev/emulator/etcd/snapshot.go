package etcd

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/kubernetes"
)

// storage is the version of etcd's data.
const storage = "3.6.0"

// Snapshot is the cluster's data as etcd hands it out: a database, and its hash after it. What it was taken of is
// remembered.
func (c *Cluster) Snapshot() ([]byte, error) {
	c.clusters.mu.Lock()
	defer c.clusters.mu.Unlock()

	members := bucket{}

	for _, member := range c.members {
		described, err := json.Marshal(map[string]any{
			"id": member.ID, "name": member.name, "peerURLs": []string{member.peerURL()}, "isLearner": member.learner,
		})
		if err != nil {
			return nil, fmt.Errorf("describe member: %w", err)
		}

		members[strconv.FormatUint(member.ID, 16)] = described
	}

	database, err := encodeDatabase(map[string]bucket{
		"alarm": {}, "auth": {}, "authRoles": {}, "authUsers": {}, "lease": {}, "members_removed": {},
		"cluster": {"clusterVersion": []byte(storage)},
		"members": members,
		"meta":    {"storageVersion": []byte(storage)},
		"key":     {string(revisionKey(2)): value("/registry/namespaces/kube-system", 2)},
	})
	if err != nil {
		return nil, fmt.Errorf("make snapshot: %w", err)
	}

	digest := sha256.Sum256(database)
	c.clusters.snapshots[digest] = c

	return append(database, digest[:]...), nil
}

// Database is the cluster's data as a member has it on its disk: what a snapshot has before its hash.
func (c *Cluster) Database() ([]byte, error) {
	snapshot, err := c.Snapshot()
	if err != nil {
		return nil, err
	}

	database, _ := splitSnapshot(snapshot)

	return database, nil
}

// Restore makes a cluster of one member from a snapshot. What Kubernetes kept in it is there again.
func (c *Clusters) Restore(snapshot []byte, ca, name string, address netip.Addr, options kubernetes.Options) *Member {
	member := c.New(ca, name, address, options)

	c.mu.Lock()
	defer c.mu.Unlock()

	member.restored = true

	if former := c.snapshots[Digest(snapshot)]; former != nil {
		member.Cluster.Kubernetes, member.Cluster.network = former.Kubernetes, former.network
	}

	return member
}

// bucket is the entries of a bucket by key.
type bucket map[string][]byte

// encodeDatabase makes a database of these buckets, in the format that etcd keeps its data in.
func encodeDatabase(buckets map[string]bucket) ([]byte, error) {
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // the system clears its temporary folder

	db, err := bolt.Open(filepath.Join(dir, "db"), 0o600, &bolt.Options{NoSync: true})
	if err != nil {
		return nil, err
	}
	defer db.Close() //nolint:errcheck // nothing is left to be written

	var encoded bytes.Buffer

	err = db.Update(func(tx *bolt.Tx) error {
		for name, entries := range buckets {
			made, err := tx.CreateBucket([]byte(name))
			if err != nil {
				return err
			}

			for key, value := range entries {
				if err := made.Put([]byte(key), value); err != nil {
					return err
				}
			}
		}

		return nil
	})
	if err == nil {
		err = db.View(func(tx *bolt.Tx) error { _, err := tx.WriteTo(&encoded); return err })
	}

	return encoded.Bytes(), err
}

// revisionKey is the key under which etcd keeps what a revision changed.
func revisionKey(revision uint64) []byte {
	return binary.BigEndian.AppendUint64(append(binary.BigEndian.AppendUint64(nil, revision), '_'), 0)
}

// value is a key of etcd as it was put in its only revision. Source: etcd api/mvccpb/kv.proto.
func value(key string, revision uint64) []byte {
	const (
		fieldKey     protowire.Number = 1
		fieldCreated protowire.Number = 2
		fieldChanged protowire.Number = 3
		fieldVersion protowire.Number = 4
	)

	encoded := protowire.AppendString(protowire.AppendTag(nil, fieldKey, protowire.BytesType), key)

	for _, field := range []struct {
		number protowire.Number
		value  uint64
	}{{fieldCreated, revision}, {fieldChanged, revision}, {fieldVersion, 1}} {
		encoded = protowire.AppendVarint(protowire.AppendTag(encoded, field.number, protowire.VarintType), field.value)
	}

	return encoded
}

// What a database of bbolt begins with, and where. Source: bbolt's page and meta structures.
const (
	boltMagic       = 0xED0CDAED
	boltMagicOffset = 16
)

// CheckDatabase reports whether a snapshot is a database at all.
func CheckDatabase(snapshot []byte) error {
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

// CheckHash reports whether a snapshot is whole.
func CheckHash(snapshot []byte) error {
	database, hash := splitSnapshot(snapshot)
	if hash == nil {
		return errors.New("snapshot missing hash but --skip-hash-check=false")
	}

	if now := sha256.Sum256(database); !bytes.Equal(now[:], hash) {
		return fmt.Errorf("expected sha256 %v, got %v", hash, now[:])
	}

	return nil
}

// Digest tells snapshots apart, with a hash at their end or without.
func Digest(snapshot []byte) [sha256.Size]byte {
	database, _ := splitSnapshot(snapshot)

	return sha256.Sum256(database)
}
