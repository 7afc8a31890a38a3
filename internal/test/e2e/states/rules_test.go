package states_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/secrets"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/test/e2e/program"
)

// hurried are the settings of commands that meet machines which do not answer: waits for those end soon, all others are
// long enough.
var hurried = []string{"NODE_REACHABILITY_RETRIES=1", "NODE_WAIT=20s", "DIAL_TIMEOUT=1s"}

// broughtUp is a cluster that has everything.
func broughtUp(t *testing.T, options labcluster.Options) *world {
	t.Helper()

	w := newWorld(t, options, nil)
	w.ends(t, 0, nil, "talos")

	return w
}

// eachOnce are the changes of a whole bring-up of these machines: a config for each, and one Bootstrap, on the first.
func eachOnce(machines ...string) []string {
	changes := []string{"cp1 Bootstrap"}
	for _, name := range machines {
		changes = append(changes, name+" ApplyConfiguration")
	}

	return changes
}

// voters counts the machines that are full members of an etcd with quorum.
func (w *world) voters() int {
	count := 0

	for _, node := range w.Lab.Nodes() {
		if node.EtcdVoter() {
			count++
		}
	}

	return count
}

func TestASecondRunHasNothingToDo(t *testing.T) {
	t.Parallel()

	w := broughtUp(t, labcluster.Options{Workers: 1})
	changes, files := w.changes(), w.files(t)
	require.ElementsMatch(t, eachOnce("cp1", "cp2", "cp3", "worker1"), changes)

	got := w.ends(t, 0, nil, "talos")
	w.tells(t, got)
	require.Empty(t, w.since(changes))
	require.Equal(t, files, w.files(t))
}

func TestAWorkerThatIsOffNeverHoldsUpTheCluster(t *testing.T) {
	t.Parallel()

	w := newWorld(t, labcluster.Options{ControlPlanes: 3, Workers: 2}, nil)
	w.Node("worker2").PowerOff()

	w.tells(t, w.ends(t, 4, hurried, "talos"))
	require.ElementsMatch(t, eachOnce("cp1", "cp2", "cp3", "worker1"), w.changes())
	require.Equal(t, 3, w.voters())
	require.FileExists(t, w.kubeconfig())

	w.Node("worker2").PowerOn()

	w.ends(t, 0, nil, "talos")
	require.ElementsMatch(t, eachOnce("cp1", "cp2", "cp3", "worker1", "worker2"), w.changes())
}

func TestAWorkerWhoseInstallFailsNeverHoldsUpTheCluster(t *testing.T) {
	t.Parallel()

	w := newWorld(t, labcluster.Options{ControlPlanes: 1, Workers: 2}, func(_ *world, machine *emulator.NodeOptions) {
		if machine.Name == "worker1" {
			machine.Faults = emulator.Faults{Install: emulator.InstallImagePull, InstallTimes: 1}
		}
	})

	got := w.ends(t, 5, nil, "talos")
	require.Contains(t, got.Stderr, "worker1")
	require.Contains(t, got.Stderr, "the install failed")
	require.ElementsMatch(t, eachOnce("cp1", "worker1", "worker2"), w.changes())

	w.ends(t, 0, nil, "talos")
	require.ElementsMatch(t, append(eachOnce("cp1", "worker1", "worker2"), "worker1 ApplyConfiguration"), w.changes())
}

func TestAWorkerBehindAVIPIsNotWaitedForBeforeBootstrap(t *testing.T) {
	t.Parallel()

	w := newWorld(t, labcluster.Options{ControlPlanes: 1, Workers: 1}, nil)
	w.ends(t, 0, nil, "applySequential")

	// -noWait does not wait for the control plane's install either.
	until(t, w.Node("cp1"), func(node *emulator.Node) bool { return node.Boots() == 2 })
	settled(t, w.Node("cp1"))

	// The worker installs, and afterwards waits for an endpoint that answers after bootstrap only. Whoever asks again is
	// told so.
	for _, command := range [][]string{{"applySequential"}, {"applyParallel"}, {"applySequential", "-noWait"}} {
		got := w.ends(t, 0, nil, command...)
		require.Regexp(t, `joining\s+`+command[0]+`\s+worker1 .*port refused, and this run sent it no config`,
			got.Stdout)
	}

	require.ElementsMatch(t, sentTo("cp1", "worker1"), w.changes())

	w.ends(t, 0, nil, "talos")
	require.ElementsMatch(t, eachOnce("cp1", "worker1"), w.changes())
}

