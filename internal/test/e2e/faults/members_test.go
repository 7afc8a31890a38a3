package faults_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/atomicfile/baddisk"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// memberFaults are those of control planes that are gone for good: their members of etcd, their machines, and a quorum
// that goes with them.
func memberFaults() []fault {
	return afterBoot(append(goneFaults(), recoveryFaults()...))
}

// goneFaults are those of one control plane that is gone.
func goneFaults() []fault {
	return []fault{
		{
			title: "a member is to be removed, and its node answers", class: "etcd healthy", knob: "etcd:removeMember",
			cluster: three, run: "etcd:removeMember",
			inject: func(t *testing.T, w *world) { t.Helper(); w.ends(t, 0, "talos"); w.remove(cp3) },
			code:   diagnosis.ExitBootstrap, id: diagnosis.MemberAnswers, node: cp3, says: "it answers",
			seen: "its member of etcd is not removed", repeats: true,
		},
		{
			title: "a member is to be removed that etcd needs", class: "no answer, no quorum", knob: "PowerOff",
			cluster: three, run: "etcd:removeMember",
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.ends(t, 0, "talos")
				w.remove(cp3)
				w.off(cp2, cp3)
			},
			code: diagnosis.ExitBootstrap, id: diagnosis.RemovalHeldBack, says: "no member of etcd is healthy",
			seen: "no member of etcd is healthy", repeats: true,
			heal: func(_ *testing.T, w *world) { w.Node(cp2).PowerOn(); w.Node(cp3).PowerOn() },
		},
		{
			title: "a control plane's machine is gone, and another takes its place", class: "no answer, then in maintenance",
			knob: "PowerOff, Wipe", cluster: three, run: "replaceNode", settings: []string{"NODE=cp3"},
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.ends(t, 0, "talos")
				w.fault(cp1, emulator.CallFault{Method: "EtcdRemoveMemberByID", Do: emulator.Cut, When: emulator.AfterEffect,
					Times: 1})
				w.replaced(t, cp3)
			},
			seen: "of the former machine", node: cp3,
		},
		{
			title: "the new machine never comes", class: "no answer", knob: "PowerOff", cluster: three, run: "replaceNode",
			settings: []string{"NODE=cp3", "NODE_WAIT=20s"},
			inject:   func(t *testing.T, w *world) { t.Helper(); w.ends(t, 0, "talos"); w.off(cp3) },
			code:     diagnosis.ExitBootstrap, id: diagnosis.NodeSilent, node: cp3, seen: "no answer",
			repeats: true, heal: func(_ *testing.T, w *world) { w.Node(cp3).PowerOn() },
		},
	}
}

