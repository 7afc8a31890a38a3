package kube

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"github.com/talos-mage/talos-mage/internal/base/atomicfile"
	"github.com/talos-mage/talos-mage/internal/base/lockfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// lockPause and lockAttempts: another writer needs milliseconds.
const (
	lockPause    = 50 * time.Millisecond
	lockAttempts = 40
)

// fileLock is kubectl's lock file beside a kubeconfig. Ours is a symbolic link, which comes into being with all that it
// says, to a file on which this program holds a lock of the system's. That one ends with the process: who holds it and
// meets the link knows that nobody else's process made it and still lives. kubectl's own lock file tells nobody whose
// it is.
type fileLock struct {
	name string
	held *flock.Flock
}

func newFileLock(path, folder string) fileLock {
	// Two names of one file need one lock.
	target, err := atomicfile.Target(path)
	if err != nil {
		target = path
	}

	sum := sha256.Sum256([]byte(absolute(target)))
	held := filepath.Join(absolute(cmp.Or(folder, os.TempDir())), "talos-mage-"+hex.EncodeToString(sum[:8])+".lock")

	return fileLock{name: path + ".lock", held: lockfile.New(held)}
}

// absolute is the path as it is, where the working directory can't be told.
func absolute(path string) string {
	if found, err := filepath.Abs(path); err == nil {
		return found
	}

	return path
}

// take waits a moment for the lock.
func (l fileLock) take(path string) error {
	if err := lockfile.Make(l.held.Path()); err != nil {
		return unwritable(l.held.Path(), err)
	}

	for attempt := range lockAttempts {
		if attempt > 0 {
			<-time.After(lockPause)
		}

		ours, err := l.held.TryLock()
		if err != nil {
			return unwritable(l.held.Path(), err)
		}

		if !ours {
			continue
		}

		l.removeLink()

		switch err := l.link(); {
		case err == nil:
			return nil
		case !errors.Is(err, fs.ErrExist):
			_ = l.held.Unlock()

			return unwritable(path, err)
		}
	}

	_ = l.held.Unlock()

	return problem(diagnosis.KubeconfigLocked, fs.ErrExist,
		fmt.Sprintf("another program is changing %s: %s did not go away", path, l.name),
		"rm "+l.name+", if no other program is running; then mage kubeconfig")
}

// link makes the lock file; an empty one, as kubectl's are, where there are no symbolic links.
func (l fileLock) link() error {
	err := os.Symlink(l.held.Path(), l.name)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}

	file, err := os.OpenFile(l.name, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}

	return file.Close()
}

func (l fileLock) release() {
	_ = os.Remove(l.name) // what stays is reported, or taken away, by whoever meets it
	_ = l.held.Unlock()
}

// removeAbandoned takes away the lock file of a process of this program that was killed.
func (l fileLock) removeAbandoned() {
	if !l.isLink() || lockfile.Make(l.held.Path()) != nil {
		return
	}

	if ours, err := l.held.TryLock(); err != nil || !ours {
		return
	}

	l.removeLink()

	_ = l.held.Unlock()
}

// removeLink is for who holds the lock of the system's.
func (l fileLock) removeLink() {
	if l.isLink() {
		_ = os.Remove(l.name)
	}
}

func (l fileLock) isLink() bool {
	target, err := os.Readlink(l.name)

	return err == nil && target == l.held.Path()
}
