package steps_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// answers has somebody at the terminal type this, and gives what they were asked.
func (s *session) answers(typed string) *string {
	asked := new(string)
	s.Ask = func(_ context.Context, question string) (string, error) {
		*asked += question

		return typed, nil
	}

	return asked
}

// resets are the resets that a node was asked for.
func resets(node *emulator.Node) []*machine.ResetRequest {
	var requests []*machine.ResetRequest

	for _, call := range node.Calls() {
		if call.Reset != nil {
			requests = append(requests, call.Reset)
		}
	}

	return requests
}

func TestAWorkerIsResetOnceItsNameWasTyped(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 2)
	l.up(t)

	// A dry run tells what would be lost, and nobody is asked.
	s := l.session(t, "NODE=worker1", "DRY_RUN=true")
	s.fails(t, diagnosis.ExitDryRun, diagnosis.WouldChange, steps.Reset{})
	require.Regexp(t, `would lose STATE \(\S+ MB on /dev/vda\) and EPHEMERAL \(\S+ GB on /dev/vda\)`,
		s.detail("reset", "worker1"))

	// Without a terminal, or with another name, nothing happens.
	l.session(t, "NODE=worker1").fails(t, diagnosis.ExitBadInput, diagnosis.NotAgreed, steps.Reset{})

	s = l.session(t, "NODE=worker1")
	s.answers("worker2")
	s.fails(t, diagnosis.ExitBadInput, diagnosis.NotAgreed, steps.Reset{})
	require.Empty(t, resets(l.Node("worker1")))

	s = l.session(t, "NODE=worker1")
	asked := s.answers("worker1")
	s.succeeds(t, steps.Reset{})
	require.Contains(t, *asked, "worker1 loses STATE (")
	require.Contains(t, *asked, "Type worker1 to go on: ")
	require.Equal(t, report.Applied, s.status("reset", "worker1"))
	require.Equal(t, "maintenance", l.Node("worker1").Stage())
	require.Equal(t, "running", l.Node("worker2").Stage())

	request := resets(l.Node("worker1"))
	require.Len(t, request, 1)
	require.True(t, request[0].GetReboot() && request[0].GetGraceful())
	require.Len(t, request[0].GetSystemPartitionsToWipe(), 2)

	// Run again, it has nothing to do, and nobody is asked.
	s = l.session(t, "NODE=worker1").succeeds(t, steps.Reset{})
	require.Equal(t, report.Skipped, s.status("reset", "worker1"))
}

func TestAClusterIsResetWorkersFirstAndItsLastControlPlaneNotGracefully(t *testing.T) {
	t.Parallel()

	var (
		l       *lab
		workers []string // the stages of both when a control plane is told
	)

	l = newLab(t, 3, 2, func(options *labcluster.Options) {
		options.LabOptions.Watch = func(node *emulator.Node, call emulator.Call) {
			if call.Name() == resetCall && strings.HasPrefix(node.Name(), "cp") {
				workers = append(workers, l.Node("worker1").Stage(), l.Node("worker2").Stage())
			}
		}
	})
	l.up(t)

	s := l.session(t, "-cluster=lab")
	asked := s.answers("lab")
	s.succeeds(t, steps.Reset{})
	require.Contains(t, *asked, "No member of etcd is left")

	for _, name := range []string{"worker1", "worker2", "cp1", "cp2", "cp3"} {
		require.Equal(t, "maintenance", l.Node(name).Stage(), name)

		requests := resets(l.Node(name))
		require.Len(t, requests, 1, name)
		require.Equal(t, name != "cp3", requests[0].GetGraceful(), name)
	}

	require.Equal(t, slices.Repeat([]string{"maintenance"}, 6), workers, "all workers are done before a control plane is")
}

// A machine at a node's address that belongs to another cluster keeps what it has, and no other node is begun.
func TestAnotherClustersMachineIsNotReset(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 1)
	l.up(t)

	secrets, err := clusterfiles.ForeignSecrets()
	require.NoError(t, err)

	options := l.Generated.Options
	options.Secrets = secrets

	theirs, err := clusterfiles.Make(options)
	require.NoError(t, err)

	taken := l.Node("cp3")
	taken.PowerOff()
	taken.Wipe()
	taken.PowerOn()
	wait(t, taken, inStage("maintenance"))
	l.applyInsecurely(t, "cp3", theirs.Configs[slices.IndexFunc(theirs.Configs,
		func(config clusterfiles.Config) bool { return config.Node.Name == "cp3" })].Bytes)
	require.Eventually(t, func() bool {
		return new(talos.Dialer).Probe(t.Context(), taken.Endpoint()).Configured()
	}, patience, time.Millisecond)

	for _, given := range []string{"NODE=cp3", "-cluster=lab"} {
		s := l.session(t, given, "-yes=true")
		problem := s.fails(t, diagnosis.ExitApply, diagnosis.ForeignNode, steps.Reset{})
		require.Equal(t, "cp3", problem.Node)
		require.Equal(t, report.Refused, s.status("reset", "cp3"))
	}

	for _, node := range l.Nodes {
		require.Empty(t, resets(node), node.Name())
	}
}

