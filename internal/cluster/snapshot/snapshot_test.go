package snapshot_test

import (
	"bytes"
	"crypto/sha256"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/snapshot"
)

func TestASnapshotIsWholeOrNothing(t *testing.T) {
	t.Parallel()

	database := bytes.Repeat([]byte("etcd"), 1024)
	hash := sha256.Sum256(database)
	whole := append(bytes.Clone(database), hash[:]...)

	changed := bytes.Clone(whole)
	changed[100]++

	for name, test := range map[string]struct {
		data  []byte
		wrong string
	}{
		"whole":            {data: whole},
		"empty":            {wrong: "it has 0 bytes"},
		"a hash alone":     {data: hash[:], wrong: "it has 32 bytes"},
		"cut off":          {data: whole[:2000], wrong: "2000 bytes are no database and its hash"},
		"cut off by pages": {data: whole[:1024+32], wrong: "its hash is another one"},
		"without its hash": {data: database, wrong: "4096 bytes are no database and its hash"},
		"changed":          {data: changed, wrong: "its hash is another one"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			err := snapshot.Verify(bytes.NewReader(test.data), int64(len(test.data)))
			if test.wrong == "" {
				require.NoError(t, err)

				return
			}

			require.ErrorIs(t, err, snapshot.ErrTruncated)
			require.ErrorContains(t, err, test.wrong)
		})
	}

	require.ErrorContains(t, snapshot.Verify(bytes.NewReader(whole[:3000]), int64(len(whole))), "EOF")
}

func FuzzVerify(f *testing.F) {
	f.Add([]byte("a"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if snapshot.Verify(bytes.NewReader(data), int64(len(data))) == nil {
			split := len(data) - sha256.Size
			hash := sha256.Sum256(data[:split])
			require.Equal(t, hash[:], data[split:])
		}
	})
}
