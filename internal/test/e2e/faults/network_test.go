package faults_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/talos"
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

// impatient are limits of retries of what never works.
var impatient = []string{"MAX_RETRIES=1", "APPLY_TIMEOUT=1s", "DIAL_TIMEOUT=1s"}

// networkFaults are what can be wrong on the way to a node.
func networkFaults() []fault {
	silent := func(title, class, knob string, id diagnosis.ID, seen string, change func(*emulator.Faults)) fault {
		return fault{
			title: title, class: class, knob: knob,
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.inMaintenance(t, cp1)
				w.Node(cp1).Set(change)

				w.isTaken(t, cp1, w.Node(cp1).Faults().Impostor)
			},
			settings: soon,
			code:     diagnosis.ExitApply, id: id, node: cp1, seen: seen,
			heal: calm,
		}
	}

	stranger := func(title string, knob string, kind emulator.Impostor, seen string) fault {
		return fault{
			title: title, class: "something else than Talos", knob: "Impostor: " + knob,
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.Node(cp1).Set(func(f *emulator.Faults) { f.Impostor = kind })
				w.isTaken(t, cp1, kind)
			},
			code: diagnosis.ExitPreflight, id: diagnosis.NotTalos, node: cp1, seen: seen,
			heal: func(t *testing.T, w *world) {
				t.Helper()
				w.heal(cp1)
				eventually(t, func() bool {
					return (&talos.Dialer{}).Probe(t.Context(), w.Node(cp1).Endpoint()).State == talos.Maintenance
				}, "Talos has its port back")
			},
		}
	}

	return []fault{
		silent("the API port is closed", "connection refused", "Refuse", diagnosis.NodeRefused,
			"port 50000 refused: installing or booting",
			func(f *emulator.Faults) { f.Refuse = true }),
		silent("nothing answers", "no answer", "Silence", diagnosis.NodeSilent,
			"no answer: in its self-test, rebooting, off, or at another address",
			func(f *emulator.Faults) { f.Silence = true }),
		silent("the port accepts connections and says nothing", "no answer", "Impostor: MuteImpostor", diagnosis.NodeSilent,
			"no answer: in its self-test, rebooting, off, or at another address",
			func(f *emulator.Faults) { f.Impostor = emulator.MuteImpostor }),
		silent("the port accepts connections and closes them", "connection refused", "Impostor: HangUpImpostor",
			diagnosis.NodeRefused,
			"the connection was closed without an answer", func(f *emulator.Faults) { f.Impostor = emulator.HangUpImpostor }),
		stranger("a plain HTTPS server is at the address", "HTTPSImpostor", emulator.HTTPSImpostor,
			"an HTTPS server that asks for no client certificate"),
		stranger("an SSH server is at the address", "SSHImpostor", emulator.SSHImpostor, "an SSH server"),
		stranger("a plain HTTP server is at the address", "PlainHTTPImpostor", emulator.PlainHTTPImpostor,
			"a plain HTTP server"),
		{
			title: "a connection goes half open in the middle of a read", class: "a call hangs", knob: "Calls: Freeze",
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.inMaintenance(t, cp1)
				w.fault(cp1, emulator.CallFault{Method: "Get", Do: emulator.Freeze, Times: 1})
			},
		},
		{
			title: "every connection goes half open at its first read", class: "every call hangs", knob: "Calls: Freeze",
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.inMaintenance(t, cp1)
				w.fault(cp1, emulator.CallFault{Method: "*", Do: emulator.Freeze})
			},
			settings: impatient,
			code:     diagnosis.ExitApply, id: diagnosis.ApplyGaveUp, node: cp1, seen: "no answer in time",
			heal: calm,
		},
		{
			title: "large packets are lost: a machine config stalls after 16 KB", class: "a call hangs", knob: "StallAfter",
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.swell(t, cp1)
				w.inMaintenance(t, cp1)
				w.Node(cp1).Set(func(f *emulator.Faults) { f.StallAfter = 16 << 10 })
			},
			settings: impatient,
			code:     diagnosis.ExitApply, id: diagnosis.ApplyGaveUp, node: cp1,
			seen: "the config was sent, but no reply came and the node is unchanged",
			heal: calm,
		},
	}
}

// isTaken waits until something listens at a machine's API port in Talos' place. A connection does not tell who took
// it: while the port changes hands that may still be Talos.
func (w *world) isTaken(t *testing.T, name string, by emulator.Impostor) {
	t.Helper()
	until(t, w.Node(name), func(node *emulator.Node) bool { return node.Impostor() == by })
}

// listens waits until something answers at a machine's API port.
func (w *world) listens(t *testing.T, name string) {
	t.Helper()
	eventually(t, func() bool {
		conn, err := dial(t, w.Node(name).Endpoint())
		if err == nil {
			conn.Close()
		}

		return err == nil
	})
}

// swell makes a machine's config longer than 16 KB, without a change of what it says.
func (w *world) swell(t *testing.T, name string) {
	t.Helper()

	data, err := w.Config(name)
	require.NoError(t, err)

	comment := strings.Repeat("# a machine config has more comments than most files\n", 400)
	require.NoError(t, os.WriteFile(w.ConfigFile(name), append(data, comment...), 0o600))
}
