package machine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/encoding/protowire"
)

// etcdStorage is the version of etcd's data.
const etcdStorage = "3.6.0"

// Snapshot takes one of the local etcd, and remembers what it was taken of.
func (e *etcdService) Snapshot(ctx context.Context) (snapshot []byte, failure error) {
	if err := e.ClientReady(); err != nil {
		return nil, fmt.Errorf("failed to create etcd client: %w", err)
	}

	if err := e.Await(ctx, func([]netip.Addr) bool {
		cluster := e.LocalCluster()
		if cluster == nil {
			return false
		}

		if snapshot, failure = cluster.snapshot(); failure == nil {
			e.boot.Node.Lab.snapshots[snapshotKey(snapshot)] = cluster
		}

		return true
	}); err != nil {
		return nil, fmt.Errorf("failed reading etcd snapshot: %w", err)
	}

	return snapshot, failure
}

// snapshot is the cluster's data as etcd hands it out: a database, and its hash after it. Needs Lab.mu.
func (c *EtcdCluster) snapshot() ([]byte, error) {
	members := bucket{}

	for _, member := range c.Members {
		described, err := json.Marshal(map[string]any{
			"id": member.ID, "name": member.Name,
			"peerURLs":  []string{"https://" + netip.AddrPortFrom(member.address, 2380).String()},
			"isLearner": member.Learner,
		})
		if err != nil {
			return nil, fmt.Errorf("describe member: %w", err)
		}

		members[strconv.FormatUint(member.ID, 16)] = described
	}

	database, err := encodeDatabase(map[string]bucket{
		"alarm": {}, "auth": {}, "authRoles": {}, "authUsers": {}, "lease": {}, "members_removed": {},
		"cluster": {"clusterVersion": []byte(etcdStorage)},
		"members": members,
		"meta":    {"storageVersion": []byte(etcdStorage)},
		"key":     {string(etcdRevision(2)): etcdValue("/registry/namespaces/kube-system", 2)},
	})
	if err != nil {
		return nil, fmt.Errorf("make snapshot: %w", err)
	}

	digest := sha256.Sum256(database)

	return append(database, digest[:]...), nil
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

// etcdRevision is the key under which etcd keeps what a revision changed.
func etcdRevision(revision uint64) []byte {
	return binary.BigEndian.AppendUint64(append(binary.BigEndian.AppendUint64(nil, revision), '_'), 0)
}

// etcdValue is a key of etcd as it was put in its only revision. Source: etcd api/mvccpb/kv.proto.
func etcdValue(key string, revision uint64) []byte {
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
