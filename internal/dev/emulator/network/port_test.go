package network_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/network"
)

// Whoever stops a server waits for its handshakes, which wait for their connections.
func TestNobodyWaitsForAConnectionOfAPortThatIsOver(t *testing.T) {
	t.Parallel()

	for name, end := range map[string]func(*network.Port, *network.Wire){
		"frozen before": func(port *network.Port, wire *network.Wire) {
			wire.Freeze()
			port.Abandon()
		},
		"frozen after": func(port *network.Port, wire *network.Wire) {
			port.Abandon()
			wire.Freeze()
		},
		"frozen in its handshake": func(port *network.Port, wire *network.Wire) {
			wire.Shake(false)
			wire.Freeze()
			port.LetGo()
		},
		"a handshake that begins after": func(port *network.Port, wire *network.Wire) {
			port.LetGo()
			wire.Shake(false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			wiring, at := network.NewWiring(), netip.MustParseAddrPort("192.0.2.11:50000")
			wiring.ShareAddress(netip.MustParseAddr("127.0.0.1"))

			nic := network.NewNIC(wiring)
			require.NoError(t, nic.SetAddresses(at.Addr()))
			t.Cleanup(nic.Close)

			port, err := nic.Listen(at.Port())
			require.NoError(t, err)

			client, err := wiring.Dial(t.Context(), at)
			require.NoError(t, err)
			t.Cleanup(func() { client.Close() }) //nolint:errcheck // the test is over

			accepted, err := port.Accept()
			require.NoError(t, err)

			wire, ok := accepted.(*network.Wire)
			require.True(t, ok)

			ended := make(chan error, 1)
			end(port, wire)

			go func() {
				_, err := wire.Read(make([]byte, 1))
				ended <- err
			}()

			select {
			case err := <-ended:
				require.Error(t, err)
			case <-time.After(time.Minute):
				require.Fail(t, "still waiting")
			}
		})
	}
}

// As by a child process that has a copy of the socket for a moment more.
func TestAnAddressThatIsJustBeingLetGoOfIsWaitedFor(t *testing.T) {
	t.Parallel()

	wiring, at := network.NewWiring(), netip.MustParseAddrPort("127.99.1.1:50001")

	other, err := net.Listen("tcp", at.String())
	require.NoError(t, err)
	time.AfterFunc(50*time.Millisecond, func() { other.Close() }) //nolint:errcheck // it closes

	nic := network.NewNIC(wiring)
	require.NoError(t, nic.SetAddresses(at.Addr()))
	t.Cleanup(nic.Close)

	_, err = nic.Listen(at.Port())
	require.NoError(t, err)
	require.Error(t, wiring.Reserve(at), "it is in use for good")
}
