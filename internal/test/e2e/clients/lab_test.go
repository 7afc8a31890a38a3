package clients_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/test/labtest"
)

// limit is how long one command may take before its test fails.
const limit = labcluster.Deadline

// timeScale is how many times faster than the wall clock time passes for the nodes: slow enough that no etcd gives up
// joining, after half an hour, while a busy machine gets to the bootstrap.
const timeScale = 100

// The cluster that all tests share which change nothing on it.
var (
	sharedDir string
	shared    = sync.OnceValues(func() (*cluster, error) {
		made, err := labcluster.New(sharedDir, labcluster.Options{
			ControlPlanes: 3, Workers: 2, CNI: "flannel", LabOptions: emulator.LabOptions{Discovery: true, TimeScale: timeScale},
		})
		if err != nil {
			return nil, err
		}

		c := &cluster{Cluster: made}

		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()

		return c, c.bringUp(ctx)
	})
)

// atOnce is how many tests run at the same time: most of the time they wait.
const atOnce = 8

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}

	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	if sharedDir, err = os.MkdirTemp("", "clients"); err != nil {
		return 1, fmt.Errorf("make folder: %w", err)
	}
	defer os.RemoveAll(sharedDir)

	code = labtest.Run(m, atOnce)

	if _, statErr := os.Stat(filepath.Join(sharedDir, "clusterconfig")); statErr == nil {
		if c, err := shared(); err == nil {
			c.Close()
		}
	}

	return code, nil
}

// cluster is a cluster of emulated nodes with the files of its operator.
type cluster struct {
	*labcluster.Cluster
}

// sharedCluster is a whole healthy cluster. Tests must change nothing on it.
func sharedCluster(t *testing.T) *cluster {
	t.Helper()

	c, err := shared()
	require.NoError(t, err)

	return c
}

// newCluster is a cluster of the test's own, in maintenance mode.
func newCluster(t *testing.T, controlPlanes, workers int, edit func(*labcluster.Options)) *cluster {
	t.Helper()

	options := labcluster.Options{
		ControlPlanes: controlPlanes, Workers: workers, Endpoint: labcluster.FirstControlPlane, CNI: "flannel",
		LabOptions: emulator.LabOptions{TimeScale: timeScale},
	}

	if workers == 0 {
		options.Workers = -1
	}

	if edit != nil {
		edit(&options)
	}

	made, err := labcluster.New(t.TempDir(), options)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			for _, node := range made.Nodes {
				t.Logf("%s, %s:\n%s", node.Name(), node.Stage(), strings.Join(node.Console(), "\n"))
			}
		}

		require.NoError(t, made.Close())
	})

	c := &cluster{made}
	for _, node := range c.Nodes {
		c.await(t, node.Name(), inMaintenance)
	}

	return c
}

// newConfigured is a cluster of the test's own whose nodes have their machine configs, and no etcd.
func newConfigured(t *testing.T, controlPlanes, workers int, edits ...func(*labcluster.Options)) *cluster {
	t.Helper()

	c := newCluster(t, controlPlanes, workers, func(o *labcluster.Options) {
		o.Edit = slowReboot

		for _, edit := range edits {
			edit(o)
		}
	})

	for _, node := range c.Nodes {
		require.NoError(t, c.apply(t.Context(), node.Name()))
	}

	for _, node := range c.Nodes {
		c.await(t, node.Name(), configured)
		require.Eventually(t, func() bool { return oneByOne.run(t, c.on(node.Name(), "version")).code == 0 }, limit,
			10*time.Millisecond)
	}

	return c
}

// newRunning is a healthy cluster of the test's own, whose nodes take their time to reboot.
func newRunning(t *testing.T, controlPlanes, workers int, edits ...func(*labcluster.Options)) *cluster {
	t.Helper()

	c := newConfigured(t, controlPlanes, workers, edits...)

	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()

	require.NoError(t, c.bootstrap(ctx))

	return c
}

// slowReboot makes a machine's later reboots last long enough, in wall time, for a client that looks each second to
// notice them. Nodes that are not installed are spared: they reboot once before they matter.
func slowReboot(node *emulator.NodeOptions) {
	node.Installed = true
	node.Timing.Reboot = 2500 * time.Millisecond * timeScale
}

// unhurried makes node time so slow that a busy machine still reads the last events of a node before its API closes,
// and lets nodes wait for their pods for long enough that who asked them to stop is there by then.
func unhurried(o *labcluster.Options) {
	o.LabOptions.TimeScale = 20
	o.Timing = emulator.Timing{
		Boot: time.Second, Pods: time.Minute, Stop: time.Second, Reboot: time.Second, Containers: time.Second,
		Kubelet: time.Second, EtcdStart: 2 * time.Second,
		EtcdJoin: time.Second, ControlPlane: time.Second, EtcdJoinLimit: 24 * time.Hour,
	}
	o.Edit = func(node *emulator.NodeOptions) { node.Installed = true }
}

