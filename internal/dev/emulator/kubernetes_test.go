package emulator_test

import (
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// readyz asks the Kubernetes API at the kubeconfig's own address, on a new connection each time.
func readyz(t *testing.T, kubeconfig []byte) func() error {
	t.Helper()

	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	require.NoError(t, err)

	// A connection to a machine that lost its power would hang.
	config.Timeout = time.Second
	// a dialer of its own keeps client-go from sharing connections
	config.Dial = (&net.Dialer{Timeout: time.Second}).DialContext

	return func() error {
		transport, err := rest.HTTPClientFor(rest.CopyConfig(config))
		if err != nil {
			return err
		}
		defer transport.CloseIdleConnections()

		request, err := http.NewRequestWithContext(deadline(t), http.MethodGet, config.Host+"/readyz", nil)
		if err != nil {
			return err
		}

		reply, err := transport.Do(request)
		if err != nil {
			return err
		}

		return errors.Join(reply.Body.Close(), until(reply.StatusCode == http.StatusOK))
	}
}

func TestClaim_6_01_TheVIPServesKubernetesOnceEtcdWorksAndMovesOn(t *testing.T) {
	t.Parallel()

	lab := newCluster(t, labcluster.Options{ControlPlanes: 3, Workers: -1})
	for _, node := range lab.Nodes {
		applyOwn(t, lab, node.Name())
	}

	first := lab.Node("cp1")
	installed(t, first)

	c := secure(t, lab.Talosconfig(), first)

	var kubeconfig []byte

	eventually(t, func() (err error) { kubeconfig, err = c.Kubeconfig(deadline(t)); return err })

	ask := readyz(t, kubeconfig)
	require.ErrorContains(t, ask(), "connection refused")

	eventually(t, func() error { return c.Bootstrap(deadline(t), &machineapi.BootstrapRequest{}) })

	for _, node := range lab.Nodes {
		require.NoError(t, node.WaitFor(deadline(t), (*emulator.Node).EtcdVoter))
	}

	eventually(t, ask)
	first.PowerOff()
	eventually(t, ask)
}

func TestClaim_3_09_DiscoveryLeadsAWorkerToTrustdBeforeBootstrap(t *testing.T) {
	t.Parallel()

	lab := newCluster(t, labcluster.Options{ControlPlanes: 1, Workers: 1,
		LabOptions: emulator.LabOptions{Discovery: true}})
	for _, node := range lab.Nodes {
		applyOwn(t, lab, node.Name())
	}

	c := secure(t, lab.Talosconfig(), lab.Node("worker1"))
	eventually(t, func() error { _, err := c.Version(deadline(t)); return err })
	require.Zero(t, lab.Lab.EtcdClusters())

	eventually(t, func() error {
		member, err := safe.StateGetByID[*cluster.Member](deadline(t), c.COSI, "cp1")
		if err != nil {
			return err
		}

		return until(member.TypedSpec().ControlPlane != nil)
	})

	err := c.Bootstrap(deadline(t), &machineapi.BootstrapRequest{})
	require.Equal(t, codes.Unimplemented, client.StatusCode(err))
}

func TestClaim_2_13_AnAddressCanChangeWithTheConfig(t *testing.T) {
	t.Parallel()

	lab, err := emulator.NewLab(emulator.LabOptions{TimeScale: labcluster.TestScale})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lab.Close()) })

	cluster, err := labcluster.New(t.TempDir(), labcluster.Options{
		Lab: lab, ControlPlanes: 1, Workers: -1,
		Edit: func(o *emulator.NodeOptions) { o.Faults.AddressAfter = lab.Address(77) },
	})
	require.NoError(t, err)
	applyOwn(t, cluster, "cp1")

	node := cluster.Node("cp1")
	installed(t, node)
	require.Equal(t, lab.Address(77), node.Address())
	eventually(t, func() error { _, err := secure(t, cluster.Talosconfig(), node).Version(deadline(t)); return err })
}
