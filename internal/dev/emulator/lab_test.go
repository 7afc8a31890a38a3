package emulator_test

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

func newBareLab(t *testing.T, options emulator.LabOptions) *emulator.Lab {
	t.Helper()

	lab, err := emulator.NewLab(options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lab.Close()) })

	return lab
}

func TestALabHasAnAddressForEachOfItsMachines(t *testing.T) {
	t.Parallel()

	for _, options := range []emulator.LabOptions{{Machines: 1000}, {Machines: 1000, SingleAddress: true}, {},
		{SingleAddress: true}} {
		lab := newBareLab(t, options)
		seen := map[netip.Addr]bool{lab.Address(10): true}

		for number := range max(options.Machines, 240) {
			address := lab.MachineAddress(number)

			require.True(t, lab.Prefix().Contains(address), "%s is not in %s", address, lab.Prefix())
			require.False(t, seen[address], "%s is there twice", address)

			seen[address] = true
		}
	}
}

func TestLabsShareNoAddress(t *testing.T) {
	t.Parallel()

	var prefixes []netip.Prefix

	for range 20 {
		lab := newBareLab(t, emulator.LabOptions{Machines: 1000})

		for _, other := range prefixes {
			require.False(t, other.Overlaps(lab.Prefix()), "%s and %s", other, lab.Prefix())
		}

		prefixes = append(prefixes, lab.Prefix())
	}
}

func TestALabRefusesMoreMachinesThanItHasAddressesFor(t *testing.T) {
	t.Parallel()

	_, err := emulator.NewLab(emulator.LabOptions{Machines: 100_000})
	require.EqualError(t, err, "make lab: it has room for 61440 machines, not for 100000")
}

func TestAMachineThatCannotListenSaysWhere(t *testing.T) {
	t.Parallel()

	lab := newBareLab(t, emulator.LabOptions{})

	taken, err := net.Listen("tcp", netip.AddrPortFrom(lab.Address(20), emulator.APIPort).String())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, taken.Close()) })

	_, err = lab.Start(emulator.NodeOptions{Name: "cp1", Address: lab.Address(20)})
	require.ErrorContains(t, err, "start node cp1: open "+taken.Addr().String()+": the port is in use on that address")

	missing := netip.MustParseAddr("192.0.2.7")
	lab.Map(missing, missing)

	_, err = lab.Start(emulator.NodeOptions{Name: "cp2", Address: missing})
	require.ErrorContains(t, err, "start node cp2: open 192.0.2.7:50000: this system does not have the address")
}

func TestAMachineCanTakeThePlaceOfOneThatWasRemoved(t *testing.T) {
	t.Parallel()

	lab := newBareLab(t, emulator.LabOptions{TimeScale: labcluster.TestScale})
	options := emulator.NodeOptions{Name: "cp1", Address: lab.MachineAddress(0)}

	removed, err := lab.Start(options)
	require.NoError(t, err)

	_, err = lab.Start(options)
	require.ErrorContains(t, err, "the name is taken")

	lab.Remove(removed)
	require.Nil(t, lab.Node("cp1"))

	options.Links = []emulator.Link{{Name: "eth0", MAC: "52:54:00:00:00:99"}}
	replacement, err := lab.Start(options)
	require.NoError(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), labcluster.Deadline)
	defer cancel()

	require.NoError(t, replacement.WaitFor(ctx, func(node *emulator.Node) bool { return node.Stage() == "maintenance" }))
	require.Equal(t, removed.Endpoint(), replacement.Endpoint())
}
