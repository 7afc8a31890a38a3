package states_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

func (w *world) talconfig() string { return filepath.Join(w.Dir, "talconfig.yaml") }

// mistake is bad input: what is wrong, and which commands find it. Commands that need nothing of what is wrong may go
// on.
type mistake struct {
	make func(t *testing.T, w *world)
	env  []string
	// atStart mistakes are found by every command, before anything else; the others by those that send something, and by
	// preflight.
	atStart bool
	// kinship mistakes, files of different clusters, are found by every command but status, which shows what it can.
	kinship bool
}

// everyCommand are those that work on a cluster, askingFirst those among them that judge all files.
var (
	everyCommand = []string{"talos", "preflight", "applySequential", "applyParallel", "verify", "bootstrap", "kubeconfig",
		"status"}
	askingFirst = []string{"talos", "preflight", "applySequential", "applyParallel"}
)

func mistakes() map[string]mistake {
	talconfig := func(change func(t *testing.T, w *world)) mistake { return mistake{make: change, atStart: true} }
	write := func(text string) mistake {
		return talconfig(func(t *testing.T, w *world) {
			t.Helper()
			require.NoError(t, os.WriteFile(w.talconfig(), []byte(text), 0o600))
		})
	}
	changed := func(old, new string) mistake {
		return talconfig(func(t *testing.T, w *world) {
			t.Helper()
			replace(t, w.talconfig(), old, new)
		})
	}
	config := func(change func(t *testing.T, w *world)) mistake { return mistake{make: change} }
	setting := func(env ...string) mistake {
		return mistake{make: func(*testing.T, *world) {}, env: env, atStart: true}
	}

	return map[string]mistake{
		"missing talconfig": talconfig(func(t *testing.T, w *world) { hide(t, w.talconfig()) }),
		"empty talconfig":   write(""),
		"no nodes":          write("clusterName: lab\nendpoint: https://192.0.2.10:6443\nnodes: []\n"),
		"unset variable":    changed("talosVersion: ${TALOS_VERSION}", "talosVersion: ${TALOS_RELEASE}"),
		"YAML error":        changed("nodes:\n", "nodes: [\n"),
		"misspelt key":      changed("clusterName:", "clusterNmae:"),
		"wrong type":        changed("controlPlane: true", "controlPlane: yes please"),
		"two nodes with one address": talconfig(func(t *testing.T, w *world) {
			replace(t, w.talconfig(), w.Lab.Address(12).String()+`"`, w.Lab.Address(11).String()+`"`)
		}),

		"setting of the wrong kind":  setting("VERIFICATION_TIMEOUT=soon"),
		"setting out of its words":   setting("APPLY_MODE=random"),
		"setting names no node":      setting("NODE=cp7"),
		"bootstrap node is a worker": setting("BOOTSTRAP_NODE=worker1"),

		"machine config of the wrong role": config(func(t *testing.T, w *world) {
			data, err := w.Config("cp1")
			require.NoError(t, err)

			text := strings.NewReplacer("cp1", "worker1", w.Lab.Address(11).String()+"/",
				w.Lab.Address(12).String()+"/").Replace(string(data))
			require.NoError(t, os.WriteFile(w.ConfigFile("worker1"), []byte(text), 0o600))
		}),
		"machine config that fails validation": config(func(t *testing.T, w *world) {
			edit(t, w.ConfigFile("worker1"),
				func(text string) string { return strings.Replace(text, "  install:\n", "  unused:\n", 1) })
		}),
		"machine config that is no YAML": config(func(t *testing.T, w *world) {
			edit(t, w.ConfigFile("worker1"),
				func(text string) string { return strings.Replace(text, "machine:\n", "machine: [\n", 1) })
		}),
		"missing machine config": config(func(t *testing.T, w *world) { hide(t, w.ConfigFile("worker1")) }),
		"talosconfig of another cluster": {kinship: true, make: func(t *testing.T, w *world) {
			t.Helper()

			bundle, err := clusterfiles.ForeignSecrets()
			require.NoError(t, err)

			other, err := labcluster.New(t.TempDir(), labcluster.Options{Name: "other", Lab: w.Lab, Off: true, Secrets: bundle})
			require.NoError(t, err)

			data, err := os.ReadFile(other.Talosconfig())
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(w.Talosconfig(), data, 0o600))
		}},
	}
}

func TestBadInputGetsAClearErrorAndChangesNothing(t *testing.T) {
	t.Parallel()

	for name, mistake := range mistakes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := newWorld(t, labcluster.Options{ControlPlanes: 1, Workers: 1}, nil)
			mistake.make(t, w)

			files, commands := w.files(t), askingFirst

			switch {
			case mistake.atStart:
				commands = everyCommand
			case mistake.kinship:
				commands = everyCommand[:len(everyCommand)-1]
			}

			for _, command := range commands {
				got := w.ends(t, 2, mistake.env, command)
				w.tellsAs(t, command, got)
			}

			require.Empty(t, w.changes())
			require.Equal(t, files, w.files(t))
		})
	}
}
