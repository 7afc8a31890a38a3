// Package plainfile reads the files that people name: regular ones of a size that such files have. A pipe would be
// waited for, a device has no end, and a file of megabytes is not what somebody meant.
package plainfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// MaxSize is the size in bytes above which a file is refused.
const MaxSize = 4 << 20

// Read is the content of a file, and its permission bits. Errors are *fs.PathError.
func Read(path string) ([]byte, fs.FileMode, error) {
	// A pipe must not be opened: that waits until somebody writes to it.
	info, err := os.Stat(path)
	if err != nil {
		return nil, 0, err //nolint:wrapcheck // it names the file
	}

	if err := unfit(info); err != nil {
		return nil, 0, &fs.PathError{Op: "read", Path: path, Err: err}
	}

	file, err := os.Open(path) //nolint:gosec // the user names it
	if err != nil {
		return nil, 0, err //nolint:wrapcheck // it names the file
	}

	defer file.Close() //nolint:errcheck // it was only read

	data, err := io.ReadAll(io.LimitReader(file, MaxSize))

	return data, info.Mode().Perm(), err
}

// Refuse says why a file can't be one that people mean; nil if it can, or is not there.
func Refuse(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return nil //nolint:nilerr // whoever reads it says so
	}

	return unfit(info)
}

// unfit leaves folders to the system, which refuses to read them by itself.
func unfit(info fs.FileInfo) error {
	switch mode := info.Mode(); {
	case mode.IsDir(), isNothing(info):
		return nil
	case mode&fs.ModeNamedPipe != 0:
		return errors.New("it is a pipe, not a file")
	case mode&fs.ModeSocket != 0:
		return errors.New("it is a socket, not a file")
	case !mode.IsRegular():
		return errors.New("it is a device, not a file")
	case info.Size() > MaxSize:
		return fmt.Errorf("it has %.1f MB, and at most %d MB are read", float64(info.Size())/(1<<20), MaxSize>>20)
	default:
		return nil
	}
}

// isNothing reports whether a file is the one that people name where they want none: it is empty.
func isNothing(info fs.FileInfo) bool {
	nothing, err := os.Stat(os.DevNull)

	return err == nil && os.SameFile(info, nothing)
}
