package states_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/test/documents"
)

// subjectOf is the machine whose state is the row's, by role: a third control plane beside two sound ones, or a worker
// beside a sound control plane.
var subjectOf = map[string]string{"control plane": "cp3", "worker": "worker1"}

// The columns of the table, and what is typed for each.
var commands = map[string]string{
	"preflight": "preflight", "apply": "applySequential", "apply in parallel": "applyParallel", "verify": "verify",
	"bootstrap": "bootstrap",
}

// impatient are clocks that run out soon.
var impatient = []string{
	"NODE_REACHABILITY_RETRIES=1", "VERIFICATION_TIMEOUT=20s", "INSTALL_TIMEOUT=20s", "NODE_WAIT=20s", "STAGE_TIMEOUT=60s",
	"DIAL_TIMEOUT=1s",
}

// cell is what one command does with a machine in one state.
type cell struct {
	column string
	code   diagnosis.ExitCode
	// changes are the calls that change a machine: nobody gets any other.
	changes []string
}

// state is a row of the table for one role.
type state struct {
	// talos is the version of Talos that all machines run; empty for the usual one.
	talos string
	// edit is how the subject differs from a machine in maintenance mode when it is switched on; it may make files too.
	edit func(t *testing.T, w *world, machine *emulator.NodeOptions)
	// spoil brings the state about once the machines are up.
	spoil func(t *testing.T, w *world, subject *emulator.Node)
	// heal ends it.
	heal func(t *testing.T, w *world, subject *emulator.Node)
	// cells are typed in this order against one cluster.
	cells []cell
	// healed are the calls that the four commands make afterwards, when each of them ends well.
	healed []string
}

const (
	ok        = diagnosis.ExitOK
	badInput  = diagnosis.ExitBadInput
	preflight = diagnosis.ExitPreflight
	apply     = diagnosis.ExitApply
	verify    = diagnosis.ExitVerify
	bootstrap = diagnosis.ExitBootstrap
)

var none []string

