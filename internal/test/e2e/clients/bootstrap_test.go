package clients_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

func TestBootstrapRefusals(t *testing.T) {
	t.Parallel()

	c := newConfigured(t, 2, 1)
	maintenance := newCluster(t, 1, 0, nil)

	withEach(t, func(t *testing.T, ctl talosctl) {
		fails(t, ctl, c.on("worker1", "bootstrap"), "bootstrap is only available on control plane nodes")

		self := command{words: []string{"bootstrap"}, talosconfig: c.ownTalosconfig(t, "worker1", "worker1")}
		fails(t, ctl, self, "bootstrap is only available on control plane nodes")

		require.Equal(t, 1, ctl.run(t, c.at([]string{"cp1", "cp2"}, "bootstrap")).code)
		fails(t, ctl, maintenance.on("cp1", "bootstrap"), "certificate signed by unknown authority")
		fails(t, ctl, command{words: []string{"bootstrap"}, talosconfig: c.ownTalosconfig(t, "cp1")}, "nodes are not set")

		require.Zero(t, c.Lab.EtcdClusters())

		for _, node := range c.Nodes {
			require.Zero(t, taken(node, "Bootstrap"), node.Name())
		}
	})
}

// A kubeconfig is made from the machine config, so that a control plane gives one before there is a cluster; bootstrap
// works once.
func TestBootstrap(t *testing.T) {
	t.Parallel()

	withEach(t, func(t *testing.T, ctl talosctl) {
		c := newConfigured(t, 2, 0)

		early := filepath.Join(t.TempDir(), "kubeconfig")
		require.Eventually(t, func() bool { return ctl.run(t, c.on("cp2", "kubeconfig", early)).code == 0 }, limit,
			10*time.Millisecond)
		require.FileExists(t, early)

		require.Eventually(t, func() bool {
			return strings.Contains(works(t, ctl, c.on("cp1", "service", "etcd")).stdout, "Preparing")
		}, limit, 10*time.Millisecond)

		works(t, ctl, c.on("cp1", "bootstrap"))

		for _, name := range []string{"cp1", "cp2"} {
			c.await(t, name, (*emulator.Node).EtcdVoter)
			c.await(t, name, (*emulator.Node).Ready)
		}

		fails(t, ctl, c.on("cp1", "bootstrap"), "etcd data directory is not empty")
		fails(t, ctl, c.on("cp2", "bootstrap"), "etcd data directory is not empty")

		members := works(t, ctl, c.on("cp2", "etcd", "members")).stdout
		require.Contains(t, members, "cp1")
		require.Contains(t, members, "cp2")
		require.Equal(t, 1, c.Lab.EtcdClusters())
		require.Equal(t, 1, taken(c.Node("cp1"), "Bootstrap")+taken(c.Node("cp2"), "Bootstrap"))
	})
}

func TestKubeconfig(t *testing.T) {
	t.Parallel()

	withEach(t, func(t *testing.T, ctl talosctl) {
		c := sharedCluster(t)
		path := filepath.Join(t.TempDir(), "kubeconfig")

		works(t, ctl, c.on("cp2", "kubeconfig", path))

		config, err := clientcmd.LoadFromFile(path)
		require.NoError(t, err)
		require.Equal(t, "admin@lab", config.CurrentContext)
		require.Equal(t, c.Generated.Options.Endpoint, config.Clusters["lab"].Server)

		fails(t, ctl, c.on("worker1", "kubeconfig", path+"2"), "kubeconfig is only available on control plane nodes")
		require.NoFileExists(t, path+"2")

		require.Equal(t, 1, ctl.run(t, c.at([]string{"cp1", "cp2"}, "kubeconfig", path+"3")).code)
		require.NoFileExists(t, path+"3")
	})
}

// What becomes of a file that exists is talosctl's own business, so nothing but talosctl is asked.
func TestKubeconfigMerge(t *testing.T) {
	t.Parallel()

	ctl := realTalosctl(t)
	c := sharedCluster(t)
	other := newCluster(t, 1, 0, func(o *labcluster.Options) { o.Edit = slowReboot })
	path := filepath.Join(t.TempDir(), "kubeconfig")

	require.NoError(t, other.apply(t.Context(), "cp1"))
	other.await(t, "cp1", configured)

	works(t, ctl, c.on("cp1", "kubeconfig", path))

	// Another cluster of the same name gets another context.
	works(t, ctl, other.on("cp1", "kubeconfig", path))

	config, err := clientcmd.LoadFromFile(path)
	require.NoError(t, err)
	require.Len(t, config.Contexts, 2)
	require.Contains(t, config.Contexts, "admin@lab")
	require.NotEqual(t, "admin@lab", config.CurrentContext)

	forced := other.on("cp1", "kubeconfig", path)
	forced.force = true
	works(t, ctl, forced)

	config, err = clientcmd.LoadFromFile(path)
	require.NoError(t, err)
	require.Equal(t, other.Generated.Options.Endpoint, config.Clusters["lab"].Server)

	replaced := c.on("cp1", "kubeconfig", path)
	replaced.noMerge = true
	fails(t, ctl, replaced, "already exists")
}
