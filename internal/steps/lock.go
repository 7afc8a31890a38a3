package steps

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/rs/zerolog"

	"github.com/talos-mage/talos-mage/internal/base/atomicfile"
	"github.com/talos-mage/talos-mage/internal/base/clock"
	"github.com/talos-mage/talos-mage/internal/base/lockfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/steps/workspace"
)

// lockPatience is how long a run waits for another one on this machine to end.
const lockPatience = 10 * time.Second

// clusterLock keeps two runs on one machine from changing the same cluster at the same time. It dies with the process.
type clusterLock struct {
	workspace *workspace.Workspace
	clock     clock.Clock
	log       zerolog.Logger

	key  string
	file *flock.Flock // nil while it is not held
}

// wanted identifies the cluster by its CA; before there is one, by where its files will be.
func (l *clusterLock) wanted() string {
	if l.workspace.Credentials != nil {
		return l.workspace.Credentials.ClusterHash()
	}

	sum := sha256.Sum256([]byte(l.workspace.Settings.Talosconfig))
	return hex.EncodeToString(sum[:])
}

// take takes the lock, or keeps it. Once the cluster has a CA, the lock is another one.
func (l *clusterLock) take(ctx context.Context) error {
	key := l.wanted()
	if l.file != nil && l.key == key {
		return nil
	}

	path := filepath.Join(l.workspace.TemporaryFolder(), "talos-mage-"+key[:16]+".lock")
	if err := lockfile.Make(path); err != nil {
		return unwritableLock(path, err)
	}

	file := lockfile.New(path)

	waiting, stop := l.clock.WithTimeout(ctx, lockPatience)
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
	if err := lockfile.NameHolder(path); err != nil {
		l.log.Debug().Str("lock", path).Msg("the lock does not name its holder: " + err.Error())
	}

	l.release()
	l.key, l.file = key, file
	l.cleanUp()

	return nil
}

func (l *clusterLock) release() {
	if l.file != nil {
		_ = l.file.Unlock()
		l.file = nil
	}
}

// cleanUp removes what runs that were killed left behind: half-written temporary files and rendered configs, with
// secrets in them.
func (l *clusterLock) cleanUp() {
	l.workspace.RemoveRendered()

	settings := l.workspace.Settings
	for _, path := range []string{
		l.workspace.Cluster.NewSecretsPath(true), filepath.Join(settings.ClusterConfigDir, ".gitignore"),
		settings.Talosconfig, filepath.Join(snapshotFolder(settings), ".gitignore"),
	} {
		atomicfile.Clean(path)
	}
}

func unwritableLock(path string, err error) error {
	problem := diagnosis.Unwritable(path, err).In("lock")
	problem.Next = "point TMPDIR to a folder that can be written to, the same in every run, then run the same " +
		"command again"

	// Another folder would be another lock, which the owner of this one does not mind.
	if _, there := os.Stat(path); there == nil {
		problem.Next = "while nobody runs this program, have its owner remove " + path + "; then run the same command again"
	}

	return problem
}

func lockTaken(path string) error {
	holder := "another run"
	if pid, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(pid)) != "" {
		holder = "process " + strings.TrimSpace(string(pid))
	}

	return diagnosis.NewProblem(diagnosis.LockTaken,
		fmt.Sprintf("%s is changing this cluster from this machine (%s)", holder, path),
		"wait for it to end, or stop it with Ctrl-C in its terminal; then run the same command again")
}
