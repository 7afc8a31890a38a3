package bench

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// lab is a cluster of nodes in maintenance mode, and the record of when each was up.
type lab struct {
	*labcluster.Cluster

	// folder is the repository that the cluster's files are in.
	folder string

	recording sync.WaitGroup
	cancel    context.CancelFunc

	mu sync.Mutex
	// back is since when a control plane answers again after its install, up since when a node lacks nothing.
	back, up map[string]time.Time
}

// usualControlPlanes are those of a cluster that has room for them.
const usualControlPlanes = 3

// startLab starts so many nodes and waits until they are in maintenance.
func (b *bench) startLab(ctx context.Context, nodes int) (*lab, error) {
	folder, err := os.MkdirTemp(b.folder, "lab-")
	if err != nil {
		return nil, fmt.Errorf("make folder for the cluster: %w", err)
	}

	controlPlanes := min(usualControlPlanes, nodes-1)

	cluster, err := labcluster.New(filepath.Join(folder, "talos"), labcluster.Options{
		Name: "bench", ControlPlanes: controlPlanes, Workers: nodes - controlPlanes, CNI: constants.FlannelCNI,
		TalosVersion: talosVersion, Contract: labcluster.OwnForm(talosVersion),
		LabOptions: emulator.LabOptions{TimeScale: float64(b.Scale)},
	})
	if err != nil {
		return nil, fmt.Errorf("start nodes: %w", err)
	}

	made := &lab{Cluster: cluster, folder: folder, back: map[string]time.Time{}, up: map[string]time.Time{}}
	recording, cancel := context.WithCancel(ctx)
	made.cancel = cancel

	for i, node := range cluster.Nodes {
		if err := node.WaitFor(ctx, func(n *emulator.Node) bool { return n.Stage() == "maintenance" }); err != nil {
			made.close()

			return nil, err //nolint:wrapcheck // it names the node
		}

		made.recording.Go(func() {
			made.record(recording, node, made.up, func(n *emulator.Node) bool { return n.Ready() && n.Registered() })
		})

		if i < controlPlanes {
			made.recording.Go(func() {
				if made.reopened(recording, node) {
					made.record(recording, node, made.back, isBack)
				}
			})
		}
	}

	return made, nil
}

// record notes in when at which time a node has reached something.
func (l *lab) record(ctx context.Context, node *emulator.Node, when map[string]time.Time,
	reached func(*emulator.Node) bool) {
	if node.WaitFor(ctx, reached) != nil {
		return
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	when[node.Name()] = time.Now()
}

// reopened waits until a node takes connections after its install; false if that is not waited for any more.
func (l *lab) reopened(ctx context.Context, node *emulator.Node) bool {
	if node.WaitFor(ctx, isBack) != nil {
		return false
	}

	for {
		conn, err := l.Lab.Dial(ctx, netip.AddrPortFrom(node.Address(), emulator.APIPort))
		if err == nil {
			conn.Close() //nolint:errcheck // it was only to open

			return true
		}

		if l.Lab.Clock().Sleep(ctx, openAgain) != nil {
			return false
		}
	}
}

// openAgain is between two looks at a port, in the nodes' time.
const openAgain = 20 * time.Millisecond

// isBack reports whether a node has booted what it installed.
func isBack(node *emulator.Node) bool {
	return node.Boots() > 1 && (node.Stage() == "booting" || node.Stage() == "running")
}

// ups is how many nodes are up.
func (l *lab) ups() int {
	l.mu.Lock()
	defer l.mu.Unlock()

	return len(l.up)
}

// awaitUp waits until every node is up, and gives the time at which the last one was.
func (l *lab) awaitUp(ctx context.Context) (last time.Time, err error) {
	l.recording.Wait()

	if ctx.Err() != nil {
		return last, fmt.Errorf("wait until all nodes are up: %w", context.Cause(ctx))
	}

	for _, at := range l.up {
		if at.After(last) {
			last = at
		}
	}

	return last, nil
}

// close switches the nodes off.
func (l *lab) close() {
	l.cancel()
	l.recording.Wait()
	l.Close() //nolint:errcheck // nobody needs them any more
}

// environ is that of a program which is measured: nothing of the user's own but where programs are.
func (l *lab) environ(path string) []string {
	return []string{"PATH=" + path, "HOME=" + l.folder, "TMPDIR=" + l.folder, "TALOSCONFIG=" + l.Talosconfig()}
}
