package emulator_test

import (
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	clusterres "github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

func TestMachinesWithDocumentsBecomeACluster(t *testing.T) {
	t.Parallel()

	cluster := newCluster(t, on114(labcluster.Options{
		ControlPlanes: 2, Workers: 1, Endpoint: labcluster.FirstControlPlane,
		LabOptions: emulator.LabOptions{Discovery: true},
	}))

	for _, node := range cluster.Nodes {
		waitStage(t, node, "maintenance")

		_, err := apply(t, insecure(t, node), inDocuments(t, cluster, node.Name()), modeAuto)
		require.NoError(t, err)
	}

	first := cluster.Nodes[0]
	installed(t, first)

	api := secure(t, cluster.Talosconfig(), first)
	eventually(t, func() error { return api.Bootstrap(deadline(t), &machineapi.BootstrapRequest{}) })

	for _, node := range cluster.Nodes {
		require.NoError(t, node.WaitFor(deadline(t), (*emulator.Node).Ready))
	}

	members, err := safe.StateListAll[*clusterres.Member](deadline(t), api.COSI)
	require.NoError(t, err)
	require.Equal(t, len(cluster.Nodes), members.Len())

	manifests, err := safe.StateGetByID[*k8s.BootstrapManifestsConfig](deadline(t), api.COSI,
		k8s.BootstrapManifestsConfigID)
	require.NoError(t, err)
	require.Equal(t, "flannel", manifests.TypedSpec().CNIName)
	require.Equal(t, "https://127.0.0.1:7445", manifests.TypedSpec().Server)
	require.Equal(t, []string{"10.244.0.0/16"}, manifests.TypedSpec().PodCIDRs)
	require.True(t, manifests.TypedSpec().ProxyEnabled)
	require.True(t, manifests.TypedSpec().CoreDNSEnabled)

	lines, err := health(t, api, long, nil)
	require.NoError(t, err)
	require.NotContains(t, lines, "SKIP")
	require.Contains(t, lines, "waiting for all k8s nodes to report ready: OK")

	kubeconfig, err := api.Kubeconfig(deadline(t))
	require.NoError(t, err)
	require.NoError(t, readyz(t, kubeconfig)())
}