// A node is asked again only if it did not begin: what was lost of the call or of its reply is looked for on the node.
func TestAResetThatBreaksOffIsMadeOnce(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		fault emulator.CallFault
		sent  int
	}{
		"the call is lost":           {emulator.CallFault{Do: emulator.Cut, When: emulator.BeforeEffect}, 2},
		"the reply is lost":          {emulator.CallFault{Do: emulator.Cut, When: emulator.AfterEffect}, 1},
		"the node breaks in between": {emulator.CallFault{Do: emulator.Fail, Code: codes.Internal, Text: "panic"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 1, 1)
			l.up(t)

			test.fault.Method, test.fault.Times = "Reset", 1
			fault(l.Node("worker1"), test.fault)

			l.session(t, "NODE=worker1", "-yes=true").succeeds(t, steps.Reset{})
			require.Len(t, resets(l.Node("worker1")), test.sent)
			require.Equal(t, "maintenance", l.Node("worker1").Stage())
		})
	}
}

func TestANodeThatDoesNotComeBackFromItsResetIsExplained(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		change func(*emulator.Faults)
		with   string
		id     diagnosis.ID
		says   string
	}{
		"it is off": {func(f *emulator.Faults) { f.Reset = emulator.ResetPowersOff }, "NODE=worker1",
			diagnosis.ResetNoReturn, "stopped by an ISO or PXE that comes before its disk"},
		"it is off, with nothing on its disk": {func(f *emulator.Faults) { f.Reset = emulator.ResetPowersOff },
			"-systemDisk=true", diagnosis.ResetNoReturn, "without anything to boot from"},
		"its wipe failed": {func(f *emulator.Faults) { f.Reset = emulator.ResetWipeFails }, "NODE=worker1",
			diagnosis.ResetWithoutEffect, "it rebooted and came back with its config"},
		"it refuses": {func(f *emulator.Faults) {
			f.Calls = []emulator.CallFault{{Method: "Reset", Do: emulator.Fail, Code: codes.Unknown, Text: "no such volume"}}
		}, "NODE=worker1", diagnosis.ResetFailed, "no such volume"},
		"it never begins": {func(f *emulator.Faults) {
			f.Calls = []emulator.CallFault{{Method: "Reset", Do: emulator.Cut, When: emulator.BeforeEffect}}
		}, "MAX_RETRIES=2", diagnosis.ResetFailed, "asked 3 times, it has not begun"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 1, 2)
			l.up(t)
			l.Node("worker1").Set(test.change)

			settings := []string{"NODE=worker1,worker2", "MAX_PARALLEL=1", "-yes=true", "NODE_WAIT=60s", test.with}
			problem := l.session(t, settings...).fails(t, diagnosis.ExitApply, test.id, steps.Reset{})
			require.Contains(t, problem.Cause, test.says)
			require.Equal(t, "worker1", problem.Node)

			// The others are left alone, until it is run again.
			require.Equal(t, "running", l.Node("worker2").Stage())

			l.Node("worker1").Set(func(f *emulator.Faults) { *f = emulator.Faults{} })
			l.Node("worker1").PowerOn()
			l.session(t, "NODE=worker1,worker2", "-yes=true").succeeds(t, steps.Reset{})

			for _, name := range []string{"worker1", "worker2"} {
				require.Equal(t, "maintenance", l.Node(name).Stage())
			}
		})
	}
}