// rows are the states, by role, and their cells.
func rows(role string) map[string]state {
	sent, bootstrapped := []string{subjectOf[role] + " ApplyConfiguration"}, []string{"cp1 Bootstrap"}
	worker := role == "worker"

	// refused is the column bootstrap for a machine of which nobody knows whether it holds etcd: workers don't count.
	refused := cell{"bootstrap", bootstrap, none}
	// silent is the column verify for a machine that does not answer: before there is an etcd, a worker is on its way.
	silent := cell{"verify", verify, none}
	// afterwards are the changes that the healed cluster still needs.
	afterwards := append([]string{"cp1 Bootstrap"}, sent...)

	if worker {
		refused = cell{"bootstrap", ok, bootstrapped}
		silent.code = ok
		afterwards = sent
	}

	stranger := []cell{{"preflight", preflight, none}, {"verify", verify, none}, {"apply", apply, none},
		{"apply in parallel", apply, none}, refused}
	absent := []cell{{"preflight", ok, none}, silent, {"apply", apply, none}, {"apply in parallel", apply, none}, refused}

	unwanted := func(changes []string) []string {
		if worker {
			return none
		}

		return changes
	}

	return map[string]state{
		"in maintenance": {
			cells:  []cell{{"preflight", ok, none}, {"verify", verify, none}, refused, {"apply", ok, sent}},
			healed: unwanted(bootstrapped),
		},
		"in maintenance, Talos 1.12": {
			talos:  "v1.12.1",
			cells:  []cell{{"preflight", ok, none}, {"verify", verify, none}, refused, {"apply", ok, sent}},
			healed: unwanted(bootstrapped),
		},
		"in maintenance, Talos 1.14": {
			talos:  documents.Talos,
			cells:  []cell{{"preflight", ok, none}, {"verify", verify, none}, refused, {"apply", ok, sent}},
			healed: unwanted(bootstrapped),
		},
		"its install finds no disk": {
			talos:  documents.Talos,
			spoil:  withoutItsDisk,
			cells:  []cell{{"preflight", ok, none}, silent, refused, {"apply", ok, none}},
			heal:   corrected,
			healed: afterwards,
		},
		"its install finds no disk, its file is corrected": {
			talos: documents.Talos,
			spoil: func(t *testing.T, w *world, subject *emulator.Node) {
				withoutItsDisk(t, w, subject)
				corrected(t, w, subject)
			},
			cells:  []cell{{"preflight", ok, none}, {"apply in parallel", ok, sent}},
			healed: bootstrapped,
		},
		"in maintenance, in parallel": {
			cells:  []cell{{"apply in parallel", ok, sent}},
			healed: bootstrapped,
		},
		"ours with the same config": {
			edit: configured,
			cells: []cell{
				{"preflight", ok, none}, {"apply", ok, none}, {"apply in parallel", ok, none}, {"verify", ok, none},
				{"bootstrap", ok, bootstrapped},
			},
		},
		"ours with another config": {
			edit:   drifted,
			cells:  []cell{{"preflight", ok, none}, {"verify", ok, none}, {"apply", ok, sent}},
			healed: bootstrapped,
		},
		"ours with another config, bootstrap": {
			edit:  drifted,
			cells: []cell{{"bootstrap", ok, bootstrapped}},
			heal: func(t *testing.T, w *world, _ *emulator.Node) {
				w.ends(t, 0, nil, "applySequential", "-node="+subjectOf[role], "-update")
			},
			healed: none,
		},
		"port refused": {
			spoil:  func(_ *testing.T, _ *world, subject *emulator.Node) { subject.Refuse(true) },
			heal:   func(_ *testing.T, _ *world, subject *emulator.Node) { subject.Refuse(false) },
			cells:  absent,
			healed: afterwards,
		},
		"no answer": {
			spoil:  func(_ *testing.T, _ *world, subject *emulator.Node) { subject.Silence(true) },
			heal:   func(_ *testing.T, _ *world, subject *emulator.Node) { subject.Silence(false) },
			cells:  absent,
			healed: afterwards,
		},
		"foreign CA": {
			edit:   ofAnotherCluster,
			heal:   reset,
			cells:  stranger,
			healed: afterwards,
		},
		"not Talos": {
			edit: impostor,
			heal: func(_ *testing.T, _ *world, subject *emulator.Node) {
				subject.Set(func(f *emulator.Faults) { f.Impostor = emulator.NoImpostor })
			},
			cells:  stranger,
			healed: afterwards,
		},
		"wrong MAC": {
			edit:   withAnotherCard,
			heal:   correctMAC,
			cells:  stranger,
			healed: afterwards,
		},
		"configured with an unknown CA": {
			edit:  configured,
			spoil: func(t *testing.T, w *world, _ *emulator.Node) { hide(t, w.Talosconfig()) },
			heal:  func(t *testing.T, w *world, _ *emulator.Node) { unhide(t, w.Talosconfig()) },
			cells: []cell{
				{"preflight", badInput, none}, {"apply", badInput, none}, {"apply in parallel", badInput, none},
				{"verify", badInput, none},
				{"bootstrap", badInput, none},
			},
			healed: bootstrapped,
		},
	}
}

func TestWhatEachStepDoesWithANodeInEachState(t *testing.T) {
	t.Parallel()

	for role := range subjectOf {
		t.Run(role, func(t *testing.T) {
			t.Parallel()

			for name, row := range rows(role) {
				t.Run(name, func(t *testing.T) {
					t.Parallel()

					row.test(t, role)
				})
			}
		})
	}
}

func (s state) test(t *testing.T, role string) {
	w := s.world(t, role)
	subject := w.Node(subjectOf[role])

	for _, cell := range s.cells {
		t.Run(cell.column, func(t *testing.T) {
			before, files := w.changes(), w.files(t)

			got := w.run(t, impatient, commands[cell.column])
			w.tells(t, got)
			require.Equal(t, int(cell.code), got.Code, got.Stdout+got.Stderr)
			require.ElementsMatch(t, cell.changes, w.since(before))
			require.Equal(t, files, w.files(t), "these steps write no file")
		})
	}

	if s.heal != nil {
		s.heal(t, w, subject)
	}

	before := w.changes()

	for _, column := range []string{"preflight", "apply", "verify", "bootstrap"} {
		t.Run(column+", healed", func(t *testing.T) {
			w.ends(t, 0, nil, commands[column])
		})
	}

	require.ElementsMatch(t, s.healed, w.since(before))
	require.Equal(t, 1, w.Lab.EtcdClusters())
}

// world is a cluster whose machines are up with their configs, and have no etcd yet; all but the subject.
func (s state) world(t *testing.T, role string) *world {
	t.Helper()

	options := labcluster.Options{ControlPlanes: 1, Workers: 1, Endpoint: labcluster.FirstControlPlane,
		TalosVersion: s.talos}
	if role == "control plane" {
		options.ControlPlanes, options.Workers = 3, 0
	}

	w := newWorld(t, options, func(w *world, machine *emulator.NodeOptions) {
		switch {
		case machine.Name != subjectOf[role]:
			configured(t, w, machine)
		case s.edit != nil:
			s.edit(t, w, machine)
		}
	})

	if s.spoil != nil {
		s.spoil(t, w, w.Node(subjectOf[role]))
	}

	return w
}

