package steps

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/talos-mage/talos-mage/internal/base/atomicfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// lockPatience is how long a run waits for another one on this machine to end.
const lockPatience = 10 * time.Second

// clusterLock keeps two runs on one machine from changing the same cluster at the same time. It dies with the process.
type clusterLock struct {
	key  string
	file *flock.Flock
}

// lockKey identifies the cluster by its CA; before there is one, by where its files will be.
func lockKey(r *Run) string {
	if r.Credentials != nil {
		return r.Credentials.ClusterHash()
	}

	sum := sha256.Sum256([]byte(r.Settings.Talosconfig))
	return hex.EncodeToString(sum[:])
}

func (r *Run) acquireLock(ctx context.Context) error {
	key := lockKey(r)
	if r.lock != nil && r.lock.key == key {
		return nil
	}

	path := filepath.Join(r.temporaryFolder(), "talos-mage-"+key[:16]+".lock")
	file := flock.New(path, flock.SetPermissions(0o600))

	waiting, stop := r.Clock.WithTimeout(ctx, lockPatience)
	defer stop()

	taken, err := file.TryLockContext(waiting, 100*time.Millisecond)
	switch {
	case ctx.Err() != nil:
		_ = file.Unlock() // it may have been taken in the same moment

		return interrupted(ctx, "lock")
	case !taken && waiting.Err() != nil:
		return lockTaken(path)
	case err != nil:
		return unwritableLock(path, err)
	}

	// For whoever finds the lock taken. It holds without that too, as on a full disk.
	if err := os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
		r.Log.Debug().Str("lock", path).Msg("the lock does not name its holder: " + err.Error())
	}

	r.unlock()
	r.lock = &clusterLock{key: key, file: file}
	cleanUp(r)

	return nil
}

// cleanUp removes what runs that were killed left behind: half-written temporary files and rendered configs, with
// secrets in them.
func cleanUp(r *Run) {
	_ = os.RemoveAll(r.renderedFolder()) // whoever needs it says so

	for _, path := range []string{
		r.Cluster.NewSecretsPath(true), filepath.Join(r.Settings.ClusterConfigDir, ".gitignore"), r.Settings.Talosconfig,
	} {
		atomicfile.Clean(path)
	}
}

func (r *Run) temporaryFolder() string {
	if folder := r.variable("TMPDIR"); folder != "" {
		return folder
	}

	return os.TempDir()
}

func (r *Run) unlock() {
	if r.lock == nil {
		return
	}

	_ = r.lock.file.Unlock()
	r.lock = nil
}

func unwritableLock(path string, err error) error {
	problem := diagnosis.Unwritable(path, err)
	problem.Step = "lock"
	problem.Next = "point TMPDIR to a folder that can be written to, the same in every run, then run the same " +
		"command again"

	return problem
}

func lockTaken(path string) error {
	holder := "another run"

	if pid, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(pid)) != "" {
		holder = "process " + strings.TrimSpace(string(pid))
	}

	return &diagnosis.Problem{Finding: diagnosis.Finding{
		ID:       diagnosis.LockTaken,
		Severity: diagnosis.Failure,
		Cause:    fmt.Sprintf("%s is changing this cluster from this machine (%s)", holder, path),
		Next:     "wait for it to end, or stop it with Ctrl-C in its terminal; then run the same command again",
	}}
}