func TestNoResetCostsEtcdItsQuorum(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 0)
	l.up(t)
	l.Node("cp3").PowerOff()

	for _, nodes := range []string{"cp1", "cp1,cp2"} {
		problem := l.session(t, "NODE="+nodes, "-yes=true").fails(t, diagnosis.ExitBootstrap, diagnosis.ResetHeldBack,
			steps.Reset{})
		require.Contains(t, problem.Cause, "etcd would lose its quorum: cp1: etcd runs and is healthy, 3 members")
	}

	require.Empty(t, resets(l.Node("cp1")))

	// A silent one keeps what it has.
	problem := l.session(t, "NODE=cp3", "-yes=true").fails(t, diagnosis.ExitApply, diagnosis.NotReset, steps.Reset{})
	require.Contains(t, problem.Cause, "it does not answer, and keeps what it has")

	l.Node("cp3").PowerOn()
	require.NoError(t, l.Node("cp3").WaitFor(t.Context(), (*emulator.Node).EtcdVoter))

	// One of three can be spared, and leaves in order.
	s := l.session(t, "NODE=cp2")
	asked := s.answers("cp2")
	s.succeeds(t, steps.Reset{})
	require.Contains(t, *asked, "etcd goes on with 2 members, and stops when it loses one more")
	require.True(t, resets(l.Node("cp2"))[0].GetGraceful())
	require.Equal(t, report.Skipped, l.session(t, "NODE=cp2").succeeds(t, steps.Reset{}).status("reset", "cp2"))

	// Of the last one the cluster's name is typed.
	l.session(t, "NODE=cp1", "-yes=true").succeeds(t, steps.Reset{})

	s = l.session(t, "NODE=cp3")
	asked = s.answers("lab")
	s.succeeds(t, steps.Reset{})
	require.Contains(t, *asked, "No member of etcd is left")
	require.False(t, resets(l.Node("cp3"))[0].GetGraceful())
}

func TestOnlyTheDeclaredMachineAndItsDisksAreWiped(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 1, edit("worker1", func(node *emulator.NodeOptions) {
		node.Disks = []emulator.Disk{
			{Name: "vda", Size: 50_000_000_000, Transport: "virtio"},
			{Name: "vdb", Size: 10_000_000_000, Transport: "virtio",
				Volumes: []emulator.Volume{{Partition: "data", Filesystem: "xfs", Size: 1 << 30}}},
			{Name: "vdc", Size: 10_000_000_000, Transport: "virtio", Readonly: true},
		}
	}))
	l.up(t)

	for disk, says := range map[string]string{
		"/dev/vda": "which Talos is on: -systemDisk wipes that",
		"/dev/vdc": "which can't be written to",
		"/dev/sdb": "which it does not have; its other disks are /dev/vdb",
	} {
		problem := l.session(t, "NODE=worker1", "-yes=true", "-disk=/dev/vdb,"+disk).fails(t, diagnosis.ExitBadInput,
			diagnosis.DiskNotWipeable, steps.Reset{})
		require.Contains(t, problem.Cause, says)
	}

	// Another machine at the node's address.
	path := filepath.Join(l.Dir, "talconfig.yaml")
	talconfig, err := os.ReadFile(path)
	require.NoError(t, err)

	swapped := strings.Replace(string(talconfig), l.Generated.Options.Nodes[1].MAC, "02:00:5e:99:99:99", 1)
	require.NotEqual(t, string(talconfig), swapped)
	require.NoError(t, os.WriteFile(path, []byte(swapped), 0o600))
	l.session(t, "NODE=worker1", "-yes=true").fails(t, diagnosis.ExitApply, diagnosis.WrongMachine, steps.Reset{})
	require.NoError(t, os.WriteFile(path, talconfig, 0o600))
	require.Empty(t, resets(l.Node("worker1")))

	s := l.session(t, "NODE=worker1", "-systemDisk=true", "-disk=/dev/vdb")
	asked := s.answers("worker1")
	s.succeeds(t, steps.Reset{})
	require.Contains(t, *asked, "worker1 loses all of /dev/vda, with Talos and its boot loader (EFI, META, STATE, "+
		"EPHEMERAL); all of /dev/vdb (data)")
	require.False(t, l.Node("worker1").Installed())

	// What was not wiped before a node was in maintenance stays, and is named.
	l.session(t, "-cluster=lab", "-yes=true").succeeds(t, steps.Reset{})
	s = l.session(t, "-cluster=lab", "-yes=true", "-systemDisk=true").succeeds(t, steps.Reset{})
	require.Equal(t, report.Skipped, s.status("reset", "worker1"))
	require.Equal(t, report.Warned, s.status("reset", "cp1"))
	require.Contains(t, s.detail("reset", "cp1"), "where nothing can be reset: it keeps what is on /dev/vda")
	require.Equal(t, []string{"/dev/vdb"}, resets(l.Node("worker1"))[0].GetUserDisksToWipe())
}

