package steps_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// discovered is what a search in a lab finds.
func (l *lab) discovered(t *testing.T, environ ...string) *steps.Discovery {
	t.Helper()

	step := &steps.Discover{}
	l.session(t, environ...).succeeds(t, step)
	require.NotNil(t, step.Found)

	return step.Found
}

// ready waits until all machines are in maintenance and answer.
func (l *lab) ready(t *testing.T) {
	t.Helper()

	for _, node := range l.Nodes {
		require.Eventually(t, func() bool {
			return new(talos.Dialer).Probe(t.Context(), node.Endpoint()).State == talos.Maintenance
		}, patience, time.Millisecond)
	}
}

func TestMachinesAreFoundInTheNetworksOfTheInventory(t *testing.T) {
	t.Parallel()

	lab := newLab(t, 1, 2)
	lab.ready(t)

	found := lab.discovered(t)
	require.Len(t, found.Machines, 3)

	for i, machine := range found.Machines {
		node := lab.Nodes[i]
		require.Equal(t, node.Address(), machine.Address())
		require.Equal(t, talos.Maintenance, machine.State)
		require.Equal(t, "v1.13.9", machine.Version)
		require.Len(t, machine.MACs, 1)
		require.NotEmpty(t, machine.UUID)
		require.NoError(t, machine.Err)
	}
}
