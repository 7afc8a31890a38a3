package emulator_test

import (
	"context"
	"crypto/tls"
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// newCluster makes a cluster that ends with the test.
func newCluster(t *testing.T, options labcluster.Options) *labcluster.Cluster {
	t.Helper()

	cluster, err := labcluster.New(t.TempDir(), options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })

	return cluster
}

func deadline(t *testing.T) context.Context {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), labcluster.Deadline)
	t.Cleanup(cancel)

	return ctx
}

// eager makes a client try a closed port again at once; otherwise gRPC waits for a second.
func eager() client.OptionFunc {
	return client.WithGRPCDialOptions(grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond},
		MinConnectTimeout: labcluster.Deadline,
	}))
}

// insecure is a client as for maintenance mode.
func insecure(t *testing.T, node *emulator.Node) *client.Client {
	t.Helper()

	c, err := client.New(t.Context(),
		client.WithTLSConfig(&tls.Config{InsecureSkipVerify: true}), //nolint:gosec // maintenance mode has no CA to check
		client.WithEndpoints(node.Endpoint()), eager())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // the test is over

	return c
}

// secure is a client with a cluster's talosconfig.
func secure(t *testing.T, talosconfig string, node *emulator.Node) *client.Client {
	t.Helper()

	config, err := clientconfig.Open(talosconfig)
	require.NoError(t, err)

	c, err := client.New(t.Context(), client.WithConfig(config), client.WithEndpoints(node.Endpoint()), eager())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // the test is over

	return c
}

func waitStage(t *testing.T, node *emulator.Node, stage string) {
	t.Helper()

	require.NoError(t, node.WaitFor(deadline(t), func(n *emulator.Node) bool { return n.Stage() == stage }))
}

// applyOwn sends a machine its own config over the insecure API.
func applyOwn(t *testing.T, cluster *labcluster.Cluster, name string) *machineapi.ApplyConfigurationResponse {
	t.Helper()

	node := cluster.Node(name)
	waitStage(t, node, "maintenance")

	data, err := cluster.Config(name)
	require.NoError(t, err)

	reply, err := insecure(t, node).ApplyConfiguration(deadline(t), &machineapi.ApplyConfigurationRequest{
		Data: data, Mode: machineapi.ApplyConfigurationRequest_AUTO,
	})
	require.NoError(t, err)

	return reply
}

// installed waits until a machine runs from its disk, as far as it gets without a bootstrap.
func installed(t *testing.T, node *emulator.Node) {
	t.Helper()

	require.NoError(t, node.WaitFor(deadline(t), func(n *emulator.Node) bool {
		return n.Boots() > 1 && (n.Stage() == "booting" || n.Stage() == "running")
	}))
}

// eventually retries a call until it works.
func eventually(t *testing.T, call func() error) {
	t.Helper()

	ctx := deadline(t)

	for {
		err := call()
		if err == nil {
			return
		}

		select {
		case <-ctx.Done():
			require.NoError(t, err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func TestSixMachinesBecomeACluster(t *testing.T) {
	t.Parallel()

	for name, options := range map[string]labcluster.Options{
		"Talos 1.12":             {TalosVersion: talos112},
		"Talos 1.13":             {},
		"Talos 1.14, older form": {TalosVersion: talos114},
		"Talos 1.14, documents":  {TalosVersion: talos114, Contract: "v1.14"},
		"Talos 1.14, documents, names of the disk": {TalosVersion: talos114, Contract: "v1.14", AutoHostnames: true},
		"Talos 1.14, flannel":                      {TalosVersion: talos114, Contract: "v1.14", CNI: "flannel"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			becomeACluster(t, options)
		})
	}
}

// becomeACluster brings six machines up by themselves.
func becomeACluster(t *testing.T, options labcluster.Options) {
	t.Helper()

	cluster := newCluster(t, options)

	for _, node := range cluster.Nodes {
		applyOwn(t, cluster, node.Name())
	}

	first := cluster.Node("cp1")
	installed(t, first)

	api := secure(t, cluster.Talosconfig(), first)

	eventually(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()

		return api.Bootstrap(ctx, &machineapi.BootstrapRequest{})
	})

	for _, node := range cluster.Nodes {
		waitStage(t, node, "running")
	}

	for _, name := range []string{"cp1", "cp2", "cp3"} {
		require.NoError(t, cluster.Node(name).WaitFor(deadline(t), (*emulator.Node).EtcdVoter))
	}

	require.Equal(t, 1, cluster.Lab.EtcdClusters())

	members, err := api.EtcdMemberList(deadline(t), &machineapi.EtcdMemberListRequest{QueryLocal: true})
	require.NoError(t, err)
	require.Len(t, members.GetMessages()[0].GetMembers(), 3)

	kubeconfig, err := api.Kubeconfig(deadline(t))
	require.NoError(t, err)
	require.Contains(t, string(kubeconfig), "admin@lab")

	cluster.Lab.InstallCNI()

	for _, node := range cluster.Nodes {
		require.NoError(t, node.WaitFor(deadline(t), (*emulator.Node).Ready))
	}

	for _, node := range cluster.Nodes {
		took := map[string]int{}

		for _, call := range node.MutatingCalls() {
			if call.Succeeded() {
				took[call.Name()]++
			}
		}

		want := map[string]int{"ApplyConfiguration": 1}
		if node == first {
			want["Bootstrap"] = 1
		}

		require.Equal(t, want, took, node.Name())
	}
}
