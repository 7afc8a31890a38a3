// Package reading opens the files of a cluster, each once a run, whoever asks for it.
package reading

import (
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"

	"github.com/talos-mage/talos-mage/internal/base/plainfile"
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
	// Unwritten is set for what Pretend gave: no such file is there.
	Unwritten bool

	places    func() *machineconfig.Places
	config    func() (*machineconfig.Config, error)
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

// Pretend has a file taken for what it would hold, once it is written.
func (f *Files) Pretend(path string, data []byte) {
	path = filepath.Clean(path)
	made := f.file(path, data, 0, nil)
	made.Unwritten = true
	f.put(path, made)
}

// Wrote has a file taken for what this run has just written to it.
func (f *Files) Wrote(path string, data []byte, mode fs.FileMode) {
	path = filepath.Clean(path)
	f.put(path, f.file(path, data, mode, nil))
}

func (f *Files) put(path string, file *File) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.byPath[path] = func() *File { return file }
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
	data, mode, err := plainfile.Read(path)

	return f.file(path, data, mode, err)
}

func (f *Files) file(path string, data []byte, mode fs.FileMode, err error) *File {
	read := &File{Path: path, Shown: f.Shown(path), Data: data, Mode: mode, Err: err}
	read.places = sync.OnceValue(func() *machineconfig.Places { return machineconfig.NewPlaces(read.Data) })
	read.config = sync.OnceValues(func() (*machineconfig.Config, error) {
		return machineconfig.FromFile(path, read.Data, read.Err)
	})
	read.plaintext = sync.OnceValues(func() ([]byte, error) { return f.decrypt(path, read.Data) })

	if f.decrypt == nil {
		read.plaintext = func() ([]byte, error) { return nil, ErrNoKey }
	}

	return read
}

// Sealed reports whether sops encrypted values of a text.
func Sealed(data []byte) bool { return bytes.Contains(data, []byte("ENC[AES256_GCM,")) }

// ErrNoKey is the answer of Decrypted where nothing decrypts.
var ErrNoKey = errors.New("is encrypted by sops, and can't be decrypted here")

// Decrypted is the plaintext of a file that sops encrypted. It is decrypted once.
func (f *File) Decrypted() ([]byte, error) { return f.plaintext() }

// Places finds the lines and columns of what stands in a YAML file.
func (f *File) Places() *machineconfig.Places { return f.places() }

// Config is the file as a machine config, which it is decoded as once. Errors are *machineconfig.LoadError.
func (f *File) Config() (*machineconfig.Config, error) { return f.config() }

// Missing reports whether there is no such file.
func (f *File) Missing() bool { return errors.Is(f.Err, fs.ErrNotExist) }