// Partitions of their own hold what EPHEMERAL does not, from Talos 1.14 on.
func TestPartitionsOfTheirOwnAreWipedToo(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0, on114)

	l.ownEtcdPartition(t, "cp1")
	l.untilMaintenance(t)

	s := l.session(t, asTheyAre)
	s.succeeds(t, s.recipe()...)
	require.NotZero(t, l.Node("cp1").EtcdClusterID())

	s = l.session(t, asTheyAre, "-cluster=lab", "-yes=true").succeeds(t, steps.Reset{})
	require.Contains(t, s.detail("reset", "cp1"), "ETCD (1.1 GB on /dev/vda)")

	var labels []string
	for _, partition := range resets(l.Node("cp1"))[0].GetSystemPartitionsToWipe() {
		labels = append(labels, partition.GetLabel())
	}

	require.Equal(t, []string{"STATE", "EPHEMERAL", "ETCD"}, labels)
	require.Zero(t, l.Node("cp1").EtcdClusterID())

	// With its config it has them again, and loses them again.
	s = l.session(t, asTheyAre)
	s.succeeds(t, s.recipe()...)

	s = l.session(t, asTheyAre, "-cluster=lab", "-yes=true").succeeds(t, steps.Reset{})
	require.Contains(t, s.detail("reset", "cp1"), "ETCD (1.1 GB on /dev/vda)")
	require.Zero(t, l.Node("cp1").EtcdClusterID())
}

// What a reset means for etcd is judged of what a machine is: a declared worker that turns out to be a control plane is
// left alone.
func TestAMachineInAnotherRoleThanDeclaredIsNotReset(t *testing.T) {
	t.Parallel()

	l := newLab(t, 2, 1)
	l.up(t)

	path := filepath.Join(l.Dir, "talconfig.yaml")
	talconfig, err := os.ReadFile(path)
	require.NoError(t, err)

	for name, says := range map[string]string{
		"cp2":     "it is declared as worker, and runs as controlplane",
		"worker1": "it is declared as controlplane, and runs as worker",
	} {
		declared := strconv.FormatBool(name == "worker1")
		changed := regexp.MustCompile(`(?s)(hostname: `+name+`\n.*?controlPlane: )\w+`).
			ReplaceAll(talconfig, []byte("${1}"+declared))
		require.NotEqual(t, string(talconfig), string(changed))
		require.NoError(t, os.WriteFile(path, changed, 0o600))

		require.NoError(t, os.Remove(l.ConfigFile(name))) // it is rendered anew

		for _, dryRun := range []string{"DRY_RUN=true", "DRY_RUN=false"} {
			problem := l.session(t, "NODE="+name, "-yes=true", dryRun).fails(t, diagnosis.ExitBadInput,
				diagnosis.ConfigRole, steps.Reset{})
			require.Equal(t, name, problem.Node)
			require.Contains(t, problem.Cause, says)
		}

		require.Empty(t, resets(l.Node(name)))
	}
}

// ownEtcdPartition has machines keep etcd's data on a partition of its own.
func (l *lab) ownEtcdPartition(t *testing.T, names ...string) {
	t.Helper()

	for _, name := range names {
		path := l.ConfigFile(name)
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, append(data, "---\napiVersion: v1alpha1\nkind: VolumeConfig\nname: ETCD\n"+
			"provisioning: {minSize: 1GiB, maxSize: 1GiB}\n"...), 0o600))
	}
}

// A run that is stopped anywhere leaves nodes that the next one goes on with.
func TestAResetThatWasStoppedGoesOn(t *testing.T) {
	t.Parallel()

	for _, stopAt := range []string{"asked to reset", "resetting", "port refused", "no answer", "in maintenance"} {
		t.Run(stopAt, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 3, 1)
			l.up(t)

			s := l.session(t, "-cluster=lab", "-yes=true")
			ctx, stop := context.WithTimeout(t.Context(), patience)

			go func() {
				for ctx.Err() == nil && !strings.Contains(s.out.String(), stopAt) {
					time.Sleep(time.Millisecond)
				}

				stop()
			}()

			err := steps.Execute(ctx, s.Run, steps.Reset{})
			stop()

			if err != nil {
				require.Equal(t, diagnosis.ExitInterrupt, steps.CodeOf(err), "%v\n%s", err, s.out)
			}

			l.session(t, "-cluster=lab", "-yes=true").succeeds(t, steps.Reset{})

			for _, node := range l.Nodes {
				require.Equal(t, "maintenance", node.Stage())
				require.Len(t, resets(node), 1, "%s was reset twice", node.Name())
			}
		})
	}
}
