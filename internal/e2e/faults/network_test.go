package faults_test

import (
	"testing"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/emulator"
)

// The only control plane of most clusters here.
const cp1 = "cp1"

// set makes a fault of the first control plane from the start, and calm takes all of them away.
func set(change func(*emulator.Faults)) func(*testing.T, *world) {
	return func(_ *testing.T, w *world) { w.Node(cp1).Set(change) }
}

func calm(_ *testing.T, w *world) { w.heal(cp1) }

// soon are limits of waits for machines that do not answer.
var soon = []string{"NODE_WAIT=20s", "INSTALL_TIMEOUT=20s"}

// networkFaults are what can be wrong on the way to a node.
func networkFaults() []fault {
	return []fault{
		{
			title: "the API port is closed", class: "connection refused", knob: "Refuse",
			inject: set(func(f *emulator.Faults) { f.Refuse = true }), settings: soon,
			code: diagnosis.ExitApply, id: diagnosis.NodeRefused, node: cp1, seen: "port 50000 refused: installing or booting",
			heal: calm,
		},
		{
			title: "nothing answers", class: "no answer", knob: "Silence",
			inject: set(func(f *emulator.Faults) { f.Silence = true }), settings: soon,
			code: diagnosis.ExitApply, id: diagnosis.NodeSilent, node: cp1, seen: "no answer: in its self-test, rebooting, off, or at another address",
			heal: calm,
		},
	}
}
