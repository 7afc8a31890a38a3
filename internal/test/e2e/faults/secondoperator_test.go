package faults_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// secondOperatorFaults are those of two operators who run the same recipe at the same time.
func secondOperatorFaults() []fault {
	return []fault{takenLock(), twoMachines()}
}

// takenLock is a second run on the same machine: the first one waits for a node meanwhile.
func takenLock() fault {
	first := make(chan outcome, 1)

	return fault{
		title: "a second operator runs the same recipe on the same machine", class: "the lock is taken",
		knob: "another run, same TMPDIR",
		inject: func(t *testing.T, w *world) {
			t.Helper()
			w.inMaintenance(t, cp1)
			w.Node(cp1).Refuse(true)

			go func() { first <- w.run(t, "talos", "INSTALL_TIMEOUT=10h") }()

			eventually(t, func() bool {
				locks, err := filepath.Glob(filepath.Join(w.root, "talos-mage-*.lock"))

				return err == nil && slices.ContainsFunc(locks, isHeld)
			}, "the first run holds the lock")
		},
		code: diagnosis.ExitPreflight, id: diagnosis.LockTaken, seen: "is changing this cluster from this machine",
		heal: func(t *testing.T, w *world) {
			t.Helper()
			w.Node(cp1).Refuse(false)

			got := <-first
			require.Equal(t, diagnosis.ExitOK, got.code, got.told())
		},
	}
}

// twoMachines are two runs that no lock keeps apart. Both send everything; the first Bootstrap that comes is held up,
// so that the second one meets a node that another one is bootstrapping.
func twoMachines() fault {
	return fault{
		title: "a second operator runs the same recipe on another machine", class: "a node that changes by itself",
		knob: "another run, another TMPDIR", cluster: three,
		inject: func(t *testing.T, w *world) {
			t.Helper()
			w.inMaintenance(t, cp1, cp2, cp3)
			w.fault(cp1, emulator.CallFault{Method: "Bootstrap", Do: emulator.Hang, Times: 1})
		},
		during: func(t *testing.T, w *world) {
			t.Helper()
			w.ends(t, diagnosis.ExitOK, "talos", "TMPDIR="+t.TempDir(), "KUBECONFIG="+filepath.Join(t.TempDir(), "kubeconfig"))
		},
		also: func(t *testing.T, w *world, got outcome) {
			t.Helper()
			require.Equal(t, 1, w.Lab.EtcdClusters(), got.told())
		},
	}
}

// Nothing holds anybody up here: then a second Bootstrap may stop the etcd of the first, which is recognised and heals
// with a reboot.
func TestTwoOperatorsOnTwoMachinesMakeOneEtcd(t *testing.T) {
	t.Parallel()

	w := newWorld(t, three, nil)
	w.inMaintenance(t, cp1, cp2, cp3)

	before := w.remember()
	ends := make(chan outcome, 2)

	for range cap(ends) {
		go func() {
			ends <- w.run(t, "talos", "TMPDIR="+t.TempDir(), "KUBECONFIG="+filepath.Join(t.TempDir(), "kubeconfig"))
		}()
	}

	for range cap(ends) {
		got := <-ends
		w.keepsPromises(t, before, got)

		if got.code == diagnosis.ExitOK {
			continue
		}

		stopped := got.failures()[0]
		require.Equal(t, said{id: diagnosis.EtcdStopped, node: cp1, cause: stopped.cause}, stopped, got.told())
		w.Node(cp1).PowerOff()
		w.Node(cp1).PowerOn()
	}

	w.isWhole(t, w.ends(t, diagnosis.ExitOK, "talos"))
}

// isHeld reports whether somebody holds a lock: its file is there a moment before.
func isHeld(path string) bool {
	lock := flock.New(path)
	taken, err := lock.TryLock()

	if taken {
		lock.Unlock() //nolint:errcheck // it was held for a moment
	}

	return err == nil && !taken
}
