package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
)

// ErrNoDatabase is a file that is nothing which etcd could be restored from.
var ErrNoDatabase = errors.New("it is no database of etcd")

// Open opens a file that etcd can be restored from, of any size. Copied is set where it is a database that was copied
// off a member's disk.
func Open(path string) (file *os.File, copied bool, err error) {
	// A pipe must not be opened: that waits until somebody writes to it.
	info, err := os.Stat(path)

	switch {
	case err != nil:
		return nil, false, err //nolint:wrapcheck // it names the file
	case !info.Mode().IsRegular():
		return nil, false, &fs.PathError{Op: "read", Path: path, Err: ErrNoDatabase}
	}

	file, err = os.Open(path) //nolint:gosec // the user names it
	if err != nil {
		return nil, false, err //nolint:wrapcheck // it names the file
	}

	if copied, err = Identify(file, info.Size()); err == nil {
		_, err = file.Seek(0, io.SeekStart) // it is read anew
	}

	if err != nil {
		file.Close() //nolint:errcheck // it was only read
		return nil, false, &fs.PathError{Op: "read", Path: path, Err: err}
	}

	return file, copied, nil
}

// Identify tells what etcd could be restored from a file of so many bytes: a snapshot, whole by its own hash, or, when
// copied, a database that was copied off a member's disk, which has none.
func Identify(file io.ReaderAt, size int64) (copied bool, err error) {
	used, err := usedSize(file)

	switch {
	case err != nil:
		return false, err
	case used > size:
		return false, fmt.Errorf("%w: it has %d bytes, and its database %d", ErrTruncated, size, used)
	case size%page == 0:
		return true, nil
	default:
		return false, Verify(io.NewSectionReader(file, 0, size), size)
	}
}

// What a database of bbolt begins with: two pages that describe it, of which the one is valid that was written last
// (internal/common/meta.go and page.go of bbolt). Talos' machines are all little-endian.
const (
	magic, version             = 0xED0CDAED, 2
	headerSize, metaSize       = 16, 64
	versionAt, pageSizeAt      = 4, 8
	usedAt, txAt, checksumAt   = 40, 48, 56
	smallestPage, largestPages = 512, 1 << 16
)

// usedSize is how many bytes of a file its database uses.
func usedSize(file io.ReaderAt) (size int64, err error) {
	var latest uint64

	for second := int64(smallestPage); second <= largestPages; second *= 2 {
		for _, at := range []int64{0, second} {
			meta := make([]byte, metaSize)
			if _, err := file.ReadAt(meta, at+headerSize); err != nil && !errors.Is(err, io.EOF) {
				return 0, fmt.Errorf("read database: %w", err)
			}

			pageSize := int64(binary.LittleEndian.Uint32(meta[pageSizeAt:]))
			if !validMeta(meta) || at != 0 && pageSize != second {
				continue
			}

			if tx := binary.LittleEndian.Uint64(meta[txAt:]); size == 0 || tx > latest {
				latest, size = tx, int64(binary.LittleEndian.Uint64(meta[usedAt:]))*pageSize //nolint:gosec // its checksum is right
			}
		}
	}

	if size == 0 {
		return 0, ErrNoDatabase
	}

	return size, nil
}

func validMeta(meta []byte) bool {
	checksum := fnv.New64a()
	checksum.Write(meta[:checksumAt]) // it never fails

	return binary.LittleEndian.Uint32(meta) == magic && binary.LittleEndian.Uint32(meta[versionAt:]) == version &&
		binary.LittleEndian.Uint64(meta[checksumAt:]) == checksum.Sum64()
}
