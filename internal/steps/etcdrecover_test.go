package steps_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/steps"
)

const (
	resetCall  = "Reset"
	uploadCall = "EtcdRecover"
)

// snapshotOf takes a snapshot of the lab's etcd, and gives the setting that names it.
func (l *lab) snapshotOf(t *testing.T) string {
	t.Helper()

	path := filepath.Join(l.folder, "kept.db")
	l.session(t, "-file="+path).succeeds(t, steps.EtcdSnapshot{})

	return "<file>=" + path
}

// silence switches machines off.
func (l *lab) silence(names ...string) {
	for _, name := range names {
		l.Node(name).PowerOff()
	}
}

// untouched reports that nobody was told to wipe or to restore anything.
func (l *lab) untouched(t *testing.T) {
	t.Helper()

	for _, node := range l.Nodes {
		require.Zero(t, calls(node, resetCall), node.Name())
		require.Zero(t, calls(node, uploadCall), node.Name())
	}
}

func TestAFileThatIsNoSnapshotIsRefusedBeforeAnyNodeIsAsked(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0)
	path := filepath.Join(l.folder, "notes.txt")
	require.NoError(t, os.WriteFile(path, []byte("not etcd's"), 0o600))

	problem := l.session(t, "<file>="+path, "-yes=true").fails(t, diagnosis.ExitBadInput, diagnosis.SnapshotUnusable,
		steps.EtcdRecover{})
	require.Contains(t, problem.Cause, "it is no database of etcd")
	require.Empty(t, l.Node("cp1").Calls())
}

func TestEtcdIsNotRestoredWhileAQuorumMayBeHad(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 0)
	l.up(t)

	file := l.snapshotOf(t)

	problem := l.session(t, file, "-yes=true").fails(t, diagnosis.ExitBootstrap, diagnosis.RecoverNotNeeded,
		steps.EtcdRecover{})
	require.Contains(t, problem.Cause, "etcd has its quorum")

	l.silence("cp2", "cp3")

	problem = l.session(t, file, "-yes=true", "-destroyed=cp2", seconds("NODE_WAIT", 5)).fails(t, diagnosis.ExitBootstrap,
		diagnosis.QuorumPossible, steps.EtcdRecover{})
	require.Contains(t, problem.Cause, "cp3 did not answer at any known address")
	require.Contains(t, problem.Next, "-destroyed=cp2,cp3")

	// Nobody agrees.
	l.session(t, file, "-destroyed=cp2,cp3").fails(t, diagnosis.ExitBadInput, diagnosis.NotAgreed, steps.EtcdRecover{})

	l.session(t, file, "-destroyed=cp2,cp3", "DRY_RUN=true").fails(t, diagnosis.ExitDryRun, diagnosis.WouldChange,
		steps.EtcdRecover{})
	l.untouched(t)
}

func TestAMemberThatDoesNotVoteYetIsNoPartOfAQuorum(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 0)
	l.Node("cp3").Set(func(f *emulator.Faults) { f.EtcdJoin = 1000 * time.Hour })

	s := l.session(t, seconds("ETCD_JOIN_TIMEOUT", 60))
	s.fails(t, diagnosis.ExitBootstrap, diagnosis.EtcdIncomplete, s.recipe()...)

	file := l.snapshotOf(t)
	l.wipe(t, "cp1")
	require.True(t, l.Node("cp3").EtcdClusterID() != 0 && !l.Node("cp3").EtcdVoter())

	l.Node("cp3").Set(func(f *emulator.Faults) { f.EtcdJoin = 0 })

	s = l.session(t, file, "-yes=true", "-destroyed=cp1")
	s.succeeds(t, steps.EtcdRecover{})
}

