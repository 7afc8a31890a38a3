// Package boltfile writes small databases in the format of bbolt, which etcd keeps its data in.
//
// A file has four pages: two copies of the description of the whole, the list of free pages, and one leaf with all
// buckets, whose entries are in the leaf as well. Source: the page layouts in bbolt's internal/common.
package boltfile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
)

// Bucket is the entries of a bucket by key.
type Bucket map[string][]byte

const (
	pageSize = 4096
	pages    = 4

	magic   = 0xED0CDAED
	version = 2

	branchless = 0 // an inline bucket has no root page
	leafFlag   = 0x02
	metaFlag   = 0x04
	freeFlag   = 0x10
	bucketFlag = 0x01

	freePage, rootPage = 2, 3
)

// pageHeader is what a page begins with.
type pageHeader struct {
	ID       uint64
	Flags    uint16
	Count    uint16
	Overflow uint32
}

// bucketHeader is what the value of a bucket begins with.
type bucketHeader struct {
	Root     uint64
	Sequence uint64
}

// metaBody is the description of a database, without its checksum.
type metaBody struct {
	Magic, Version, PageSize, Flags uint32
	Root                            bucketHeader
	FreeList                        uint64
	HighWater                       uint64
	Transaction                     uint64
}

// leafElement describes an entry of a leaf.
type leafElement struct {
	Flags, Position, KeySize, ValueSize uint32
}

var elementSize = binary.Size(leafElement{})

// Encode makes a database of these buckets. They have to fit in one page of 4 KiB.
func Encode(buckets map[string]Bucket) ([]byte, error) {
	entries := make(map[string][]byte, len(buckets))

	for name, bucket := range buckets {
		var inline bytes.Buffer

		write(&inline, bucketHeader{Root: branchless})
		inline.Write(leaf(0, bucket, 0))
		entries[name] = inline.Bytes()
	}

	root := leaf(rootPage, entries, bucketFlag)
	if len(root) > pageSize {
		return nil, fmt.Errorf("encode database: its %d bytes do not fit in a page", len(root))
	}

	var file bytes.Buffer

	for id := range uint64(freePage) {
		file.Write(padded(meta(id)))
	}

	var free bytes.Buffer

	write(&free, pageHeader{ID: freePage, Flags: freeFlag})
	file.Write(padded(free.Bytes()))
	file.Write(padded(root))

	return file.Bytes(), nil
}

// leaf is a page of entries in the order of their keys.
func leaf(id uint64, entries map[string][]byte, flags uint32) []byte {
	keys := slices.Sorted(maps.Keys(entries))

	var elements, data bytes.Buffer

	for i, key := range keys {
		// Positions count from the element to its key.
		position := (len(keys)-i)*elementSize + data.Len()

		write(&elements, leafElement{
			Flags: flags, Position: uint32(position), KeySize: uint32(len(key)), ValueSize: uint32(len(entries[key])), //nolint:gosec // a page at most
		})
		data.WriteString(key)
		data.Write(entries[key])
	}

	var page bytes.Buffer

	write(&page, pageHeader{ID: id, Flags: leafFlag, Count: uint16(len(keys))}) //nolint:gosec // as above
	page.Write(elements.Bytes())
	page.Write(data.Bytes())

	return page.Bytes()
}

// meta is one of the two descriptions of the whole; the one of the newer transaction counts.
func meta(id uint64) []byte {
	var body, page bytes.Buffer

	write(&body, metaBody{
		Magic: magic, Version: version, PageSize: pageSize, Root: bucketHeader{Root: rootPage}, FreeList: freePage,
		HighWater: pages, Transaction: id,
	})

	sum := fnv.New64a()
	sum.Write(body.Bytes()) //nolint:errcheck // never fails

	write(&page, pageHeader{ID: id, Flags: metaFlag})
	page.Write(body.Bytes())
	write(&page, sum.Sum64())

	return page.Bytes()
}

func write(to *bytes.Buffer, value any) {
	binary.Write(to, binary.LittleEndian, value) //nolint:errcheck // a buffer takes everything, and the values have fixed sizes
}

func padded(page []byte) []byte { return append(page, make([]byte, pageSize-len(page))...) }