// configured machines run with their config.
func configured(t *testing.T, w *world, machine *emulator.NodeOptions) {
	t.Helper()

	config, err := w.Config(machine.Name)
	require.NoError(t, err)

	machine.Config = config
}

// drifted machines run with a config that differs from their file.
func drifted(t *testing.T, w *world, machine *emulator.NodeOptions) {
	t.Helper()

	configured(t, w, machine)

	machine.Config = []byte(strings.Replace(string(machine.Config), "machine:\n",
		"machine:\n  sysctls:\n    vm.swappiness: \"10\"\n", 1))
}

// withoutItsDisk machines have a config that installs them unattended, on a disk that they don't have.
func withoutItsDisk(t *testing.T, w *world, subject *emulator.Node) {
	t.Helper()

	w.settings = append(w.settings, "CONFIG_GENERATOR=none")

	inDocuments(t, w, subject.Name(), documents.NoDisk)
	w.ends(t, 0, []string{"SKIP_CHECKS=" + string(diagnosis.InstallDiskAbsent)}, "applySequential",
		"-node="+subject.Name())
	until(t, subject, inStage("booting"))
}

// corrected names the disk that a machine has.
func corrected(t *testing.T, w *world, subject *emulator.Node) {
	t.Helper()
	inDocuments(t, w, subject.Name())
}

// inDocuments writes a machine's config in documents.
func inDocuments(t *testing.T, w *world, name string, edits ...documents.Edit) {
	t.Helper()

	config, err := documents.Config(w.Generated.Options, name, edits...)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(w.ConfigFile(name), config, 0o600))
}

// ofAnotherCluster machines run with the config of another cluster's control plane.
func ofAnotherCluster(t *testing.T, w *world, machine *emulator.NodeOptions) {
	t.Helper()

	bundle, err := clusterfiles.ForeignSecrets()
	require.NoError(t, err)

	other, err := labcluster.New(otherDir(w), labcluster.Options{
		Name: "other", Lab: w.Lab, Off: true, Secrets: bundle, Endpoint: labcluster.FirstControlPlane,
	})
	require.NoError(t, err)

	for _, spec := range other.Generated.Options.Nodes {
		if spec.Declared == machine.Address.String() {
			machine.Config, err = other.Config(spec.Name)
			require.NoError(t, err)
		}
	}
}

// otherDir is where the files of the other cluster are.
func otherDir(w *world) string { return filepath.Join(w.root, "other") }

// reset wipes a machine of another cluster with that cluster's talosconfig, as the program advises.
func reset(t *testing.T, w *world, subject *emulator.Node) {
	t.Helper()

	talosctl, err := client.New(t.Context(),
		client.WithConfigFromFile(filepath.Join(otherDir(w), "clusterconfig", "talosconfig")),
		client.WithEndpoints(subject.Address().String()))
	require.NoError(t, err)

	defer talosctl.Close() //nolint:errcheck // nothing to lose

	require.NoError(t, talosctl.Reset(t.Context(), false, true))
	until(t, subject, inStage("maintenance"))
}

// impostor puts a web server in a machine's place.
func impostor(_ *testing.T, _ *world, machine *emulator.NodeOptions) {
	machine.Faults.Impostor = emulator.HTTPSImpostor
}

// withAnotherCard machines have another network card than the files declare.
func withAnotherCard(_ *testing.T, _ *world, machine *emulator.NodeOptions) {
	machine.Links[0].MAC = otherMAC(machine.Links[0].MAC)
}

func otherMAC(mac string) string { return "52:54:01" + strings.TrimPrefix(mac, "52:54:00") }

// correctMAC makes the files declare the card that the machine has.
func correctMAC(t *testing.T, w *world, subject *emulator.Node) {
	t.Helper()

	has := subject.Options().Links[0].MAC
	declared := "52:54:00" + strings.TrimPrefix(has, "52:54:01")

	for _, path := range []string{w.Dir + "/talconfig.yaml", w.ConfigFile(subject.Name())} {
		replace(t, path, declared, has)
	}
}

func hide(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.Rename(path, path+".hidden"))
}

func unhide(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.Rename(path+".hidden", path))
}
