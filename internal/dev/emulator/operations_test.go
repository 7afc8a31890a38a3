package emulator_test

import (
	"io"
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// What an operator does once a cluster is up is played whatever the machines run.
func TestOperationsArePlayedInEachRelease(t *testing.T) {
	t.Parallel()

	for _, version := range []string{"v1.12.1", emulator.DefaultTalosVersion, talos114} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()

			cluster := newCluster(t, labcluster.Options{ControlPlanes: 3, Workers: -1, TalosVersion: version,
				Endpoint: labcluster.FirstControlPlane})

			for _, node := range cluster.Nodes {
				waitStage(t, node, "maintenance")
			}

			bringUp(t, cluster)

			api := secure(t, cluster.Talosconfig(), cluster.Node("cp1"))
			eventually(t, func() error { return api.Bootstrap(deadline(t), &machineapi.BootstrapRequest{}) })

			for _, node := range cluster.Nodes {
				require.NoError(t, node.WaitFor(deadline(t), (*emulator.Node).EtcdVoter))
			}

			stream, err := api.EtcdSnapshot(deadline(t), &machineapi.EtcdSnapshotRequest{})
			require.NoError(t, err)

			snapshot, err := io.ReadAll(stream)
			require.NoError(t, err)
			require.NotEmpty(t, snapshot)

			// A member whose machine is off is taken out.
			gone := cluster.Node("cp3")
			id := gone.EtcdMemberID()

			gone.PowerOff()
			eventually(t, func() error {
				return api.EtcdRemoveMemberByID(deadline(t), &machineapi.EtcdRemoveMemberByIDRequest{MemberId: id})
			})

			reply, err := api.EtcdMemberList(deadline(t), &machineapi.EtcdMemberListRequest{QueryLocal: true})
			require.NoError(t, err)
			require.Len(t, reply.GetMessages()[0].GetMembers(), 2)

			// A pull that fails leaves the machine as it was.
			second := cluster.Node("cp2")
			second.Set(func(f *emulator.Faults) { f.Install, f.InstallTimes = emulator.InstallImageSlow, 1 })

			other := secure(t, cluster.Talosconfig(), second)
			boots := second.Boots()

			_, err = upgrade(t, other, client.WithUpgradeImage(newer), client.WithUpgradePreserve(true))
			require.Equal(t, codes.DeadlineExceeded, client.StatusCode(err))
			require.Equal(t, boots, second.Boots())

			// A reset without a reboot ends with the machine off.
			_, err = other.MachineClient.Reset(deadline(t), &machineapi.ResetRequest{
				SystemPartitionsToWipe: partitions("STATE", "EPHEMERAL")})
			require.NoError(t, err)
			waitStage(t, second, "off")
			require.Zero(t, second.EtcdClusterID())
		})
	}
}
