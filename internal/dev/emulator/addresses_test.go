package emulator_test

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

func TestAMachineAnswersAtEveryStaticAddressOfItsConfig(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, labcluster.Options{})
	waitStage(t, node, "maintenance")

	first, second := node.Address(), cluster.Lab.Address(77)

	data, err := cluster.Config(node.Name())
	require.NoError(t, err)

	own := "- address: " + netip.PrefixFrom(first, cluster.Lab.Prefix().Bits()).String()
	require.Equal(t, 1, strings.Count(string(data), own))

	both := strings.Replace(string(data), own, own+"\n  - address: "+second.String()+"/24", 1)
	_, err = apply(t, insecure(t, node), []byte(both), machineapi.ApplyConfigurationRequest_AUTO)
	require.NoError(t, err)
	installed(t, node)

	for _, address := range []netip.Addr{first, second} {
		eventually(t, func() error {
			conn, err := net.Dial("tcp", netip.AddrPortFrom(address, emulator.APIPort).String())
			if err != nil {
				return err
			}

			return conn.Close()
		})
	}

	shown, err := safe.StateGetByID[*network.NodeAddress](deadline(t), secure(t, cluster.Talosconfig(), node).COSI,
		network.NodeAddressCurrentID)
	require.NoError(t, err)
	require.Equal(t, []netip.Addr{first, second}, shown.TypedSpec().IPs())
}