// With a config they would start the former etcd again.
func TestEtcdIsNotRestoredWhileMachinesInMaintenanceMayHoldItsData(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 0)
	l.up(t)

	file := l.snapshotOf(t)

	for _, name := range []string{"cp2", "cp3"} {
		_, err := l.client(t, name).MachineClient.Reset(t.Context(), &machine.ResetRequest{
			Reboot: true, SystemPartitionsToWipe: []*machine.ResetPartitionSpec{{Label: "STATE", Wipe: true}},
		})
		require.NoError(t, err)
		wait(t, l.Node(name), inStage("maintenance"))
	}

	clusters := l.Lab.EtcdClusters()

	problem := l.session(t, file, "-yes=true").fails(t, diagnosis.ExitBootstrap, diagnosis.QuorumPossible,
		steps.EtcdRecover{})
	require.Contains(t, problem.Cause,
		"cp2 is in maintenance, and may hold etcd's data: EPHEMERAL on /dev/vda is not wiped")
	require.Contains(t, problem.Next, "-destroyed=")
	require.Equal(t, clusters, l.Lab.EtcdClusters())
}

func TestEtcdIsRestoredWhenItsQuorumIsLostForGood(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 0)
	l.up(t)

	file := l.snapshotOf(t)
	clusters := l.Lab.EtcdClusters()

	l.silence("cp2", "cp3")

	s := l.session(t, file, "-destroyed=cp2,cp3", "-yes=true")
	s.succeeds(t, steps.EtcdRecover{})
	require.True(t, l.Node("cp1").EtcdVoter())
	require.Equal(t, clusters+1, l.Lab.EtcdClusters())
	require.Len(t, snapshots(t, filepath.Join(l.Dir, "snapshots")), 1, "what cp1 held is saved")
	require.Contains(t, s.out.String(), string(diagnosis.FormerEtcdAway))
	require.Equal(t, []string{"cp1", "cp2", "cp3"}, l.kubernetesNodes(t), "what the snapshot has is there again")

	_, findings, err := steps.EtcdStatus(t.Context(), l.session(t).Run)
	require.NoError(t, err)
	require.Len(t, findings, 2, "cp2 and cp3 may hold the former etcd")
	require.Equal(t, diagnosis.FormerEtcdAway, findings[0].ID)

	// Again: it is done. One comes back with the former etcd.
	l.Node("cp2").PowerOn()
	wait(t, l.Node("cp2"), inStage("booting"))

	s = l.session(t, file, "-destroyed=cp2,cp3", "-yes=true")
	s.succeeds(t, steps.EtcdRecover{})
	require.Equal(t, 1, calls(l.Node("cp2"), resetCall))
	require.Equal(t, l.Node("cp1").EtcdClusterID(), l.Node("cp2").EtcdClusterID(), "it has joined")
	require.Equal(t, clusters+1, l.Lab.EtcdClusters())
}

func TestARestoreGoesOnAfterLostReplies(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 0)
	l.up(t)

	file := l.snapshotOf(t)
	clusters := l.Lab.EtcdClusters()

	// The disks of two were replaced; what the third holds can't be had as a snapshot.
	for _, name := range []string{"cp2", "cp3"} {
		l.Node(name).PowerOff()
		l.Node(name).Wipe()
		l.Node(name).PowerOn()
		wait(t, l.Node(name), inStage("maintenance"))
	}

	fault(l.Node("cp1"),
		emulator.CallFault{Method: "EtcdSnapshot", Do: emulator.Fail, Code: codes.Unknown, Text: "no"},
		emulator.CallFault{Method: resetCall, Do: emulator.Cut, When: emulator.AfterEffect, Times: 1},
		emulator.CallFault{Method: uploadCall, Do: emulator.Cut, When: emulator.AfterEffect, Times: 1},
		emulator.CallFault{Method: "Bootstrap", Do: emulator.Cut, When: emulator.AfterEffect, Times: 1})

	s := l.session(t, file, "-yes=true")
	s.do(t, steps.EtcdRecover{})
	require.Equal(t, clusters+1, l.Lab.EtcdClusters(), s.out)
	require.True(t, l.Node("cp1").EtcdVoter(), s.out)

	copies, err := filepath.Glob(filepath.Join(l.Dir, "snapshots", "*.db"))
	require.NoError(t, err)
	require.Len(t, copies, 1, "the database is copied")

	// What was copied can be restored from, too.
	l.session(t).succeeds(t, l.session(t).recipe()...)
	l.silence("cp2", "cp3")
	l.session(t, "<file>="+copies[0], "-destroyed=cp2,cp3", "-yes=true").succeeds(t, steps.EtcdRecover{})
	require.Equal(t, clusters+2, l.Lab.EtcdClusters())
}