func TestAWorkerThatBootsLateIsServedAfterBootstrap(t *testing.T) {
	t.Parallel()

	w := newWorld(t, labcluster.Options{ControlPlanes: 1, Workers: 2}, nil)
	w.Node("worker1").Refuse(true)

	process := w.start(t, nil, "talos")

	eventually(t, func() bool { return slices.Contains(w.changes(), "cp1 Bootstrap") })
	w.Node("worker1").Refuse(false)

	got := ended(t, process)
	require.Equal(t, 0, got.Code, got.Stdout+got.Stderr)
	require.ElementsMatch(t, eachOnce("cp1", "worker1", "worker2"), w.changes())
}

func TestAFailedControlPlaneEndsTheRecipeBeforeBootstrap(t *testing.T) {
	t.Parallel()

	w := newWorld(t, labcluster.Options{ControlPlanes: 3, Workers: 1}, nil)
	w.Node("cp3").PowerOff()

	w.tells(t, w.ends(t, 4, hurried, "talos"))
	require.ElementsMatch(t, []string{"cp1 ApplyConfiguration", "cp2 ApplyConfiguration", "worker1 ApplyConfiguration"},
		w.changes())
	require.Zero(t, w.Lab.EtcdClusters())
	require.NoFileExists(t, w.kubeconfig())

	w.Node("cp3").PowerOn()

	w.ends(t, 0, nil, "talos")
	require.ElementsMatch(t, eachOnce("cp1", "cp2", "cp3", "worker1"), w.changes())
	require.Equal(t, 1, w.Lab.EtcdClusters())
}

func TestAFailedControlPlaneDoesNotEndTheRecipeOfAClusterThatHasAnEtcd(t *testing.T) {
	t.Parallel()

	w := newWorld(t, labcluster.Options{ControlPlanes: 3, Workers: 1}, nil)
	w.Node("cp3").PowerOff()

	got := w.ends(t, 4, hurried, "talos", "-assumeEmpty=cp3")
	require.Contains(t, got.Stderr, "etcd works with 2 of 3")
	require.ElementsMatch(t, eachOnce("cp1", "cp2", "worker1"), w.changes())
	require.Equal(t, 2, w.voters())

	changes, files := w.changes(), w.files(t)

	w.tells(t, w.ends(t, 4, hurried, "talos"))
	require.Empty(t, w.since(changes))
	require.Equal(t, files, w.files(t))

	w.Node("cp3").PowerOn()

	w.ends(t, 0, nil, "talos")
	require.ElementsMatch(t, []string{"cp3 ApplyConfiguration"}, w.since(changes))
	require.Equal(t, 3, w.voters())
	require.Equal(t, 1, w.Lab.EtcdClusters())
}

// sysctls is a change of a config that takes effect at once, environ one that needs a reboot.
func sysctls(text string) string {
	return strings.Replace(text, "machine:\n", "machine:\n  sysctls:\n    vm.swappiness: \"10\"\n", 1)
}

func environ(text string) string {
	return strings.Replace(text, "machine:\n", "machine:\n  env:\n    GRPC_GO_LOG_VERBOSITY_LEVEL: \"99\"\n", 1)
}