// apply sends a machine its config.
func (c *cluster) apply(ctx context.Context, name string) error {
	node := c.Node(name)

	r := oneByOne.do(ctx, command{
		words: []string{"apply-config"}, insecure: true, nodes: []string{address(node)}, file: c.ConfigFile(name),
		mode: "auto",
	})
	if r.code != 0 {
		return fmt.Errorf("apply to %s: %s", name, r.stderr)
	}

	return nil
}

// bringUp makes a healthy cluster of nodes in maintenance mode.
func (c *cluster) bringUp(ctx context.Context) error {
	for _, node := range c.Nodes {
		if err := node.WaitFor(ctx, inMaintenance); err != nil {
			return fmt.Errorf("wait for %s in maintenance mode: %w", node.Name(), err)
		}

		if err := c.apply(ctx, node.Name()); err != nil {
			return err
		}
	}

	if err := c.Node("cp1").WaitFor(ctx, configured); err != nil {
		return fmt.Errorf("wait for cp1: %w", err)
	}

	return c.bootstrap(ctx)
}

// bootstrap sends Bootstrap until it is taken, and waits until every node is ready.
func (c *cluster) bootstrap(ctx context.Context) error {
	first := c.Node("cp1")

	for {
		r := oneByOne.do(ctx, command{
			words: []string{"bootstrap"}, talosconfig: c.Talosconfig(), endpoints: []string{address(first)},
			nodes: []string{address(first)},
		})
		if r.code == 0 {
			break
		}

		if err := ctx.Err(); err != nil {
			return fmt.Errorf("bootstrap: %s: %w", r.stderr, err)
		}

		time.Sleep(5 * time.Millisecond)
	}

	for _, node := range c.Nodes {
		if err := node.WaitFor(ctx, (*emulator.Node).Ready); err != nil {
			return fmt.Errorf("wait for %s to be ready, in stage %s: %w", node.Name(), node.Stage(), err)
		}
	}

	return nil
}

func inMaintenance(node *emulator.Node) bool { return node.Stage() == "maintenance" }

// configured reports whether a node runs its machine config from disk.
func configured(node *emulator.Node) bool {
	return node.Config() != nil && node.Installed() && (node.Stage() == "booting" || node.Stage() == "running")
}

// await waits until something is true of a node.
func (c *cluster) await(t *testing.T, name string, condition func(*emulator.Node) bool) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()

	require.NoError(t, c.Node(name).WaitFor(ctx, condition), "%s in stage %s", name, c.Node(name).Stage())
}

// at makes a command for nodes, insecure or, through the first control plane, with the cluster's talosconfig.
func (c *cluster) at(names []string, words ...string) command {
	made := command{words: words, talosconfig: c.Talosconfig(), endpoints: []string{address(c.Node("cp1"))}}

	for _, name := range names {
		made.nodes = append(made.nodes, address(c.Node(name)))
	}

	return made
}

// on is at for one node.
func (c *cluster) on(name string, words ...string) command { return c.at([]string{name}, words...) }

// insecurely is a command for a node in maintenance mode.
func (c *cluster) insecurely(name string, words ...string) command {
	return command{words: words, insecure: true, nodes: []string{address(c.Node(name))}, talosconfig: c.Talosconfig()}
}

// ownTalosconfig is a copy of the cluster's talosconfig with other endpoints and nodes in it.
func (c *cluster) ownTalosconfig(t *testing.T, endpoint string, nodes ...string) string {
	t.Helper()

	config, err := clientconfig.Open(c.Talosconfig())
	require.NoError(t, err)

	config.Contexts[config.Context].Endpoints = []string{address(c.Node(endpoint))}
	config.Contexts[config.Context].Nodes = nil

	for _, name := range nodes {
		config.Contexts[config.Context].Nodes = append(config.Contexts[config.Context].Nodes, address(c.Node(name)))
	}

	path := filepath.Join(t.TempDir(), "talosconfig")
	require.NoError(t, config.Save(path))

	return path
}

// address is what a node is called in talosctl's --nodes.
func address(node *emulator.Node) string { return node.Address().String() }

// taken counts the calls of a method that a node let take effect.
func taken(node *emulator.Node, method string) int {
	count := 0

	for _, call := range node.MutatingCalls() {
		if call.Name() == method && call.Succeeded() {
			count++
		}
	}

	return count
}
