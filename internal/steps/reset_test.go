package steps_test

import (
	"context"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
)

// answers has somebody at the terminal type this, and gives what they were asked.
func (s *session) answers(typed string) *string {
	asked := new(string)
	s.Ask = func(_ context.Context, question string) (string, error) {
		*asked += question

		return typed, nil
	}

	return asked
}

// resets are the resets that a node was asked for.
func resets(node *emulator.Node) []*machine.ResetRequest {
	var requests []*machine.ResetRequest

	for _, call := range node.Calls() {
		if call.Reset != nil {
			requests = append(requests, call.Reset)
		}
	}

	return requests
}

func TestAWorkerIsResetOnceItsNameWasTyped(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 2)
	l.up(t)

	// A dry run tells what would be lost, and nobody is asked.
	s := l.session(t, "NODE=worker1", "DRY_RUN=true")
	s.fails(t, diagnosis.ExitDryRun, diagnosis.WouldChange, steps.Reset{})
	require.Regexp(t, `would lose STATE \(\S+ MB on /dev/vda\) and EPHEMERAL \(\S+ GB on /dev/vda\)`,
		s.detail("reset", "worker1"))

	// Without a terminal, or with another name, nothing happens.
	l.session(t, "NODE=worker1").fails(t, diagnosis.ExitBadInput, diagnosis.NotAgreed, steps.Reset{})

	s = l.session(t, "NODE=worker1")
	s.answers("worker2")
	s.fails(t, diagnosis.ExitBadInput, diagnosis.NotAgreed, steps.Reset{})
	require.Empty(t, resets(l.Node("worker1")))

	s = l.session(t, "NODE=worker1")
	asked := s.answers("worker1")
	s.succeeds(t, steps.Reset{})
	require.Contains(t, *asked, "worker1 loses STATE (")
	require.Contains(t, *asked, "Type worker1 to go on: ")
	require.Equal(t, report.Applied, s.status("reset", "worker1"))
	require.Equal(t, "maintenance", l.Node("worker1").Stage())
	require.Equal(t, "running", l.Node("worker2").Stage())

	request := resets(l.Node("worker1"))
	require.Len(t, request, 1)
	require.True(t, request[0].GetReboot() && request[0].GetGraceful())
	require.Len(t, request[0].GetSystemPartitionsToWipe(), 2)

	// Run again, it has nothing to do, and nobody is asked.
	s = l.session(t, "NODE=worker1").succeeds(t, steps.Reset{})
	require.Equal(t, report.Skipped, s.status("reset", "worker1"))
}

func TestAClusterIsResetWorkersFirstAndItsLastControlPlaneNotGracefully(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 2)
	l.up(t)

	s := l.session(t, "-cluster=lab")
	asked := s.answers("lab")
	s.succeeds(t, steps.Reset{})
	require.Contains(t, *asked, "No member of etcd is left")

	for _, name := range []string{"worker1", "worker2", "cp1", "cp2", "cp3"} {
		require.Equal(t, "maintenance", l.Node(name).Stage(), name)

		requests := resets(l.Node(name))
		require.Len(t, requests, 1, name)
		require.Equal(t, name != "cp3", requests[0].GetGraceful(), name)
	}
}
