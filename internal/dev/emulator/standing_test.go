package emulator_test

import (
	"errors"
	"os"
	"sync"
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/test/emulatortest"
)

// TestMain takes the standing labs down when all tests are over.
// atOnce is how many tests run at the same time: most of the time they wait.
const atOnce = 6

func TestMain(m *testing.M) {
	code := emulatortest.Run(m, atOnce)

	if err := closeStanding(); err != nil && code == 0 {
		code = 1
	}

	os.Exit(code)
}

// standingLab is a lab that is made when a test first needs it and lives until the end of all tests, for those that
// only look at its machines.
type standingLab struct {
	bring   func(t *testing.T, dir string) *labcluster.Cluster
	mu      sync.Mutex
	dir     string
	cluster *labcluster.Cluster
}

// The standing labs.
var (
	// idleLab has one machine in maintenance mode, its time synced.
	idleLab = &standingLab{bring: bringIdle}
	// waitingLab has one control plane that nobody bootstrapped.
	waitingLab = &standingLab{bring: bringWaiting}
	// wholeLab has the control planes cp1 and cp2 and the worker worker1. All run, without a CNI.
	wholeLab = &standingLab{bring: bringWhole}
)

// use gives the lab, brought up. Its machines are not to be changed.
func (s *standingLab) use(t *testing.T) *labcluster.Cluster {
	t.Helper()

	s.mu.Lock()
	defer s.mu.Unlock()

	if s.cluster != nil {
		return s.cluster
	}

	dir, err := os.MkdirTemp("", "standing-lab-") //nolint:usetesting // it outlives the test
	require.NoError(t, err)

	s.dir = dir
	s.cluster = s.bring(t, dir)

	return s.cluster
}

func (s *standingLab) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.cluster == nil {
		return nil
	}

	err := s.cluster.Close()
	s.cluster = nil

	return errors.Join(err, os.RemoveAll(s.dir))
}

// closeStanding takes the standing labs down. A test that needs one again brings it up anew.
func closeStanding() error {
	return errors.Join(idleLab.close(), waitingLab.close(), wholeLab.close())
}

// idle is a machine in maintenance mode that is only to be looked at.
func idle(t *testing.T) (*labcluster.Cluster, *emulator.Node) {
	t.Helper()

	cluster := idleLab.use(t)

	return cluster, cluster.Nodes[0]
}

// waiting is a control plane that nobody bootstrapped, only to be looked at.
func waiting(t *testing.T) (*labcluster.Cluster, *emulator.Node) {
	t.Helper()

	cluster := waitingLab.use(t)

	return cluster, cluster.Nodes[0]
}

func bringIdle(t *testing.T, dir string) *labcluster.Cluster {
	t.Helper()

	cluster, err := labcluster.New(dir, labcluster.Options{ControlPlanes: 1, Workers: -1})
	require.NoError(t, err)
	waitStage(t, cluster.Nodes[0], "maintenance")
	eventually(t, func() error { return timeSynced(t, cluster.Nodes[0]) })

	return cluster
}

func bringWaiting(t *testing.T, dir string) *labcluster.Cluster {
	t.Helper()

	cluster, err := labcluster.New(dir, labcluster.Options{ControlPlanes: 1, Workers: -1})
	require.NoError(t, err)
	bringUp(t, cluster)

	c := secure(t, cluster.Talosconfig(), cluster.Nodes[0])
	eventually(t, func() error { return until(serviceInfo(t, c, "etcd").GetState() == "Preparing") })
	eventually(t, func() error { return until(serviceInfo(t, c, "kubelet").GetHealth().GetHealthy()) })

	return cluster
}

func bringWhole(t *testing.T, dir string) *labcluster.Cluster {
	t.Helper()

	cluster, err := labcluster.New(dir,
		labcluster.Options{ControlPlanes: 2, Workers: 1, Endpoint: labcluster.FirstControlPlane})
	require.NoError(t, err)
	bringUp(t, cluster)

	c := secure(t, cluster.Talosconfig(), cluster.Nodes[0])
	eventually(t, func() error { return c.Bootstrap(deadline(t), &machineapi.BootstrapRequest{}) })

	for _, node := range cluster.Nodes {
		waitStage(t, node, "running")
		require.NoError(t, node.WaitFor(deadline(t), (*emulator.Node).Registered))
		eventually(t, func() error { _, _, err := handshake(t, node, 0); return err })
	}

	for _, node := range cluster.Nodes[:2] {
		require.NoError(t, node.WaitFor(deadline(t), (*emulator.Node).EtcdVoter))
	}

	return cluster
}

// bringUp installs all machines of a cluster with their own configs.
func bringUp(t *testing.T, cluster *labcluster.Cluster) {
	t.Helper()

	for _, node := range cluster.Nodes {
		applyOwn(t, cluster, node.Name())
	}

	for _, node := range cluster.Nodes {
		installed(t, node)
		eventually(t, func() error { _, _, err := handshake(t, node, 0); return err })
	}
}
