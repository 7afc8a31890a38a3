package kube

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/talos-mage/talos-mage/internal/base/held"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// lockPause and lockAttempts: another writer needs milliseconds.
const (
	lockPause    = 50 * time.Millisecond
	lockAttempts = 40
)

// lockMark is what this program's lock files hold. kubectl's are empty, and nobody can tell whether their process still
// lives.
const lockMark = "talos-mage is changing the kubeconfig. Was it killed? Then its next run removes this file.\n"

func lockName(path string) string { return path + ".lock" }

// removeAbandonedLock takes away the lock file of a process of this program that was killed.
func removeAbandonedLock(path string) { held.RemoveAbandoned(lockName(path), isMarked) }

// lock takes the lock file that kubectl takes before it writes.
func lock(path string) (unlock func(), err error) {
	mine, err := newLockFile(path)
	if err != nil {
		return nil, unwritable(path, err)
	}

	name := lockName(path)

	for attempt := range lockAttempts {
		if attempt > 0 {
			<-time.After(lockPause)
		}

		err := mine.MoveTo(name)

		switch {
		case err == nil:
			return func() {
				_ = os.Remove(name) // what stays is reported, or taken away, by whoever meets it
				mine.Release()
			}, nil
		case errors.Is(err, fs.ErrExist):
			removeAbandonedLock(path)
		default:
			mine.Release()

			return nil, unwritable(path, errors.Join(err, os.Remove(mine.Name())))
		}
	}

	mine.Release()
	_ = os.Remove(mine.Name())

	return nil, problem(diagnosis.KubeconfigLocked, fs.ErrExist,
		fmt.Sprintf("another program is changing %s: %s did not go away", path, name),
		"rm "+name+", if no other program is running; then mage kubeconfig")
}

// newLockFile makes a lock file under another name: it has to be whole and held before it is one.
func newLockFile(path string) (*held.File, error) {
	file, err := held.NewFile(filepath.Dir(path), "."+filepath.Base(path)+".lock.talos-mage-*")
	if err != nil {
		return nil, err
	}

	_, err = file.WriteString(lockMark)
	if err = errors.Join(err, file.Close()); err != nil {
		file.Release()

		return nil, errors.Join(err, os.Remove(file.Name()))
	}

	return file, nil
}

// isMarked tells a lock file of this program from kubectl's.
func isMarked(file *os.File) bool {
	mark := make([]byte, len(lockMark))
	_, err := io.ReadFull(file, mark)

	return err == nil && string(mark) == lockMark
}
