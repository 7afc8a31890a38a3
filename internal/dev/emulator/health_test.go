package emulator_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	clusterapi "github.com/siderolabs/talos/pkg/machinery/api/cluster"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// long is a time in which every healthy cluster is found to be so, in node time.
const long = 1000 * time.Hour

// health asks a control plane for the cluster's health.
func health(t *testing.T, c *client.Client, limit time.Duration, about *clusterapi.ClusterInfo) ([]string, error) {
	t.Helper()

	said, err := frames(c.ClusterHealthCheck(deadline(t), limit, about))

	var lines []string
	for _, one := range said {
		lines = append(lines, one.GetMessage())
	}

	return lines, err
}

// healthUntil asks for the cluster's health until a line is told, and returns the lines so far.
func healthUntil(t *testing.T, c *client.Client, about *clusterapi.ClusterInfo, line string) []string {
	t.Helper()

	ctx, cancel := context.WithCancel(deadline(t))
	defer cancel()

	stream, err := c.ClusterHealthCheck(ctx, long, about)
	require.NoError(t, err)

	var lines []string

	for {
		progress, err := stream.Recv()
		require.NoError(t, err, "after %s", lines)

		lines = append(lines, progress.GetMessage())
		if strings.Contains(progress.GetMessage(), line) {
			return lines
		}
	}
}

// ends are the lines of checks that ended.
func ends(lines []string) []string {
	var found []string

	for _, line := range lines {
		if strings.HasSuffix(line, ": OK") || strings.HasSuffix(line, ": SKIP") {
			found = append(found, strings.TrimPrefix(line, "waiting for "))
		}
	}

	return found
}

// checkedCluster is a cluster of two that discovery knows.
func checkedCluster(t *testing.T, options labcluster.Options) (*labcluster.Cluster, *client.Client) {
	t.Helper()

	options.ControlPlanes, options.Workers, options.Endpoint = 1, 1, labcluster.FirstControlPlane
	options.LabOptions.Discovery = true
	edit := options.Edit
	options.Edit = func(node *emulator.NodeOptions) {
		node.Installed = true

		if edit != nil {
			edit(node)
		}
	}

	cluster := newCluster(t, options)
	for _, node := range cluster.Nodes {
		applyOwn(t, cluster, node.Name())
	}

	c := secure(t, cluster.Talosconfig(), cluster.Nodes[0])
	eventually(t, func() error { return c.Bootstrap(deadline(t), &machineapi.BootstrapRequest{}) })
	require.NoError(t, cluster.Nodes[0].WaitFor(deadline(t), (*emulator.Node).EtcdVoter))

	return cluster, c
}

func TestClaim_6_02_AControlPlaneRunsTheClustersHealthChecks(t *testing.T) {
	t.Parallel()

	for cni, skipped := range map[string]string{"none": "SKIP", "flannel": "OK"} {
		t.Run(cni, func(t *testing.T) {
			t.Parallel()

			cluster, c := checkedCluster(t, labcluster.Options{CNI: cni})

			lines, err := health(t, c, long, &clusterapi.ClusterInfo{})
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf("discovered nodes: [%q %q]", cluster.Nodes[0].Address(), cluster.Nodes[1].Address()),
				lines[0])
			require.Equal(t, "waiting for etcd to be healthy: ...", lines[1])
			require.Equal(t, []string{
				"etcd to be healthy: OK", "etcd members to be consistent across nodes: OK",
				"etcd members to be control plane nodes: OK",
				"apid to be ready: OK", "all nodes memory sizes: OK", "all nodes disk sizes: OK", "no diagnostics: OK",
				"kubelet to be healthy: OK",
				"all nodes to finish boot sequence: OK", "all k8s nodes to report: OK",
				"all control plane static pods to be running: OK",
				"all control plane components to be ready: OK", "all k8s nodes to report ready: " + skipped,
				"kube-proxy to report ready: OK",
				"coredns to report ready: " + skipped, "all k8s nodes to report schedulable: OK",
			}, ends(lines))
		})
	}
}

