package clients_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

const (
	newerRelease   = "v1.13.10"
	newerInstaller = "ghcr.io/siderolabs/installer:" + newerRelease
)

func TestReset(t *testing.T) {
	t.Parallel()

	withAny(t, func(t *testing.T, ctl talosctl) {
		c := newRunning(t, 1, 1, unhurried)
		worker := c.Node("worker1")

		reset := c.on("worker1", "reset")
		reset.limit = limit

		nowhere := reset
		nowhere.disks = []string{"/dev/nope"}
		fails(t, ctl, nowhere, "device /dev/nope wasn't found")

		unknown := reset
		unknown.labels = []string{"GADGETS"}
		fails(t, ctl, unknown, `failed to get volume status with label "GADGETS"`)
		require.Equal(t, 1, worker.Boots())

		reset.labels, reset.reboots = []string{"STATE", "EPHEMERAL"}, true
		works(t, ctl, reset)
		c.await(t, "worker1", inMaintenance)
		require.True(t, worker.Installed(), "the rest of the disk is spared")
		require.Equal(t, 1, taken(worker, "Reset"))

		off := c.on("cp1", "reset")
		off.limit, off.ungraceful = limit, true
		works(t, ctl, off)
		c.await(t, "cp1", func(n *emulator.Node) bool { return n.Stage() == "off" })
		require.False(t, c.Node("cp1").Installed())
		require.Zero(t, c.Node("cp1").EtcdClusterID())
	})
}

func TestShutdown(t *testing.T) {
	t.Parallel()

	withAny(t, func(t *testing.T, ctl talosctl) {
		c := newRunning(t, 1, 1, unhurried)

		shutdown := c.on("worker1", "shutdown")
		shutdown.limit = limit
		works(t, ctl, shutdown)
		c.await(t, "worker1", func(n *emulator.Node) bool { return n.Stage() == "off" })
		require.Contains(t, works(t, ctl, c.on("cp1", "get", "nodestatus")).stdout, "cp1")

		forced := c.on("cp1", "shutdown")
		forced.limit, forced.force = limit, true
		works(t, ctl, forced)
		c.await(t, "cp1", func(n *emulator.Node) bool { return n.Stage() == "off" })
	})
}

// tag is the Talos version that a node tells.
func tag(t *testing.T, ctl talosctl, c *cluster, name string) string {
	t.Helper()

	var found string

	require.Eventually(t, func() bool {
		r := ctl.run(t, c.on(name, "version"))
		_, about, _ := strings.Cut(r.stdout, "Server:")
		_, about, _ = strings.Cut(about, "Tag:")
		found = strings.TrimSpace(strings.SplitN(about, "\n", 2)[0])

		return r.code == 0
	}, limit, lookAgain/10)

	return found
}

func TestUpgrade(t *testing.T) {
	t.Parallel()

	withEach(t, func(t *testing.T, ctl talosctl) {
		c := newRunning(t, 1, 1)
		worker := c.Node("worker1")
		boots := worker.Boots()

		upgrade := c.on("worker1", "upgrade")
		upgrade.limit = limit

		nothing := upgrade
		nothing.image = "Not:an:image"
		fails(t, ctl, nothing, "invalid reference format")

		worker.Set(func(f *emulator.Faults) { f.Install, f.InstallTimes = emulator.InstallDiskWrite, 1 })

		upgrade.image = newerInstaller
		fails(t, ctl, upgrade, "upgrade failed with exit code 1")
		require.Equal(t, boots, worker.Boots())

		works(t, ctl, upgrade)
		require.Equal(t, boots+1, worker.Boots())
		require.Equal(t, newerRelease, tag(t, ctl, c, "worker1"))
		require.Equal(t, "v1.13.9", tag(t, ctl, c, "cp1"))
		require.Contains(t, works(t, ctl, c.on("worker1", "image", "list", "--namespace", "system")).stdout, newerInstaller)

		status := c.on("worker1", "get", "nodestatus")
		status.output = "yaml"
		require.Contains(t, works(t, ctl, status).stdout, "unschedulable: false")

		boots = worker.Boots()
		works(t, ctl, c.on("worker1", "rollback"))
		c.await(t, "worker1", func(n *emulator.Node) bool { return n.Boots() == boots+1 && n.Ready() })
		require.Equal(t, "v1.13.9", tag(t, ctl, c, "worker1"))
	})
}

// Nodes of the release before have no LifecycleService: talosctl leaves the upgrade to them.
func TestUpgradeOfAnOlderRelease(t *testing.T) {
	t.Parallel()

	withAny(t, func(t *testing.T, ctl talosctl) {
		c := newRunning(t, 1, 0, func(o *labcluster.Options) { o.TalosVersion = "v1.12.1" })
		require.Equal(t, "v1.12.1", tag(t, ctl, c, "cp1"))

		upgrade := c.on("cp1", "upgrade")
		upgrade.limit, upgrade.image = limit, newerInstaller
		works(t, ctl, upgrade)
		require.Equal(t, newerRelease, tag(t, ctl, c, "cp1"))
		require.Equal(t, 1, taken(c.Node("cp1"), "Upgrade"))
	})
}

func TestEtcdSnapshot(t *testing.T) {
	t.Parallel()

	withEach(t, func(t *testing.T, ctl talosctl) {
		c := sharedCluster(t)
		path := filepath.Join(t.TempDir(), "etcd.snapshot")

		require.Contains(t, works(t, ctl, c.on("cp2", "etcd", "snapshot", path)).stdout, "etcd snapshot saved to")

		snapshot, err := os.ReadFile(path)
		require.NoError(t, err)

		for _, name := range []string{"cp1", "cp2", "cp3"} {
			require.Contains(t, string(snapshot), `"name":"`+name+`"`)
		}

		require.NoFileExists(t, path+".part")

		fails(t, ctl, c.on("worker1", "etcd", "snapshot", path+"2"), "etcd snapshot is only available on control plane nodes")
		require.NoFileExists(t, path+"2")
		require.Equal(t, 1, ctl.run(t, c.at([]string{"cp1", "cp2"}, "etcd", "snapshot", path+"3")).code)
	})
}

func TestHealthFromTheOperatorsSide(t *testing.T) {
	t.Parallel()

	withAny(t, func(t *testing.T, ctl talosctl) {
		c := sharedCluster(t)

		check := c.on("cp1", "health")
		check.local, check.limit = true, limit

		text := works(t, ctl, check).text()
		require.Contains(t, text, "waiting for etcd members to be control plane nodes: OK")
		require.Contains(t, text, "waiting for coredns to report ready: OK")
		require.Contains(t, text, "waiting for all k8s nodes to report schedulable: OK")
	})
}
