package discover_test

import (
	"context"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/discover"
	"github.com/talos-mage/talos-mage/internal/talos"
	"github.com/talos-mage/talos-mage/internal/test/emulatortest"
)

func TestMain(m *testing.M) { os.Exit(emulatortest.Run(m, 8)) }

// patience is a limit of the wall clock that nothing comes near.
const patience = 2 * time.Minute

// newLab switches machines on, and waits until they answer.
func newLab(t *testing.T, options labcluster.Options) *labcluster.Cluster {
	t.Helper()

	cluster, err := labcluster.New(t.TempDir(), options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })

	for _, node := range cluster.Nodes {
		require.Eventually(t, func() bool {
			return node.Impostor() != emulator.NoImpostor ||
				new(talos.Dialer).Probe(t.Context(), node.Endpoint()).State == talos.Maintenance
		}, patience, time.Millisecond)
	}

	return cluster
}

// subnet is where machines of a lab answer at addresses of a network's; the others drop what is sent to them.
type subnet map[string]*emulator.Node

func (s subnet) dial(ctx context.Context, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}

	node := s[host]
	if node == nil {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}

	return new(net.Dialer).DialContext(ctx, "tcp", node.Endpoint())
}

// machines searches networks of the subnet.
func (s subnet) machines(t *testing.T, networks ...string) []discover.Machine {
	t.Helper()

	parsed, err := discover.ParseNetworks(networks, false)
	require.NoError(t, err)

	found, err := discover.Search{Networks: parsed, Dialer: &talos.Dialer{Dial: s.dial, Timeout: patience},
		Timeout: 100 * time.Millisecond, Rate: 10000}.Machines(t.Context())
	require.NoError(t, err)

	return found
}

func addresses(texts ...string) []netip.Addr {
	var parsed []netip.Addr
	for _, text := range texts {
		parsed = append(parsed, netip.MustParseAddr(text))
	}

	return parsed
}

func TestFourMachinesAreFoundAmongAThousandSilentAddresses(t *testing.T) {
	t.Parallel()

	lab := newLab(t, labcluster.Options{ControlPlanes: 1, Workers: 3})
	found := subnet{"10.0.0.1": lab.Nodes[0], "10.0.1.17": lab.Nodes[1], "10.0.2.200": lab.Nodes[2],
		"10.0.3.254": lab.Nodes[3]}.machines(t, "10.0.0.0/22")

	require.Len(t, found, 4)

	for i, address := range addresses("10.0.0.1", "10.0.1.17", "10.0.2.200", "10.0.3.254") {
		require.Equal(t, []netip.Addr{address}, found[i].Addresses)
		require.Equal(t, []string{lab.Generated.Options.Nodes[i].MAC}, found[i].MACs)
	}
}

func TestOneMachineAtSeveralAddressesIsOneRow(t *testing.T) {
	t.Parallel()

	lab := newLab(t, labcluster.Options{ControlPlanes: 1, Workers: 1})
	found := subnet{"10.0.0.7": lab.Nodes[0], "10.0.0.5": lab.Nodes[1], "10.0.0.9": lab.Nodes[0],
		"fd00::7": lab.Nodes[0]}.machines(t, "10.0.0.0/28", "fd00::/124")

	require.Len(t, found, 2)
	require.Equal(t, addresses("10.0.0.5"), found[0].Addresses)
	require.Equal(t, addresses("10.0.0.7", "10.0.0.9", "fd00::7"), found[1].Addresses)
}

func TestEachReleaseTellsInMaintenanceWhatItIs(t *testing.T) {
	t.Parallel()

	for _, version := range []string{"v1.12.1", "v1.13.9", "v1.14.1"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()

			lab := newLab(t, labcluster.Options{ControlPlanes: 1, Workers: -1, TalosVersion: version})
			found := subnet{"10.0.0.5": lab.Nodes[0]}.machines(t, "10.0.0.0/28")

			require.Len(t, found, 1)
			machine := found[0]
			require.NoError(t, machine.Err)
			require.Equal(t, talos.Maintenance, machine.State)
			require.Equal(t, version, machine.Version)
			require.Equal(t, []string{lab.Generated.Options.Nodes[0].MAC}, machine.MACs)
			require.NotEmpty(t, machine.UUID)
			require.NotEmpty(t, machine.Fingerprint)
			require.NotEmpty(t, machine.Disks)
			require.NotEmpty(t, machine.Links)
		})
	}
}

func TestWhatIsNotTalosIsNamed(t *testing.T) {
	t.Parallel()

	for impostor, why := range map[emulator.Impostor]string{
		emulator.HTTPSImpostor:     "HTTPS server",
		emulator.SSHImpostor:       "an SSH server",
		emulator.PlainHTTPImpostor: "a plain HTTP server",
		emulator.HangUpImpostor:    "the connection was closed without an answer",
	} {
		lab := newLab(t, labcluster.Options{ControlPlanes: 1, Workers: -1, Edit: func(node *emulator.NodeOptions) {
			node.Faults.Impostor = impostor
		}})
		found := subnet{"10.0.0.5": lab.Nodes[0]}.machines(t, "10.0.0.0/28")
		require.Len(t, found, 1)
		require.ErrorContains(t, found[0].Err, why)
		require.Empty(t, found[0].MACs)
	}
}

func TestASearchEndsWithItsContext(t *testing.T) {
	t.Parallel()

	parsed, err := discover.ParseNetworks([]string{"10.0.0.0/22"}, false)
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	_, err = discover.Search{Networks: parsed, Dialer: &talos.Dialer{Dial: subnet{}.dial}, Timeout: patience,
		Progress: nil}.Machines(cancelledSoon(ctx, cancel))
	require.ErrorIs(t, err, context.Canceled)
}

func cancelledSoon(ctx context.Context, cancel context.CancelFunc) context.Context {
	time.AfterFunc(20*time.Millisecond, cancel)
	return ctx
}
