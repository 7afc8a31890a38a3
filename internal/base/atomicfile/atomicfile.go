// Package atomicfile replaces files whole: a reader, or a crash, meets the old content or the new, never a part of it.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// maxLinks bounds a chain of symbolic links, as the kernel does.
const maxLinks = 40

// WriteFile puts data at path with exactly the mode perm, whatever the umask and whatever mode the file had. Who calls
// it holds a lock that keeps other writers of the file away.
//
// The data goes to a temporary file in the target's folder, is synced to the disk and renamed into place. A symbolic
// link stays one: what it points to is replaced, or created. The folder must exist. After an error the old file is as
// it was and no temporary file is left; one of a process that was killed stays until the file is written again, or
// until Clean.
func WriteFile(path string, data []byte, perm fs.FileMode) error {
	target, err := Target(path)
	if err != nil {
		return err
	}

	return place(target, perm, target, writes(data))
}

// Create makes a file that does not exist yet, with exactly the mode perm, and has it written. It gets its name when
// all of it is on the disk: after an error, the writer's own too, there is none. Who calls it holds a lock that keeps
// other writers of the file away.
func Create(path string, perm fs.FileMode, write func(*os.File) error) error {
	if exists(path) {
		return &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
	}

	return place(path, perm, path, write)
}

// suffix is what a file's temporary file is called beside the file's name.
const suffix = ".talos-mage-tmp"

func temporaryName(target string) string {
	return filepath.Join(filepath.Dir(target), "."+filepath.Base(target)+suffix)
}

// Clean removes what processes that were killed while they wrote the file at path, or another one of its folder, left
// there. Who calls it holds the lock of all of them.
func Clean(path string) {
	folders := []string{filepath.Dir(path)}
	if target, err := Target(path); err == nil {
		folders = append(folders, filepath.Dir(target))
	}

	for _, folder := range folders {
		entries, _ := os.ReadDir(folder) // what can't be looked at is somebody else's

		for _, entry := range entries {
			if entry.Type().IsRegular() && strings.HasPrefix(entry.Name(), ".") && strings.HasSuffix(entry.Name(), suffix) {
				_ = os.Remove(filepath.Join(folder, entry.Name()))
			}
		}
	}
}

// place writes a file beside the target and gives the whole of it its name.
func place(target string, perm fs.FileMode, name string, write func(*os.File) error) (err error) {
	temporary := temporaryName(target)

	// What a killed process left is no start: it may be a link, or may have been opened by somebody.
	if err := ignoreMissing(os.Remove(temporary)); err != nil {
		return fmt.Errorf("remove old temporary file: %w", err)
	}

	file, err := os.OpenFile(temporary, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("create temporary file: %w", err)
	}

	if err = fill(file, perm, write); err == nil {
		err = os.Rename(temporary, name)
	}

	if err != nil {
		return errors.Join(err, ignoreMissing(os.Remove(temporary)))
	}

	syncFolder(filepath.Dir(target))

	return nil
}

// Backup copies the file at path to <path>.bak-<UTC time> with mode 0600 and returns the copy's path. An older backup
// is never overwritten: the name gets a number. A file that does not exist needs no backup: the returned path is empty.
// Who calls it holds the file's lock.
func Backup(path string, now time.Time) (string, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}

	if err != nil {
		return "", fmt.Errorf("read file to back up: %w", err)
	}

	base := path + ".bak-" + now.UTC().Format("20060102T150405Z")
	name := base

	for n := 2; exists(name); n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}

	if err := place(path, 0o600, name, writes(data)); err != nil {
		return "", fmt.Errorf("write backup: %w", err)
	}

	return name, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)

	return err == nil
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

// writes is the writing of data that is there.
func writes(data []byte) func(*os.File) error {
	return func(file *os.File) error {
		_, err := file.Write(data)
		if errors.Is(err, io.ErrShortWrite) {
			err = fmt.Errorf("%w (is the disk full?)", err)
		}

		if err != nil {
			return fmt.Errorf("write file: %w", err)
		}

		return nil
	}
}

// fill has the file written, syncs and closes it.
func fill(file *os.File, perm fs.FileMode, write func(*os.File) error) (err error) {
	defer func() {
		if closing := file.Close(); err == nil && closing != nil {
			err = fmt.Errorf("close file: %w", closing)
		}
	}()

	// Before the data: it must not be readable by others even for a moment.
	if err = file.Chmod(perm); err != nil {
		return fmt.Errorf("set file mode: %w", err)
	}

	if err = write(file); err != nil {
		return err
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
