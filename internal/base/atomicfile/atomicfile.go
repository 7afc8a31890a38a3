// Package atomicfile replaces files whole: a reader, or a crash, meets the old content or the new, never a part of it.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/talos-mage/talos-mage/internal/base/held"
)

// maxLinks bounds a chain of symbolic links, as the kernel does.
const maxLinks = 40

// WriteFile puts data at path with exactly the mode perm, whatever the umask and whatever mode the file had.
//
// The data goes to a temporary file in the target's folder, is synced to the disk and renamed into place. A symbolic
// link stays one: what it points to is replaced, or created. The folder must exist. After an error the old file is as
// it was and no temporary file is left; one of a process that was killed stays until Clean.
func WriteFile(path string, data []byte, perm fs.FileMode) (err error) {
	target, err := Target(path)
	if err != nil {
		return err
	}

	return place(target, data, perm, func(temporary *held.File) error {
		if err := os.Rename(temporary.Name(), target); err != nil {
			return fmt.Errorf("replace file: %w", err)
		}

		return nil
	})
}

// Clean removes what processes that were killed while they wrote the file at path, or another one of its folder, left
// there.
func Clean(path string) {
	held.Clean(filepath.Dir(path), temporaryName("*"))

	if target, err := Target(path); err == nil && target != path {
		held.Clean(filepath.Dir(target), temporaryName("*"))
	}
}

// temporaryName is the pattern of the names of a file's temporary files.
func temporaryName(base string) string { return "." + base + ".talos-mage-*" }

// place writes the data beside the target and has the whole file put where it belongs.
func place(target string, data []byte, perm fs.FileMode, put func(temporary *held.File) error) (err error) {
	temporary, err := held.NewFile(filepath.Dir(target), temporaryName(filepath.Base(target)))
	if err != nil {
		return err
	}
	defer temporary.Release()

	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreMissing(os.Remove(temporary.Name())))
		}
	}()

	if err = fill(temporary.File, data, perm); err != nil {
		return err
	}

	if err = put(temporary); err != nil {
		return err
	}

	syncFolder(filepath.Dir(target))

	return nil
}

// Backup copies the file at path to <path>.bak-<UTC time> with mode 0600 and returns the copy's path. An older backup
// is never overwritten: the name gets a number. A file that does not exist needs no backup: the returned path is empty.
func Backup(path string, now time.Time) (string, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}

	if err != nil {
		return "", fmt.Errorf("read file to back up: %w", err)
	}

	var name string

	err = place(path, data, 0o600, func(temporary *held.File) error {
		name, err = nameBackup(temporary, path+".bak-"+now.UTC().Format("20060102T150405Z"))

		return err
	})
	if err != nil {
		return "", fmt.Errorf("write backup: %w", err)
	}

	return name, nil
}

// nameBackup gives the whole copy the first name that is free.
func nameBackup(temporary *held.File, base string) (string, error) {
	for n := 1; ; n++ {
		name := base
		if n > 1 {
			name = fmt.Sprintf("%s-%d", base, n)
		}

		if err := temporary.MoveTo(name); !errors.Is(err, fs.ErrExist) {
			return name, err
		}
	}
}

// Target is the file that a write to path replaces: path itself, or the end of its chain of symbolic links, which need
// not exist yet.
func Target(path string) (string, error) {
	target := path

	for range maxLinks {
		info, err := os.Lstat(target)
		if errors.Is(err, fs.ErrNotExist) {
			return target, nil
		}

		if err != nil {
			return "", fmt.Errorf("look at file: %w", err)
		}

		if info.Mode()&fs.ModeSymlink == 0 {
			if !info.Mode().IsRegular() {
				return "", &fs.PathError{Op: "replace", Path: target, Err: errors.New("not a regular file")}
			}

			return target, nil
		}

		link, err := os.Readlink(target)
		if err != nil {
			return "", fmt.Errorf("read symbolic link: %w", err)
		}

		if !filepath.IsAbs(link) {
			link = filepath.Join(filepath.Dir(target), link)
		}

		target = link
	}

	return "", &fs.PathError{Op: "follow", Path: path, Err: errors.New("too many symbolic links")}
}

// fill writes, syncs and closes the file.
func fill(file *os.File, data []byte, perm fs.FileMode) (err error) {
	defer func() {
		if closing := file.Close(); err == nil && closing != nil {
			err = fmt.Errorf("close file: %w", closing)
		}
	}()

	// Before the data: it must not be readable by others even for a moment.
	if err = file.Chmod(perm); err != nil {
		return fmt.Errorf("set file mode: %w", err)
	}

	if _, err = file.Write(data); err != nil {
		if errors.Is(err, io.ErrShortWrite) {
			err = fmt.Errorf("%w (is the disk full?)", err)
		}

		return fmt.Errorf("write file: %w", err)
	}

	if err = file.Sync(); err != nil {
		return fmt.Errorf("sync file: %w", err)
	}

	return nil
}

// syncFolder makes the rename survive a power cut. Not every file system and operating system can sync a folder,
// and the file is already in place, so a failure is not reported.
func syncFolder(path string) {
	folder, err := os.Open(path)
	if err != nil {
		return
	}

	_ = folder.Sync()
	_ = folder.Close()
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	return err
}
