// Package held makes temporary files and folders that can't outlive their process unnoticed: it holds a lock of the
// system's on them, which ends with it, however it ends. Whoever finds one that nobody holds may remove it. Where the
// system has no such locks (Windows) nothing is ever found.
package held

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// File is a new file that is held until it is released, also when it was closed before and has got another name.
type File struct {
	*os.File
	holding *os.File // nil where there are no locks
}

// NewFile makes a file in folder, for its owner alone. The name is made as by os.CreateTemp.
func NewFile(folder, pattern string) (*File, error) {
	for {
		file, err := os.CreateTemp(folder, pattern)
		if err != nil {
			return nil, fmt.Errorf("create temporary file: %w", err)
		}

		holding, err := hold(file.Name())
		if err == nil {
			return &File{file, holding}, nil
		}

		file.Close() //nolint:errcheck // nothing was written

		if !os.IsNotExist(err) {
			return nil, fmt.Errorf("hold temporary file: %w", err)
		}
	}
}

// MoveTo gives the file a name that must be free: fs.ErrExist, if there is something already. It stays held. On a file
// system without hard links two that take the same name in the same moment are not kept apart.
func (f *File) MoveTo(path string) error {
	linked := os.Link(f.Name(), path)
	if linked == nil {
		return os.Remove(f.Name()) //nolint:wrapcheck // it has the path
	}

	if _, err := os.Lstat(path); err == nil {
		return fs.ErrExist
	}

	if err := os.Rename(f.Name(), path); err != nil {
		return errors.Join(linked, err)
	}

	return nil
}

// Release ends the hold. Without it the end of the process does.
func (f *File) Release() { f.holding.Close() } //nolint:errcheck // nothing was written

// Folder is a new folder that is held until it is removed.
type Folder struct {
	Path    string
	holding *os.File // nil where there are no locks
}

// NewFolder makes a folder in parent, for its owner alone. The name is made as by os.MkdirTemp.
func NewFolder(parent, pattern string) (*Folder, error) {
	for {
		path, err := os.MkdirTemp(parent, pattern)
		if err != nil {
			return nil, fmt.Errorf("create temporary folder: %w", err)
		}

		holding, err := hold(path)

		switch {
		case err == nil:
			return &Folder{path, holding}, nil
		case !os.IsNotExist(err):
			return nil, fmt.Errorf("hold temporary folder: %w", err)
		}
	}
}

// Remove removes the folder with all that is in it.
func (f *Folder) Remove() error {
	defer f.holding.Close() //nolint:errcheck // nothing was written

	if err := os.RemoveAll(f.Path); err != nil {
		return fmt.Errorf("remove temporary folder: %w", err)
	}

	return nil
}

// Clean removes the files and folders in folder whose names match the pattern (that of path.Match) and that nobody
// holds. What can't be looked at or removed is somebody else's, and stays.
func Clean(folder, pattern string) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return
	}

	for _, entry := range entries {
		if matches, err := filepath.Match(pattern, entry.Name()); err == nil && matches {
			RemoveAbandoned(filepath.Join(folder, entry.Name()), nil)
		}
	}
}

// RemoveAbandoned removes a file or folder that nobody holds, if may, when it isn't nil, agrees after a look at it. It
// tells whether it did.
func RemoveAbandoned(path string, may func(*os.File) bool) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeSymlink != 0 {
		return false
	}

	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close() //nolint:errcheck // nothing was written

	// Held by this process from here on, so that of two that find it one removes it.
	if !lock(file, false) || !isAt(file, path) || may != nil && !may(file) {
		return false
	}

	return os.RemoveAll(path) == nil
}

// hold holds what has just been made at a path. fs.ErrNotExist tells that somebody took it for abandoned meanwhile.
func hold(path string) (*os.File, error) {
	if !locks {
		return nil, nil
	}

	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}

	// On a file system without locks nothing is held, and nothing ever found.
	lock(file, true)

	if !isAt(file, path) {
		file.Close() //nolint:errcheck // nothing was written

		return nil, fs.ErrNotExist
	}

	return file, nil
}

// isAt reports whether the open file is still the one that has the path.
func isAt(file *os.File, path string) bool {
	own, err := file.Stat()
	if err != nil {
		return false
	}

	found, err := os.Lstat(path)

	return err == nil && os.SameFile(own, found)
}