func TestDriftOfAClusterThatIsUp(t *testing.T) {
	t.Parallel()

	w := broughtUp(t, labcluster.Options{Workers: 1})
	for _, name := range []string{"cp1", "cp3", "worker1"} {
		edit(t, w.ConfigFile(name), sysctls)
	}

	start := w.changes()

	t.Run("is left alone and shown", func(t *testing.T) {
		for _, command := range []string{"applySequential", "applyParallel", "talos"} {
			got := w.ends(t, 0, nil, command)
			require.Contains(t, got.Stdout, "3 nodes differ from")
			require.Contains(t, got.Stdout, "vm.swappiness")
			require.Contains(t, got.Stdout, "next: talos-mage applySequential -node=worker1 -update")
		}

		w.tells(t, w.ends(t, 0, nil, "applySequential"))
		require.Empty(t, w.since(start))
	})

	t.Run("shows in a dry run", func(t *testing.T) {
		w.tells(t, w.ends(t, 8, nil, "applySequential", "-dryRun"))

		got := w.ends(t, 8, nil, "applySequential", "-dryRun", "-node=cp1")
		require.Contains(t, got.Stderr, "Next: talos-mage applySequential -node=cp1 -update")
		require.Empty(t, w.since(start))
	})

	t.Run("is not touched while etcd is not healthy", func(t *testing.T) {
		w.Node("cp2").PowerOff()
		w.tells(t, w.ends(t, 4, hurried, "applySequential", "-node=worker1,cp1", "-update"))
		require.Empty(t, w.since(start))

		w.Node("cp2").PowerOn()
		eventually(t, func() bool { return w.voters() == 3 })
	})

	t.Run("ends with -update, one node at a time and control planes last", func(t *testing.T) {
		w.tells(t, w.ends(t, 0, nil, "applyParallel", "-update", "-parallel=4"))

		require.Equal(t, []string{"worker1 ApplyConfiguration", "cp1 ApplyConfiguration", "cp3 ApplyConfiguration"},
			w.inOrder()[len(start):])

		got := w.ends(t, 0, nil, "applySequential")
		require.Contains(t, got.Stdout, "nothing to do")
	})
}

// Whoever edits what is declared, and renders nothing, is told so wherever the cluster looks done.
func TestMachineConfigsThatNoLongerFitWhatIsDeclared(t *testing.T) {
	t.Parallel()

	w := newWorld(t, labcluster.Options{ControlPlanes: 1, Workers: 1}, nil)

	plain, err := secrets.Encode(w.Generated.Options.Secrets)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(w.Dir, "talsecret.yaml"), plain, 0o600))

	w.ends(t, 0, nil, "config:generate")
	edit(t, filepath.Join(w.Dir, "talconfig.yaml"), func(text string) string {
		return text + "worker:\n  nodeLabels:\n    rack: b\n"
	})
	require.Contains(t, w.ends(t, 0, nil, "audit").Stdout, "TM015")
	require.NotContains(t, w.ends(t, 0, nil, "status").Stdout, "TM015", "the recipe renders them anew by itself")
	w.ends(t, 0, nil, "talos")

	for _, command := range []string{"audit", "status", "talos"} {
		require.NotContains(t, w.ends(t, 0, nil, command).Stdout, "TM015")
	}

	edit(t, filepath.Join(w.Dir, "talconfig.yaml"), func(text string) string {
		return text + "controlPlane:\n  nodeLabels:\n    rack: a\n"
	})

	start := w.changes()

	for _, command := range []string{"audit", "status", "talos"} {
		t.Run(command, func(t *testing.T) {
			got := w.ends(t, 0, nil, command)
			require.NotContains(t, got.Stdout, "nothing to do")
			w.tells(t, got)
		})
	}

	require.Empty(t, w.since(start))

	w.ends(t, 0, nil, "config:generate")
	require.Contains(t, w.ends(t, 8, nil, "talos", "-dryRun").Stderr, "Next: talos-mage applySequential -update")
	w.ends(t, 0, nil, "talos", "-update")
	require.Equal(t, []string{"cp1 ApplyConfiguration"}, w.since(start))
	require.Contains(t, w.ends(t, 0, nil, "talos").Stdout, "nothing to do")
}

// inOrder are the changes in the order in which they came, over all machines.
func (w *world) inOrder() []string {
	type change struct {
		name string
		emulator.Call
	}

	var changes []change

	for _, node := range w.Lab.Nodes() {
		for _, call := range node.MutatingCalls() {
			changes = append(changes, change{node.Name(), call})
		}
	}

	slices.SortStableFunc(changes, func(a, b change) int { return a.Time.Compare(b.Time) })

	made := make([]string, 0, len(changes))
	for _, change := range changes {
		made = append(made, change.name+" "+change.Call.Name())
	}

	return made
}

