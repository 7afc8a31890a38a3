package steps_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/cluster/snapshot"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
)

const (
	snapshotCall = "EtcdSnapshot"
	defragCall   = "EtcdDefragment"
)

// snapshots are the snapshots in a folder, each of them whole and for its owner alone.
func snapshots(t *testing.T, folder string) []string {
	t.Helper()

	paths, err := filepath.Glob(filepath.Join(folder, "*.db"))
	require.NoError(t, err)

	for _, path := range paths {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode(), path)

		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, snapshot.Verify(bytes.NewReader(data), int64(len(data))), path)
	}

	return paths
}

func TestASnapshotThatComesToAStandstillIsGivenUp(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 0)
	l.up(t)
	fault(l.Node("cp1"), emulator.CallFault{Method: "/machine.MachineService/EtcdSnapshot", When: emulator.BeforeEffect,
		Do: emulator.Hang})

	s := l.session(t)
	s.succeeds(t, steps.EtcdSnapshot{})
	require.Contains(t, s.detail("etcd:snapshot", ""), "copied from cp2")
}

func TestASnapshotIsWholeOrLeavesNothing(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 0)
	l.up(t)

	folder := filepath.Join(l.Dir, "snapshots")

	// The first gives a part of it as if that were all.
	l.Node("cp1").Set(func(f *emulator.Faults) { f.SnapshotEnd = 2000 })

	problem := l.session(t, "NODE=cp1").fails(t, diagnosis.ExitBootstrap, diagnosis.SnapshotFailed, steps.EtcdSnapshot{})
	require.Contains(t, problem.Cause, "the snapshot is not whole: 2000 bytes are no database and its hash")
	require.Empty(t, snapshots(t, folder))

	s := l.session(t, "DRY_RUN=true")
	s.fails(t, diagnosis.ExitDryRun, diagnosis.WouldChange, steps.EtcdSnapshot{})
	require.Empty(t, snapshots(t, folder))

	// The second one has it whole.
	s = l.session(t)
	s.succeeds(t, steps.EtcdSnapshot{})

	files := snapshots(t, folder)
	require.Len(t, files, 1)
	require.Regexp(t, regexp.MustCompile(`snapshots/lab-\d{8}T\d{6}Z\.db, \d+ kB, copied from cp2 and verified$`),
		s.detail("etcd:snapshot", ""))

	ignored, err := os.ReadFile(filepath.Join(folder, ".gitignore"))
	require.NoError(t, err)
	require.Equal(t, "*\n", string(ignored))

	// Nothing that exists is replaced.
	problem = l.session(t, "-file="+files[0]).fails(t, diagnosis.ExitBootstrap, diagnosis.SnapshotFailed,
		steps.EtcdSnapshot{})
	require.Contains(t, problem.Cause, "file already exists")
	require.Len(t, snapshots(t, folder), 1)

	other := filepath.Join(t.TempDir(), "new", "etcd.db")
	l.session(t, "-file="+other).succeeds(t, steps.EtcdSnapshot{})
	require.Len(t, snapshots(t, filepath.Dir(other)), 1)
}

func TestWhatCanBeCopiedOfAnEtcdWithoutALeader(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 1)
	l.up(t)

	for _, name := range []string{"cp2", "cp3"} {
		l.Node(name).PowerOff()
	}

	problem := l.session(t).fails(t, diagnosis.ExitBootstrap, diagnosis.SnapshotImpossible, steps.EtcdSnapshot{})
	require.Contains(t, problem.Cause, "no etcd can be copied: cp1: etcd runs, but has no leader; cp2: no answer")

	problem = l.session(t, "NODE=worker1").fails(t, diagnosis.ExitBootstrap, diagnosis.SnapshotImpossible,
		steps.EtcdSnapshot{})
	require.Contains(t, problem.Cause, "worker1: etcd runs on control planes only")

	l.session(t, "NODE=cp1").succeeds(t, steps.EtcdSnapshot{})
	require.Len(t, snapshots(t, filepath.Join(l.Dir, "snapshots")), 1)
}

