package steps_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/clock"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/kube"
	"github.com/talos-mage/talos-mage/internal/kube/drain"
	"github.com/talos-mage/talos-mage/internal/steps"
)

const (
	upgradeStep   = "upgrade"
	pullCall      = "/machine.ImageService/Pull"
	lifecycleCall = "/machine.LifecycleService/Upgrade"
	atOnceCall    = "/machine.MachineService/Upgrade"
	rebootCall    = "Reboot"
)

// toUpgrade is a cluster that is up, and whose files declare another release by now.
func toUpgrade(t *testing.T, controlPlanes, workers int, to string, change ...func(*labcluster.Options)) *lab {
	t.Helper()

	l := newLab(t, controlPlanes, workers, change...)
	l.up(t)
	l.declare(t, l.Generated.Options.TalosVersion, to)

	return l
}

// versions are what the machines run, in order.
func (l *lab) versions() string {
	var versions []string
	for _, node := range l.Nodes {
		versions = append(versions, node.TalosVersion())
	}

	return strings.Join(versions, " ")
}

// kubernetesAPI is a client of the cluster's API, with the kubeconfig that the bring-up wrote.
func (l *lab) kubernetesAPI(t *testing.T) *kube.Client {
	t.Helper()

	kubeconfig, err := os.ReadFile(filepath.Join(l.folder, "kubeconfig"))
	require.NoError(t, err)

	client, err := kube.Open(kubeconfig, kube.Options{})
	require.NoError(t, err)

	return client
}

// cordon keeps pods off a node, as somebody else does with kubectl.
func (l *lab) cordon(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	require.NoError(t, l.kubernetesAPI(t).Merge(ctx, "/api/v1/nodes/"+name,
		map[string]any{"spec": map[string]any{"unschedulable": true}}))
}

// drain leaves a node as a run does that is killed after it drained it.
func (l *lab) drain(t *testing.T, name string) {
	t.Helper()

	drainer := drain.Drainer{Client: l.kubernetesAPI(t), Clock: clock.Scaled(l.Scale)}
	require.NoError(t, drainer.Drain(t.Context(), name, func(drain.Progress) {}))
}

// upgradeAside writes another system to a machine's disk, as somebody else does with talosctl.
func (l *lab) upgradeAside(t *testing.T, name, image string) {
	t.Helper()

	memory := &common.ContainerdInstance{Driver: common.ContainerDriver_CONTAINERD,
		Namespace: common.ContainerdNamespace_NS_SYSTEM}
	talos := l.client(t, name)

	pulled, err := talos.ImageClient.Pull(t.Context(),
		&machine.ImageServicePullRequest{Containerd: memory, ImageRef: image})
	require.NoError(t, err)

	for err == nil {
		_, err = pulled.Recv()
	}

	require.ErrorIs(t, err, io.EOF)

	written, err := talos.LifecycleClient.Upgrade(t.Context(), &machine.LifecycleServiceUpgradeRequest{
		Containerd: memory, Source: &machine.InstallArtifactsSource{ImageName: image}})
	require.NoError(t, err)

	for err == nil {
		_, err = written.Recv()
	}

	require.ErrorIs(t, err, io.EOF)
}

// cordons says whose the cordons of the nodes are.
func (l *lab) cordons(t *testing.T) map[string]drain.Owner {
	t.Helper()

	client := l.kubernetesAPI(t)

	nodes, err := client.Nodes(t.Context())
	require.NoError(t, err)

	cordons := map[string]drain.Owner{}

	for _, node := range nodes {
		owner, err := drain.Drainer{Client: client}.Cordoned(t.Context(), node.Name)
		require.NoError(t, err)

		if owner != drain.Nobody {
			cordons[node.Name] = owner
		}
	}

	return cordons
}

// isUpgraded runs the step once more, after whatever stopped it, and looks whether all came out well.
func (l *lab) isUpgraded(t *testing.T, version string) {
	t.Helper()

	l.session(t, "-yes=true").succeeds(t, steps.Upgrade{})
	require.Equal(t, strings.TrimSpace(strings.Repeat(version+" ", len(l.Nodes))), l.versions())
	require.Empty(t, l.cordons(t))
	require.Equal(t, 1, l.Lab.EtcdClusters())
}