func TestAChangeThatRebootsIsAskedForTwice(t *testing.T) {
	t.Parallel()

	w := broughtUp(t, labcluster.Options{ControlPlanes: 3})
	edit(t, w.ConfigFile("cp2"), environ)

	start, boots := w.changes(), w.Node("cp2").Boots()

	w.tells(t, w.ends(t, 4, nil, "applySequential", "-update"))
	require.Empty(t, w.since(start))

	w.ends(t, 0, nil, "applySequential", "-update", "-reboot")
	require.Equal(t, []string{"cp2 ApplyConfiguration"}, w.since(start))
	require.Equal(t, boots+1, w.Node("cp2").Boots())
	require.Equal(t, 3, w.voters())
}

func TestARebootThatCostsEtcdItsQuorumIsRefused(t *testing.T) {
	t.Parallel()

	w := broughtUp(t, labcluster.Options{ControlPlanes: 2})
	edit(t, w.ConfigFile("cp2"), environ)

	start := w.changes()

	w.tells(t, w.ends(t, 4, nil, "applySequential", "-update", "-reboot"))
	require.Empty(t, w.since(start))
}

func TestNamingANodeIsAskingForItsChange(t *testing.T) {
	t.Parallel()

	w := broughtUp(t, labcluster.Options{ControlPlanes: 1, Workers: 1})
	for _, name := range []string{"cp1", "worker1"} {
		edit(t, w.ConfigFile(name), environ)
	}

	start := w.changes()

	w.ends(t, 0, nil, "applyNode", w.Node("worker1").Address().String())
	require.Equal(t, []string{"worker1 ApplyConfiguration"}, w.since(start))
}

func TestDryRunsChangeNothing(t *testing.T) {
	t.Parallel()

	dry := func(t *testing.T, w *world, code int, commands ...string) {
		t.Helper()

		changes, files := w.changes(), w.files(t)

		for _, command := range commands {
			t.Run(command, func(t *testing.T) {
				w.tells(t, w.ends(t, code, hurried, command, "-dryRun"))
				require.Empty(t, w.since(changes))
				require.Equal(t, files, w.files(t))
			})
		}
	}

	t.Run("in maintenance", func(t *testing.T) {
		t.Parallel()

		w := newWorld(t, labcluster.Options{ControlPlanes: 1, Workers: 1}, nil)
		dry(t, w, 8, "talos", "applySequential", "applyParallel", "bootstrap")
	})

	t.Run("with a silent node", func(t *testing.T) {
		t.Parallel()

		w := newWorld(t, labcluster.Options{ControlPlanes: 1, Workers: 1}, nil)
		w.Node("worker1").PowerOff()
		dry(t, w, 8, "talos", "applySequential")
	})

	t.Run("without a kubeconfig", func(t *testing.T) {
		t.Parallel()

		w := broughtUp(t, labcluster.Options{ControlPlanes: 1, Workers: 1})
		require.NoError(t, os.Remove(w.kubeconfig()))
		dry(t, w, 8, "kubeconfig")
	})

	t.Run("with nothing to do", func(t *testing.T) {
		t.Parallel()

		dry(t, broughtUp(t, labcluster.Options{ControlPlanes: 1, Workers: 1}), 0, "talos", "applySequential", "bootstrap",
			"kubeconfig")
	})
}