func TestClaim_6_03_TheCheckedNodesAreNamedDiscoveredOrThoseOfKubernetes(t *testing.T) {
	t.Parallel()

	cluster, c := checkedCluster(t, labcluster.Options{CNI: "flannel"})
	controlPlane, worker := cluster.Nodes[0].Address().String(), cluster.Nodes[1].Address().String()

	lines, err := health(t, c, long,
		&clusterapi.ClusterInfo{ControlPlaneNodes: []string{controlPlane}, WorkerNodes: []string{worker}})
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("discovered nodes: [%q %q]", controlPlane, worker), lines[0])

	_, err = health(t, c, long, &clusterapi.ClusterInfo{ControlPlaneNodes: []string{"cp1"}})
	require.ErrorContains(t, err, `ParseAddr("cp1"): unable to parse IP`)

	// Whom nobody named is one too many.
	healthUntil(t, c, &clusterapi.ClusterInfo{ControlPlaneNodes: []string{controlPlane}},
		fmt.Sprintf("waiting for all k8s nodes to report: unexpected nodes with IPs [%q]", worker))

	_, err = health(t, secure(t, cluster.Talosconfig(), cluster.Nodes[1]), long, nil)
	require.Equal(t, codes.Unimplemented, client.StatusCode(err))
	require.ErrorContains(t, err, "cluster health check is only available on control plane nodes")

	// Without discovery Kubernetes tells which nodes there are.
	off := false
	data := edited(t, cluster, "cp1", func(config *v1alpha1.Config) {
		config.ClusterConfig.ClusterDiscoveryConfig = &v1alpha1.ClusterDiscoveryConfig{DiscoveryEnabled: &off}
	})

	undiscovered := newCluster(t, labcluster.Options{
		ControlPlanes: 1, Workers: -1, Endpoint: labcluster.FirstControlPlane, CNI: "flannel",
		Edit: func(node *emulator.NodeOptions) { node.Installed = true },
	})
	data = []byte(strings.ReplaceAll(string(data), controlPlane, undiscovered.Nodes[0].Address().String()))
	waitStage(t, undiscovered.Nodes[0], "maintenance")

	_, err = apply(t, insecure(t, undiscovered.Nodes[0]), data, machineapi.ApplyConfigurationRequest_AUTO)
	require.NoError(t, err)

	c = secure(t, undiscovered.Talosconfig(), undiscovered.Nodes[0])
	eventually(t, func() error { return c.Bootstrap(deadline(t), &machineapi.BootstrapRequest{}) })
	require.NoError(t, undiscovered.Nodes[0].WaitFor(deadline(t), (*emulator.Node).Ready))

	lines, err = health(t, c, long, nil)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("discovered nodes: [%q]", undiscovered.Nodes[0].Address()), lines[0])
}

func TestClaim_6_04_AFailingCheckTellsWhyUntilTheTimeIsOver(t *testing.T) {
	t.Parallel()

	cluster, c := checkedCluster(t, labcluster.Options{CNI: "flannel"})
	worker := cluster.Nodes[1]
	require.NoError(t, worker.WaitFor(deadline(t), (*emulator.Node).Ready))

	kubeconfig, err := c.Kubeconfig(deadline(t))
	require.NoError(t, err)

	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	require.NoError(t, err)

	kube, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)

	_, err = kube.CoreV1().Nodes().Patch(deadline(t), "worker1", types.StrategicMergePatchType,
		[]byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{})
	require.NoError(t, err)

	lines := healthUntil(t, c, nil,
		"waiting for all k8s nodes to report schedulable: some nodes are not schedulable: [worker1]")
	require.Equal(t, "waiting for all k8s nodes to report schedulable: ...", lines[len(lines)-2])

	_, err = health(t, c, time.Second, nil)
	require.Equal(t, codes.DeadlineExceeded, client.StatusCode(err))
	require.ErrorContains(t, err, "context deadline exceeded")

	worker.Refuse(true)

	lines = healthUntil(t, c, &clusterapi.ClusterInfo{
		ControlPlaneNodes: []string{cluster.Nodes[0].Address().String()}, WorkerNodes: []string{worker.Address().String()},
	}, "connection refused")
	require.True(t, strings.HasPrefix(lines[len(lines)-1], "waiting for apid to be ready: "), lines)
	require.Len(t, ends(lines), 3)
}

func TestClaim_6_05_TheChecksAreMadeWithTheCallersRoles(t *testing.T) {
	t.Parallel()

	cluster, _ := checkedCluster(t, labcluster.Options{CNI: "flannel"})
	require.NoError(t, cluster.Nodes[1].WaitFor(deadline(t), (*emulator.Node).Ready))

	reader := signed(t, cluster, cluster.Nodes[0], x509.Organization(string(role.Reader)))

	// A kubeconfig is for administrators.
	lines := healthUntil(t, reader, nil,
		"waiting for all k8s nodes to report: rpc error: code = PermissionDenied desc = not authorized")
	require.Equal(t, "all nodes to finish boot sequence: OK", ends(lines)[len(ends(lines))-1])
}