func TestMembersAreDefragmentedOneAtATimeTheLeaderLast(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 0)
	l.up(t)

	s := l.session(t, "DRY_RUN=true")
	s.fails(t, diagnosis.ExitDryRun, diagnosis.WouldChange, steps.EtcdDefrag{})
	require.Zero(t, calls(l.Node("cp1"), defragCall))

	rows, findings, err := steps.EtcdStatus(t.Context(), l.session(t).Run)
	require.NoError(t, err)
	require.Empty(t, findings)
	require.Len(t, rows, 4)

	leader := ""

	for _, row := range rows[1:] {
		if row[3] == "leader" {
			leader = row[0]
		} else {
			require.Equal(t, "voter", row[3])
		}
	}

	l.session(t).succeeds(t, steps.EtcdDefrag{})

	var last time.Time

	for _, node := range l.Nodes {
		times := l.times(node.Name(), defragCall)
		require.Len(t, times, 1, node.Name())

		if node.Name() != leader && times[0].After(last) {
			last = times[0]
		}
	}

	require.True(t, l.times(leader, defragCall)[0].After(last), "the leader's turn is the last")
}

func TestAnEtcdThatIsNotWholeIsNotDefragmented(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 0)
	l.up(t)
	fault(l.Node("cp1"), emulator.CallFault{Method: defragCall, Do: emulator.Fail, Code: codes.Unknown,
		Text: "rpc error: no space left on device"})

	s := l.session(t, "NODE=cp1")
	problem := s.fails(t, diagnosis.ExitBootstrap, diagnosis.DefragFailed, steps.EtcdDefrag{})
	require.Equal(t, "cp1", problem.Node)
	require.Contains(t, problem.Cause, "no space left on device")
	require.Equal(t, report.Failed, s.status("etcd:defrag", "cp1"))

	l.Node("cp3").PowerOff()

	problem = l.session(t).fails(t, diagnosis.ExitBootstrap, diagnosis.DefragHeldBack, steps.EtcdDefrag{})
	require.Contains(t, problem.Cause, "cp3: no answer")
	require.Zero(t, calls(l.Node("cp2"), defragCall))
}

func TestAMemberIsNotDefragmentedOnceAnotherHasGone(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 0)
	l.up(t)

	// cp1 began etcd and leads it, so cp2 comes first.
	fault(l.Node("cp2"), emulator.CallFault{Method: defragCall, When: emulator.AfterEffect, Do: emulator.Cut})

	gone := make(chan struct{})
	go func() {
		defer close(gone)

		for calls(l.Node("cp2"), defragCall) == 0 && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}

		l.Node("cp1").PowerOff()
	}()

	problem := l.session(t).fails(t, diagnosis.ExitBootstrap, diagnosis.DefragHeldBack, steps.EtcdDefrag{})
	<-gone
	require.Equal(t, "cp2", problem.Node)
	require.Contains(t, problem.Cause, "cp1: no answer")
	require.Zero(t, calls(l.Node("cp3"), defragCall))
}

func TestTheListOfMembersNamesTheirNodes(t *testing.T) {
	t.Parallel()

	l := newLab(t, 2, 0)
	l.untilMaintenance(t)

	_, _, err := steps.EtcdList(t.Context(), l.session(t).Run)
	require.ErrorContains(t, err, "no member gives a list: cp1: in maintenance; cp2: in maintenance")

	l.up(t)

	rows, _, err := steps.EtcdList(t.Context(), l.session(t).Run)
	require.NoError(t, err)
	require.Len(t, rows, 3)

	for _, row := range rows[1:] {
		require.Equal(t, row[1], row[2])
		require.Equal(t, "yes", row[3])
		require.True(t, strings.HasPrefix(row[4], "https://"), row[4])
	}
}