// Since Talos 1.14 etcd can have a partition of its own, which a wipe of EPHEMERAL would leave as it is.
func TestEtcdIsRestoredWhereItHasAPartitionOfItsOwn(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 0, on114)
	l.ownEtcdPartition(t, "cp1", "cp2", "cp3")
	l.untilMaintenance(t)

	s := l.session(t, asTheyAre, "MAX_PARALLEL=100%")
	s.succeeds(t, s.recipe()...)

	path := filepath.Join(l.folder, "kept.db")
	l.session(t, asTheyAre, "-file="+path).succeeds(t, steps.EtcdSnapshot{})

	clusters := l.Lab.EtcdClusters()

	// One machine has lost its config alone: with one it would start the former etcd.
	_, err := l.client(t, "cp3").MachineClient.Reset(t.Context(), &machine.ResetRequest{
		Reboot:                 true,
		SystemPartitionsToWipe: []*machine.ResetPartitionSpec{{Label: "STATE", Wipe: true}, {Label: "EPHEMERAL", Wipe: true}},
	})
	require.NoError(t, err)
	wait(t, l.Node("cp3"), inStage("maintenance"))
	l.silence("cp2")

	problem := l.session(t, asTheyAre, "<file>="+path, "-destroyed=cp2", "-yes=true").fails(t, diagnosis.ExitBootstrap,
		diagnosis.QuorumPossible, steps.EtcdRecover{})
	require.Contains(t, problem.Cause, "cp3 is in maintenance, and may hold etcd's data: ETCD on /dev/vda is not wiped")

	l.silence("cp3")
	l.session(t, asTheyAre, "<file>="+path, "-destroyed=cp2,cp3", "-yes=true").succeeds(t, steps.EtcdRecover{})
	require.True(t, l.Node("cp1").EtcdVoter())
	require.Equal(t, clusters+1, l.Lab.EtcdClusters())

	var wiped []string
	for _, partition := range resets(l.Node("cp1"))[0].GetSystemPartitionsToWipe() {
		wiped = append(wiped, partition.GetLabel())
	}

	require.Equal(t, []string{"ETCD"}, wiped, "images and logs stay")

	// The machine with the former etcd on that partition is no new one.
	l.Node("cp3").PowerOn()
	wait(t, l.Node("cp3"), inStage("maintenance"))

	s = l.session(t, asTheyAre, "NODE=cp3")
	problem = s.fails(t, diagnosis.ExitBootstrap, diagnosis.ReplacementHoldsData, s.replacing()...)
	require.Equal(t, "it is in maintenance, and may hold etcd's data: ETCD on /dev/vda is not wiped", problem.Cause)
	require.Contains(t, problem.Next, "talos.experimental.wipe=system")
	require.Contains(t, l.kubernetesNodes(t), "cp3", "nothing is removed for it")

	l.Node("cp3").PowerOff()
	l.Node("cp3").Wipe()
	l.Node("cp3").PowerOn()
	wait(t, l.Node("cp3"), inStage("maintenance"))

	s = l.session(t, asTheyAre, "NODE=cp3")
	s.succeeds(t, s.replacing()...)
	require.Equal(t, l.Node("cp1").EtcdClusterID(), l.Node("cp3").EtcdClusterID())
}
