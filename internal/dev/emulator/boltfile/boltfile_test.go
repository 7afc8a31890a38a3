package boltfile_test

import (
	"encoding/binary"
	"hash/fnv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/boltfile"
)

// entries reads a leaf page as bbolt does: by the positions that its elements tell.
func entries(t *testing.T, page []byte) map[string][]byte {
	t.Helper()

	const header, element = 16, 16

	require.EqualValues(t, 2, binary.LittleEndian.Uint16(page[8:]), "a leaf")

	found := map[string][]byte{}
	last := ""

	for i := range int(binary.LittleEndian.Uint16(page[10:])) {
		at := header + i*element
		key := at + int(binary.LittleEndian.Uint32(page[at+4:]))
		value := key + int(binary.LittleEndian.Uint32(page[at+8:]))
		end := value + int(binary.LittleEndian.Uint32(page[at+12:]))

		name := string(page[key:value])
		require.Greater(t, name, last, "keys are in order")

		found[name], last = page[value:end], name
	}

	return found
}

func TestADatabaseIsReadAsBboltReadsIt(t *testing.T) {
	t.Parallel()

	data, err := boltfile.Encode(map[string]boltfile.Bucket{"key": {"b": []byte("two"), "a": []byte("1")},
		"meta": {"version": []byte("3")}, "empty": {}})
	require.NoError(t, err)
	require.Len(t, data, 4*4096)

	for id := range uint64(2) {
		meta := data[id*4096:]
		require.Equal(t, id, binary.LittleEndian.Uint64(meta))
		require.EqualValues(t, 0xED0CDAED, binary.LittleEndian.Uint32(meta[16:]))

		sum := fnv.New64a()
		sum.Write(meta[16:72])
		require.Equal(t, sum.Sum64(), binary.LittleEndian.Uint64(meta[72:]))
	}

	root := binary.LittleEndian.Uint64(data[4096+32:])
	buckets := entries(t, data[root*4096:])
	require.Len(t, buckets, 3)

	const bucketHeader = 16

	require.Equal(t, map[string][]byte{"a": []byte("1"), "b": []byte("two")}, entries(t, buckets["key"][bucketHeader:]))
	require.Equal(t, map[string][]byte{"version": []byte("3")}, entries(t, buckets["meta"][bucketHeader:]))
	require.Empty(t, entries(t, buckets["empty"][bucketHeader:]))
}

func TestADatabaseHasToFitInAPage(t *testing.T) {
	t.Parallel()

	_, err := boltfile.Encode(map[string]boltfile.Bucket{"key": {"a": []byte(strings.Repeat("x", 4096))}})
	require.ErrorContains(t, err, "do not fit in a page")
}
