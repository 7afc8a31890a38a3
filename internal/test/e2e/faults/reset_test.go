package faults_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// resetFaults are what can go wrong with a reset of a node of a running cluster. The next run brings it up again.
func resetFaults() []fault {
	worker := []string{"-node=" + worker1, "-yes=true", "NODE_WAIT=60s"}

	ended := func(title, knob string, change func(*emulator.Faults), id diagnosis.ID, says, seen string) fault {
		return fault{
			title: title, class: "a reset does not end in maintenance", knob: knob, cluster: withWorker,
			inject: func(t *testing.T, w *world) { t.Helper(); w.runs(t); w.Node(worker1).Set(change) },
			run:    "reset", settings: worker,
			code: diagnosis.ExitApply, id: id, node: worker1, says: says, seen: seen,
			heal: func(_ *testing.T, w *world) { w.heal(worker1); w.Node(worker1).PowerOn() },
		}
	}

	lost := func(title string, call emulator.CallFault, sent int) fault {
		call.Method, call.Times = "Reset", 1

		return fault{
			title: title, class: "Reset without a reply", knob: "Calls", cluster: withWorker,
			inject: func(t *testing.T, w *world) { t.Helper(); w.runs(t); w.fault(worker1, call) },
			run:    "reset", settings: worker, seen: "in maintenance, lost STATE", node: worker1,
			also: func(t *testing.T, w *world, _ outcome) {
				t.Helper()
				require.Equal(t, sent, w.count(worker1, "Reset"))
				require.Equal(t, "maintenance", w.Node(worker1).Stage())
			},
		}
	}

	return afterBoot([]fault{
		lost("the reply to a reset is lost before it took effect",
			emulator.CallFault{Do: emulator.Cut, When: emulator.BeforeEffect}, 2),
		lost("the reply to a reset is lost after it took effect",
			emulator.CallFault{Do: emulator.Cut, When: emulator.AfterEffect}, 1),
		ended("a node refuses to be reset", "Calls: Fail Reset", func(f *emulator.Faults) {
			f.Calls = []emulator.CallFault{{Method: "Reset", Do: emulator.Fail, Code: codes.Unknown, Text: "no such volume"}}
		}, diagnosis.ResetFailed, "no such volume", "the node refused to be reset"),
		ended("a node comes back from its reset with its config", "Reset: ResetWipeFails",
			func(f *emulator.Faults) { f.Reset = emulator.ResetWipeFails },
			diagnosis.ResetWithoutEffect, "it rebooted and came back with its config: nothing was wiped", "came back"),
		ended("a node never comes back from its reset", "Reset: ResetPowersOff",
			func(f *emulator.Faults) { f.Reset = emulator.ResetPowersOff },
			diagnosis.ResetNoReturn, "stopped by an ISO or PXE that comes before its disk", "it has been silent"),
		{
			title: "a node that is to be reset is off", class: "no answer", knob: "PowerOff", cluster: withWorker,
			inject: func(t *testing.T, w *world) { t.Helper(); w.runs(t); w.Node(worker1).PowerOff() },
			run:    "reset", settings: append([]string{"VERIFICATION_TIMEOUT=10s"}, worker...),
			code: diagnosis.ExitApply, id: diagnosis.NotReset, node: worker1, says: "it does not answer, and keeps what it has",
			seen: "does not answer", repeats: true,
			heal: func(_ *testing.T, w *world) { w.Node(worker1).PowerOn() },
		},
		{
			title: "a reset would cost etcd its quorum", class: "a member is missing", knob: "PowerOff", cluster: three,
			inject: func(t *testing.T, w *world) { t.Helper(); w.runs(t); w.Node(cp3).PowerOff() },
			run:    "reset", settings: []string{"-node=" + cp1, "-yes=true"},
			code: diagnosis.ExitBootstrap, id: diagnosis.ResetHeldBack, says: "without cp1 etcd would lose its quorum",
			seen: "etcd would lose its quorum", repeats: true,
			heal: func(_ *testing.T, w *world) { w.Node(cp3).PowerOn() },
		},
		{
			title: "etcd goes down while the whole cluster is reset", class: "etcd without a quorum", knob: "PowerOff",
			cluster: labcluster.Options{ControlPlanes: 2},
			inject:  func(t *testing.T, w *world) { t.Helper(); w.runs(t); w.Node(cp2).PowerOff() },
			run:     "reset", settings: []string{"-cluster=lab", "-yes=true", "VERIFICATION_TIMEOUT=10s"},
			code: diagnosis.ExitApply, id: diagnosis.NotReset, node: cp2, says: "it does not answer, and keeps what it has",
			seen: "keeps what it has",
			also: func(t *testing.T, w *world, _ outcome) {
				t.Helper()
				require.Equal(t, "maintenance", w.Node(cp1).Stage())
			},
			heal: func(t *testing.T, w *world) {
				t.Helper()
				w.Node(cp2).PowerOn()
				w.ends(t, diagnosis.ExitOK, "reset", "-cluster=lab", "-yes=true")
			},
		},
	})
}

// runs brings the cluster up.
func (w *world) runs(t *testing.T) {
	t.Helper()

	w.ends(t, diagnosis.ExitOK, "talos")
}
