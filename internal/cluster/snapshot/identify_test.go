package snapshot_test

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/talos-mage/talos-mage/internal/cluster/snapshot"
)

// database is one as etcd keeps its data in.
func database(t *testing.T) []byte {
	t.Helper()

	path := filepath.Join(t.TempDir(), "db")
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true})
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucket([]byte("key"))

		return err
	}))
	require.NoError(t, db.Close())

	data, err := os.ReadFile(path)
	require.NoError(t, err)

	return data
}

func TestWhatEtcdCanBeRestoredFrom(t *testing.T) {
	t.Parallel()

	copied := database(t)
	hash := sha256.Sum256(copied)
	whole := append(append([]byte{}, copied...), hash[:]...)

	changed := append([]byte{}, whole...)
	changed[len(changed)-1]++

	for name, test := range map[string]struct {
		data   []byte
		copied bool
		wrong  string
	}{
		"a snapshot":                   {data: whole},
		"a copied database":            {data: copied, copied: true},
		"a snapshot with another hash": {data: changed, wrong: "its hash is another one than it says"},
		"a database without its end":   {data: copied[:len(copied)/4], wrong: "the snapshot is not whole"},
		"a snapshot without its end":   {data: whole[:len(whole)-100], wrong: "the snapshot is not whole"},
		"nothing":                      {wrong: "it is no database of etcd"},
		"something else":               {data: []byte("apiVersion: v1"), wrong: "it is no database of etcd"},
		"something else, page by page": {data: make([]byte, 8192), wrong: "it is no database of etcd"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			path := filepath.Join(t.TempDir(), "file.db")
			require.NoError(t, os.WriteFile(path, test.data, 0o600))

			file, copied, err := snapshot.Open(path)
			if test.wrong != "" {
				require.ErrorContains(t, err, test.wrong)

				return
			}

			require.NoError(t, err)
			require.Equal(t, test.copied, copied)
			require.NoError(t, file.Close())
		})
	}

	_, _, err := snapshot.Open(t.TempDir())
	require.ErrorIs(t, err, snapshot.ErrNoDatabase)
}
