// Package reading opens the files of a cluster, each once a run, whoever asks for it.
package reading

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// Files are the files that a run has read. They are safe for use by several goroutines. Nil reads each file anew.
type Files struct {
	root    string
	decrypt func(path string, data []byte) ([]byte, error)

	mu     sync.Mutex
	byPath map[string]func() *File
}

// New is a reading in which nothing was opened yet. Paths are shown relative to root. decrypt gives the plaintext of a
// file that sops encrypted; nil leaves such files closed.
func New(root string, decrypt func(path string, data []byte) ([]byte, error)) *Files {
	return &Files{root: root, decrypt: decrypt, byPath: map[string]func() *File{}}
}

// File is a file as it was when it was first asked for.
type File struct {
	// Path is where it lies; Shown is how people are told it.
	Path, Shown string
	// Data is its content, which nobody changes.
	Data []byte
	// Mode are its permission bits.
	Mode fs.FileMode
	// Err is the file system's error; nil if it could be read.
	Err error

	places    func() *machineconfig.Places
	plaintext func() ([]byte, error)
}

// Open reads a file, unless it was read before. It is never nil.
func (f *Files) Open(path string) *File {
	path = filepath.Clean(path)

	if f == nil {
		return New("", nil).read(path)
	}

	f.mu.Lock()

	open := f.byPath[path]
	if open == nil {
		open = sync.OnceValue(func() *File { return f.read(path) })
		f.byPath[path] = open
	}

	f.mu.Unlock()

	return open()
}

// Renew has files opened again when they are next asked for: those that this run has written itself.
func (f *Files) Renew(paths ...string) {
	if f == nil {
		return
	}

	f.mu.Lock()
	defer f.mu.Unlock()

	for _, path := range paths {
		delete(f.byPath, filepath.Clean(path))
	}
}

// Shown is a path as people want to read it: relative to the root when it lies below.
func (f *Files) Shown(path string) string {
	if f == nil || f.root == "" {
		return path
	}

	relative, err := filepath.Rel(f.root, path)
	if err != nil || relative == ".." || strings.HasPrefix(relative, ".."+string(filepath.Separator)) {
		return path
	}

	return filepath.ToSlash(relative)
}

func (f *Files) read(path string) *File {
	read := &File{Path: path, Shown: f.Shown(path)}
	read.Data, read.Mode, read.Err = content(path)
	read.places = sync.OnceValue(func() *machineconfig.Places { return machineconfig.NewPlaces(read.Data) })
	read.plaintext = sync.OnceValues(func() ([]byte, error) { return f.decrypt(path, read.Data) })

	if f.decrypt == nil {
		read.plaintext = func() ([]byte, error) { return nil, ErrNoKey }
	}

	return read
}

func content(path string) ([]byte, fs.FileMode, error) {
	opened, err := os.Open(path) //nolint:gosec // the user names it
	if err != nil {
		return nil, 0, err
	}

	defer opened.Close() //nolint:errcheck // it was only read

	info, err := opened.Stat()
	if err != nil {
		return nil, 0, err
	}

	data, err := io.ReadAll(opened)

	return data, info.Mode().Perm(), err
}

// ErrNoKey is the answer of Decrypted where nothing decrypts.
var ErrNoKey = errors.New("is encrypted by sops, and can't be decrypted here")

// Decrypted is the plaintext of a file that sops encrypted. It is decrypted once.
func (f *File) Decrypted() ([]byte, error) { return f.plaintext() }

// Places finds the lines and columns of what stands in a YAML file.
func (f *File) Places() *machineconfig.Places { return f.places() }

// Missing reports whether there is no such file.
func (f *File) Missing() bool { return errors.Is(f.Err, fs.ErrNotExist) }