// recoveryFaults are those of an etcd whose quorum is lost for good.
func recoveryFaults() []fault {
	lose := func(t *testing.T, w *world) {
		t.Helper()
		w.ends(t, 0, "talos")
		w.losesQuorum(t)
	}

	// In the end all machines are members of the restored etcd.
	rebuilt := func(t *testing.T, w *world) { t.Helper(); w.rebuilt(t, cp2, cp3) }

	readOnly := baddisk.ReadOnly

	return []fault{
		{
			title: "a control plane never comes back from having its etcd wiped", class: "no answer",
			knob: "Reset: ResetPowersOff", cluster: three, run: "etcd:recover",
			settings: []string{"-destroyed=cp2,cp3", "NODE_WAIT=60s", "STAGE_TIMEOUT=60s"},
			inject: func(t *testing.T, w *world) {
				t.Helper()
				lose(t, w)
				w.Node(cp1).Set(func(f *emulator.Faults) { f.Reset = emulator.ResetPowersOff })
			},
			code: diagnosis.ExitBootstrap, id: diagnosis.MemberUnwiped, node: cp1, says: "its etcd is not wiped",
			seen: "wiping its etcd",
			heal: func(t *testing.T, w *world) {
				t.Helper()
				w.heal(cp1)
				w.Node(cp1).PowerOn()
				w.ends(t, 0, "etcd:recover", "-destroyed=cp2,cp3")
				rebuilt(t, w)
			},
		},
		{
			title: "what a member holds can't be saved before it is wiped", class: "read-only file system",
			knob: "TALOS_DIR/snapshots", disk: &readOnly, cluster: three, run: "etcd:recover",
			settings: []string{"-destroyed=cp2,cp3"},
			onDisk: func(t *testing.T, w *world, folder string) {
				t.Helper()
				require.NoError(t, os.Symlink(folder, filepath.Join(w.Dir, "snapshots")))
			},
			inject: lose,
			code:   diagnosis.ExitBadInput, id: diagnosis.FileUnwritable, says: "can't be written: read-only file system",
			seen: "read-only file system",
			also: func(t *testing.T, w *world, _ outcome) { t.Helper(); require.Zero(t, w.count(cp1, "Reset")) },
			heal: func(t *testing.T, w *world) {
				t.Helper()
				require.NoError(t, os.Remove(filepath.Join(w.Dir, "snapshots")))
				w.ends(t, 0, "etcd:recover", "-destroyed=cp2,cp3")
				rebuilt(t, w)
			},
		},
		{
			title: "etcd's quorum is lost for good", class: "no answer, no quorum", knob: "PowerOff", cluster: three,
			run: "etcd:recover", inject: lose, settings: []string{"-destroyed=cp2,cp3"},
			id: diagnosis.FormerEtcdAway, node: cp2, seen: "may hold the former etcd", heal: rebuilt,
		},
		{
			title: "a control plane is silent, and nobody says that it is destroyed", class: "no answer, no quorum",
			knob: "PowerOff", cluster: three, run: "etcd:recover", inject: lose,
			settings: []string{"-destroyed=cp2", "NODE_WAIT=10s"},
			code:     diagnosis.ExitBootstrap, id: diagnosis.QuorumPossible, says: "cp3 did not answer at any known address",
			seen:    "did not answer at any known address",
			also:    func(t *testing.T, w *world, _ outcome) { t.Helper(); require.Zero(t, w.count(cp1, "Reset")) },
			repeats: true,
			heal:    func(_ *testing.T, w *world) { w.Node(cp2).PowerOn(); w.Node(cp3).PowerOn(); w.restores = 0 },
		},
		{
			title: "the replies to a recovery's calls are lost", class: "calls without a reply", knob: "Calls: Cut",
			cluster: three, run: "etcd:recover", settings: []string{"-destroyed=cp2,cp3"},
			inject: func(t *testing.T, w *world) {
				t.Helper()
				lose(t, w)

				for _, method := range []string{"Reset", "EtcdRecover", "Bootstrap"} {
					w.fault(cp1, emulator.CallFault{Method: method, Do: emulator.Cut, When: emulator.AfterEffect, Times: 1})
				}
			},
			id: diagnosis.FormerEtcdAway, node: cp2, seen: "may hold the former etcd", heal: rebuilt,
			also: func(t *testing.T, w *world, _ outcome) { t.Helper(); require.Equal(t, 2, w.count(cp1, "Bootstrap")) },
		},
		{
			title: "the snapshot turns out to be damaged on the node", class: "etcd Failed", knob: "RestoreFails",
			cluster: three, run: "etcd:recover", settings: []string{"-destroyed=cp2,cp3"},
			inject: func(t *testing.T, w *world) {
				t.Helper()
				lose(t, w)
				w.Node(cp1).Set(func(f *emulator.Faults) { f.RestoreFails = true })
			},
			code: diagnosis.ExitBootstrap, id: diagnosis.RecoverFailed, node: cp1, says: "it could not restore etcd",
			seen: "it could not restore etcd", repeats: true,
			heal: func(t *testing.T, w *world) {
				t.Helper()
				w.heal(cp1)
				w.ends(t, 0, "etcd:recover", "-destroyed=cp2,cp3")
				rebuilt(t, w)
			},
		},
		{
			title: "a silent control plane comes back with the former etcd", class: "etcd data, no quorum", knob: "PowerOn",
			cluster: three, run: "etcd:recover", settings: []string{"-destroyed=cp3"},
			inject: func(t *testing.T, w *world) {
				t.Helper()
				lose(t, w)
				w.ends(t, 0, "etcd:recover", "-destroyed=cp2,cp3")
				w.restores = 0
				w.Node(cp2).PowerOn()
				until(t, w.Node(cp2), inStage("booting"))
			},
			id: diagnosis.FormerEtcdAway, node: cp3, seen: "may hold the former etcd",
			also: func(t *testing.T, w *world, _ outcome) {
				t.Helper()
				require.Equal(t, w.Node(cp1).EtcdClusterID(), w.Node(cp2).EtcdClusterID())
			},
			heal: func(t *testing.T, w *world) { t.Helper(); w.rebuilt(t, cp3) },
		},
	}
}

// remove names the member of etcd that is to be removed.
func (w *world) remove(name string) {
	w.settings = append(w.settings, fmt.Sprintf("<id>=%016x", w.Node(name).EtcdMemberID()))
}

// off switches machines off.
func (w *world) off(names ...string) {
	for _, name := range names {
		w.Node(name).PowerOff()
	}
}

// replaced puts an empty machine in the place of one.
func (w *world) replaced(t *testing.T, name string) {
	t.Helper()
	w.reinstall(name)
	w.inMaintenance(t, name)
}

// losesQuorum takes a snapshot of etcd, and two of three control planes away. Restoring it makes an etcd.
func (w *world) losesQuorum(t *testing.T) {
	t.Helper()

	path := filepath.Join(w.root, "kept.db")
	w.ends(t, 0, "etcd:snapshot", "-file="+path)
	w.off(cp2, cp3)

	w.settings = append(w.settings, "<file>="+path, "-yes=true")
	w.restores = 1
}

// rebuilt puts empty machines in the place of those that were lost.
func (w *world) rebuilt(t *testing.T, names ...string) {
	t.Helper()

	w.restores = 0

	for _, name := range names {
		w.replaced(t, name)
	}
}
