package states_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// stop is a command that is stopped in the middle of its work.
type stop struct {
	// edit and spoil make the command wait for a machine; heal ends that.
	edit  func(t *testing.T, w *world, machine *emulator.NodeOptions)
	spoil func(w *world)
	heal  func(w *world)
	// inside reports whether the command waits.
	inside func(w *world) bool
	// whole are the changes over both runs.
	whole []string
}

// asked reports whether the machine was called in the given way.
func asked(node *emulator.Node, method string) bool {
	for _, call := range node.Calls() {
		if call.Name() == method {
			return true
		}
	}

	return false
}

func stops() map[string]stop {
	refuse := func(refuse bool) func(*world) { return func(w *world) { w.Node("cp2").Refuse(refuse) } }

	return map[string]stop{
		"applySequential": {
			spoil:  refuse(true),
			heal:   refuse(false),
			inside: func(w *world) bool { return len(w.changes()) == 1 },
			whole:  []string{"cp1 ApplyConfiguration", "cp2 ApplyConfiguration"},
		},
		"applyParallel": {
			spoil:  refuse(true),
			heal:   refuse(false),
			inside: func(w *world) bool { return len(w.changes()) == 1 },
			whole:  []string{"cp1 ApplyConfiguration", "cp2 ApplyConfiguration"},
		},
		"verify": {
			edit: func(t *testing.T, w *world, machine *emulator.NodeOptions) {
				if machine.Name == "cp1" {
					configured(t, w, machine)
				}
			},
			heal:   func(*world) {},
			inside: func(w *world) bool { return asked(w.Node("cp2"), "Get") },
			whole:  []string{},
		},
		"bootstrap": {
			edit: func(t *testing.T, w *world, machine *emulator.NodeOptions) {
				configured(t, w, machine)

				machine.Faults.EtcdUnhealthy = true
			},
			heal: func(w *world) {
				for _, node := range w.Lab.Nodes() {
					node.Set(func(f *emulator.Faults) { f.EtcdUnhealthy = false })
				}
			},
			inside: func(w *world) bool { return len(w.changes()) == 1 },
			whole:  []string{"cp1 Bootstrap"},
		},
	}
}

var signals = map[os.Signal]int{os.Interrupt: 130, syscall.SIGTERM: 143}

func TestAStoppedCommandTellsHowToGoOnAndTheNextRunDoes(t *testing.T) {
	t.Parallel()

	for command, stop := range stops() {
		for signal, code := range signals {
			t.Run(fmt.Sprintf("%s, %s", command, signal), func(t *testing.T) {
				t.Parallel()

				w := newWorld(t, labcluster.Options{ControlPlanes: 2, Endpoint: labcluster.FirstControlPlane},
					func(w *world, machine *emulator.NodeOptions) {
						if stop.edit != nil {
							stop.edit(t, w, machine)
						}
					})

				if stop.spoil != nil {
					stop.spoil(w)
				}

				files := w.files(t)
				process := w.start(t, nil, command)

				eventually(t, func() bool { return stop.inside(w) })
				require.NoError(t, process.Signal(signal))

				got := ended(t, process)
				require.Equal(t, code, got.Code, got.Stdout+got.Stderr)
				require.Contains(t, got.Stderr, "Next: talos-mage "+command+" continues from here")
				require.Equal(t, files, w.files(t))

				stop.heal(w)

				if command == "verify" {
					w.ends(t, 0, nil, "applySequential")
					stop.whole = []string{"cp2 ApplyConfiguration"}
				}

				w.ends(t, 0, nil, command)
				require.ElementsMatch(t, stop.whole, w.changes())
			})
		}
	}
}

func TestAStoppedBringUpGoesOn(t *testing.T) {
	t.Parallel()

	moments := map[string]func(w *world) bool{
		"after the first config": func(w *world) bool { return len(w.changes()) == 1 },
		"after the last config":  func(w *world) bool { return len(w.changes()) == 4 },
		"after Bootstrap":        func(w *world) bool { return len(w.changes()) == 5 },
	}

	for moment, inside := range moments {
		for signal, code := range signals {
			t.Run(fmt.Sprintf("%s, %s", moment, signal), func(t *testing.T) {
				t.Parallel()

				w := newWorld(t, labcluster.Options{ControlPlanes: 3, Workers: 1}, nil)
				process := w.start(t, nil, "talos")

				eventually(t, func() bool { return inside(w) })
				require.NoError(t, process.Signal(signal))

				got := ended(t, process)
				require.Equal(t, code, got.Code, got.Stdout+got.Stderr)
				require.Contains(t, got.Stderr, "Next: talos-mage talos continues from here")

				w.ends(t, 0, nil, "talos")
				require.ElementsMatch(t, eachOnce("cp1", "cp2", "cp3", "worker1"), w.changes())
				require.Equal(t, 1, w.Lab.EtcdClusters())
			})
		}
	}
}

func TestTheLockKeepsASecondCommandAway(t *testing.T) {
	t.Parallel()

	w := newWorld(t, labcluster.Options{ControlPlanes: 2}, nil)
	w.Node("cp2").Refuse(true)

	first := w.start(t, nil, "applySequential")

	eventually(t, func() bool { return len(w.changes()) == 1 })

	changes := w.changes()

	for _, command := range []string{"applySequential", "bootstrap", "kubeconfig", "talos"} {
		got := w.ends(t, 3, nil, command)
		require.Contains(t, got.Stderr, fmt.Sprintf("process %d is changing this cluster", first.PID()))
	}

	require.Empty(t, w.since(changes))

	// What only looks is let in.
	w.ends(t, 0, nil, "status")

	// The lock dies with its process, however that dies.
	require.NoError(t, first.Signal(syscall.SIGKILL))
	ended(t, first)
	w.Node("cp2").Refuse(false)
	w.ends(t, 0, nil, "applySequential")
}
