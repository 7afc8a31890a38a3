// Package lockfile makes lock files that every user of the machine can take, whoever ran the program first.
package lockfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/gofrs/flock"
)

// mode is for everybody: the file holds no secret.
const mode = 0o666

// New is the lock on a file that Make has made.
func New(path string) *flock.Flock { return flock.New(path, flock.SetFlag(os.O_RDONLY)) }

// Make makes the file, unless it is there. Where it is there it is not opened to be made: Linux refuses that of another
// user's file in a folder like /tmp, even to root (proc_sys_fs(5), protected_regular).
func Make(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode) //nolint:gosec // as its comment says
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err != nil:
		return err //nolint:wrapcheck // it names the file
	}

	// What the process's umask took away.
	return errors.Join(file.Chmod(mode), file.Close())
}

// NameHolder writes this process's id into the file, for whoever finds the lock taken.
func NameHolder(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0) //nolint:gosec // as Make made it
	if err != nil {
		return err //nolint:wrapcheck // it names the file
	}

	_, err = fmt.Fprintln(file, os.Getpid())

	return errors.Join(err, file.Close())
}