func TestNoWaitEndsOnlyWaitsForSilentNodes(t *testing.T) {
	t.Parallel()

	// A command that waited for the silent worker would take most of a minute; cp1 answers, and has its time.
	patient := []string{"DIAL_TIMEOUT=1s", "NODE_REACHABILITY_RETRIES=1", "VERIFICATION_TIMEOUT=20s"}

	w := newWorld(t, labcluster.Options{ControlPlanes: 1, Workers: 1}, nil)
	w.Node("worker1").PowerOff()

	// In this order: once cp1 has its config, the others would find another cluster.
	for _, ends := range []struct {
		command string
		code    int
	}{{"verify", 5}, {"bootstrap", 6}, {"applySequential", 4}} {
		w.tellsAs(t, ends.command, w.ends(t, ends.code, patient, ends.command, "-noWait"))
	}

	require.Equal(t, sentTo("cp1"), w.changes())

	// A node that has just got its config is waited for, also while its port is closed.
	w.Node("worker1").PowerOn()
	settled(t, w.Node("worker1"))

	w.ends(t, 0, nil, "talos", "-noWait")
	require.ElementsMatch(t, eachOnce("cp1", "worker1"), w.changes())
}

func TestAssumeEmptyBootstrapsWithoutASilentControlPlane(t *testing.T) {
	t.Parallel()

	w := newWorld(t, labcluster.Options{ControlPlanes: 3, Endpoint: labcluster.FirstControlPlane},
		func(w *world, machine *emulator.NodeOptions) {
			configured(t, w, machine)
		})
	w.Node("cp3").PowerOff()

	w.tells(t, w.ends(t, 6, hurried, "bootstrap", "-assumeEmpty=cp3"))
	require.Equal(t, []string{"cp1 Bootstrap"}, w.changes())
	require.Equal(t, 2, w.voters())
}

func TestAssumeEmptyIsRefusedWhileAKubernetesAPIAnswers(t *testing.T) {
	t.Parallel()

	w := newWorld(t, labcluster.Options{ControlPlanes: 3, Endpoint: labcluster.FirstControlPlane},
		func(w *world, machine *emulator.NodeOptions) {
			configured(t, w, machine)

			machine.Faults.EtcdNever = machine.Name != "cp1"
		})

	w.ends(t, 6, []string{"ETCD_JOIN_TIMEOUT=20s"}, "bootstrap")
	require.Equal(t, []string{"cp1 Bootstrap"}, w.changes())

	// The one that has the etcd is hidden from Talos' clients, though not from Kubernetes'.
	w.Node("cp1").Refuse(true)

	w.tells(t, w.ends(t, 6, hurried, "bootstrap", "-assumeEmpty=cp1"))
	require.Equal(t, []string{"cp1 Bootstrap"}, w.changes())
}

func TestAssumeEmptyIsRefusedForAMemberOfEtcd(t *testing.T) {
	t.Parallel()

	w := broughtUp(t, labcluster.Options{ControlPlanes: 3})
	start := w.changes()

	w.Node("cp3").PowerOff()

	w.tells(t, w.ends(t, 6, hurried, "bootstrap", "-assumeEmpty=cp3"))
	require.Empty(t, w.since(start))
}

// A command to copy works where it is shown: the program is named as this computer finds it.
func TestHintsNameTheProgramAsItIsFound(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	require.NoError(t, os.Symlink(talosMage, filepath.Join(folder, "tm")))

	const (
		offPath = "PATH=/usr/bin:/bin"
		asTask  = "TALOS_MAGE_CALLED_AS=task"
	)

	onPath := "PATH=" + filepath.Dir(talosMage)

	for name, tt := range map[string]struct {
		typed     string
		env       []string
		generate  string
		bootstrap string
	}{
		"on the PATH": {talosMage, []string{onPath}, "talos-mage config:generate", "talos-mage bootstrap"},
		"elsewhere":   {talosMage, []string{offPath}, talosMage + " config:generate", talosMage + " bootstrap"},
		"here":        {"./tm", []string{offPath}, "./tm config:generate", "./tm bootstrap"},
		"by Task":     {talosMage, []string{offPath, asTask}, "task talos:generate-config", talosMage + " bootstrap"},
	} {
		for id, says := range map[diagnosis.ID]string{
			diagnosis.ConfigMissing: tt.generate, diagnosis.EtcdStopped: tt.bootstrap,
		} {
			process, err := program.Start(folder, program.Environment(tt.env...), tt.typed, "explain", string(id))
			require.NoError(t, err)
			require.Contains(t, strings.Join(strings.Fields(ended(t, process).Stdout), " "), says, name)
		}
	}
}
