package steps_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
)

const applyMethod = "ApplyConfiguration"

func TestApplyRepeatsWhatMayPassAndNothingElse(t *testing.T) {
	t.Parallel()

	refusal := func(code codes.Code, text string, times int) emulator.CallFault {
		return emulator.CallFault{Method: applyMethod, Do: emulator.Fail, Code: code, Text: text, Times: times}
	}

	for name, tt := range map[string]struct {
		fault  emulator.CallFault
		sent   int
		failed diagnosis.ID
	}{
		"reply lost after it took effect": {emulator.CallFault{Method: applyMethod, When: emulator.AfterEffect,
			Do: emulator.Cut, Times: 1}, 1, ""},
		"reply lost before it did": {emulator.CallFault{Method: applyMethod, When: emulator.BeforeEffect,
			Do: emulator.Cut, Times: 1}, 2, ""},
		"another apply in progress": {refusal(codes.FailedPrecondition,
			"another apply configuration is already in progress", 2), 3, ""},
		"refused while the API switches": {refusal(codes.PermissionDenied, "not authorized", 1), 2, ""},
		"invalid for good": {refusal(codes.InvalidArgument,
			"1 error occurred:\n\t* install disk is a toaster\n\n", 0), 1, diagnosis.ApplyRejected},
		"in progress for ever": {refusal(codes.FailedPrecondition,
			"another apply configuration is already in progress", 0), 3, diagnosis.ApplyGaveUp},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 1, 1)
			l.untilMaintenance(t)
			fault(l.Node("cp1"), tt.fault)

			s := l.session(t, "MAX_RETRIES=2")
			if tt.failed == "" {
				s.succeeds(t, steps.Apply{})
				require.Equal(t, report.Applied, s.status("applySequential", "cp1"))
			} else {
				problem := s.fails(t, diagnosis.ExitApply, tt.failed, steps.Apply{})
				require.Equal(t, "cp1", problem.Node)
			}

			require.Equal(t, tt.sent, applied(l.Node("cp1")))
			require.Equal(t, report.Applied, s.status("applySequential", "worker1"), "the others are served all the same")
		})
	}
}

// A port that is closed for a moment looks like that of a machine that took its config and went on.
func TestAConfigThatWasLostWithAClosedPortIsNotTakenForAccepted(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		closed time.Duration // the machines' time
		sent   int
	}{
		"closed for a moment":        {3 * time.Second, 2},
		"closed until apply is over": {0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 1, 0)
			l.untilMaintenance(t)
			node := l.Node("cp1")
			fault(node, emulator.CallFault{Method: applyMethod, When: emulator.BeforeEffect, Do: emulator.Hang, Times: 1})

			s := l.session(t, "NODE_REACHABILITY_RETRIES=10")
			applied := make(chan error, 1)

			go func() { applied <- steps.Execute(t.Context(), s.Run, steps.Apply{}) }()

			require.Eventually(t, func() bool { return calls(node, applyMethod) == 1 }, patience, time.Millisecond)
			node.Refuse(true)

			if tt.closed > 0 {
				require.NoError(t, l.Lab.Clock().Sleep(t.Context(), tt.closed))
				node.Refuse(false)
			}

			require.NoError(t, <-applied, s.out)
			node.Refuse(false)
			require.Equal(t, tt.sent, calls(node, applyMethod))

			if tt.closed > 0 {
				s.succeeds(t, steps.Verify{})

				return
			}

			problem := s.fails(t, diagnosis.ExitVerify, diagnosis.StillMaintenance, steps.Verify{})
			require.Contains(t, problem.Cause, "the reply to its config was lost")
			require.Contains(t, problem.Next, "applySequential")
		})
	}
}

func TestRetriesOfApplyKeepTheirDistance(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0)
	l.untilMaintenance(t)
	fault(l.Node("cp1"), emulator.CallFault{
		Method: applyMethod, Do: emulator.Fail, Code: codes.FailedPrecondition,
		Text: "another apply configuration is already in progress",
	})

	l.session(t).fails(t, diagnosis.ExitApply, diagnosis.ApplyGaveUp, steps.Apply{})

	times := l.times("cp1", applyMethod)
	require.Len(t, times, 6)

	for i, least := range []float64{3, 6, 12, 24, 48} {
		require.GreaterOrEqual(t, times[i+1].Sub(times[i]).Seconds()*l.Scale, least)
	}
}

// times are when calls of a method arrived at a machine.
func (l *lab) times(name, method string) []time.Time {
	var times []time.Time

	for _, call := range l.Node(name).Calls() {
		if call.Name() == method {
			times = append(times, call.Time)
		}
	}

	return times
}

func TestApplyServesControlPlanesFirstAndSilentNodesLast(t *testing.T) {
	t.Parallel()

	for name, step := range map[string]steps.Apply{"sequential": {}, "parallel": {Parallel: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 2, 2)
			l.untilMaintenance(t)
			l.Node("cp1").PowerOff()

			// The machine comes back once the last of the others has its config.
			back := make(chan struct{})

			go func() {
				defer close(back)

				wait(t, l.Node("worker2"), func(node *emulator.Node) bool { return applied(node) > 0 })
				l.Node("cp1").PowerOn()
			}()

			l.session(t, "MAX_PARALLEL=1").succeeds(t, step)
			<-back

			var order []string

			for _, node := range l.Nodes {
				require.Equal(t, 1, applied(node), node.Name())

				order = append(order, node.Name())
			}

			slices.SortFunc(order, func(a,
				b string) int {
				return l.times(a, applyMethod)[0].Compare(l.times(b, applyMethod)[0])
			})
			require.Equal(t, []string{"cp2", "worker1", "worker2", "cp1"}, order)
		})
	}
}

func TestAMachineThatNobodyWatchedMeanwhileIsNotStuck(t *testing.T) {
	t.Parallel()

	for name, change := range map[string]func(*emulator.Node, bool){
		"refused": (*emulator.Node).Refuse, "no answer": (*emulator.Node).Silence,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 2, 0)
			l.untilMaintenance(t)

			node, clock := l.Node("cp1"), l.Lab.Clock()
			change(node, true)

			s := l.session(t, "NODE_WAIT=4m", "INSTALL_TIMEOUT=4m")
			s.succeeds(t, steps.Preflight{})
			require.NoError(t, clock.Sleep(t.Context(), 5*time.Minute)) // the turn of the others

			var later sync.WaitGroup

			later.Go(func() {
				if clock.Sleep(t.Context(), time.Minute) == nil {
					change(node, false)
				}
			})
			s.succeeds(t, steps.Apply{})
			later.Wait()
			require.Equal(t, 1, applied(node))
		})
	}
}

func TestMaxParallelBoundsHowManyNodesAreChangedAtOnce(t *testing.T) {
	t.Parallel()

	for setting, most := range map[string]int{"3": 3, "50%": 5, "1": 1} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 3, 6, func(options *labcluster.Options) { options.Timing.Apply = 40 * time.Second })
			l.untilMaintenance(t)

			// Silent machines that come back together are no exception.
			l.Node("worker5").PowerOff()
			l.Node("worker6").PowerOff()

			go func() {
				wait(t, l.Node("cp1"), inStage("installing"))
				l.Node("worker5").PowerOn()
				l.Node("worker6").PowerOn()
			}()

			l.session(t, "MAX_PARALLEL="+setting).succeeds(t, steps.Apply{Parallel: true})
			require.Equal(t, most, l.mostAtOnce(applyMethod))
		})
	}
}

// mostAtOnce is how many calls of a method were under way at the same time, on all machines together.
func (l *lab) mostAtOnce(method string) int {
	type change struct {
		at   time.Time
		more int
	}

	var changes []change

	for _, node := range l.Nodes {
		for _, call := range node.Calls() {
			if call.Name() == method {
				changes = append(changes, change{call.Time, 1}, change{call.Ended, -1})
			}
		}
	}

	slices.SortFunc(changes, func(a, b change) int { return a.at.Compare(b.at) })

	now, most := 0, 0
	for _, change := range changes {
		now += change.more
		most = max(most, now)
	}

	return most
}

func TestAConfigGoesToTheDeclaredMachineAlone(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 1, edit("worker1", func(node *emulator.NodeOptions) { node.Links[0].MAC = "52:54:00:aa:bb:cc" }))
	l.untilMaintenance(t)

	s := l.session(t)
	problem := s.fails(t, diagnosis.ExitApply, diagnosis.WrongMachine, steps.Apply{})
	require.Equal(t, "worker1", problem.Node)
	require.Contains(t, problem.Cause, "52:54:00:aa:bb:cc")
	require.Zero(t, applied(l.Node("worker1")))
	require.Equal(t, 1, applied(l.Node("cp1")))
}

func TestACertificateOtherThanPreflightSawMeansCheckingAgain(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0)
	l.untilMaintenance(t)

	s := l.session(t).succeeds(t, steps.Preflight{})
	reads := calls(l.Node("cp1"), "List")

	// The same certificate: only the machine's identity is read again.
	s.DryRun(t)
	require.Less(t, calls(l.Node("cp1"), "List")-reads, reads)

	l.Node("cp1").PowerOff()
	l.Node("cp1").PowerOn()
	wait(t, l.Node("cp1"), inStage("maintenance"))

	reads = calls(l.Node("cp1"), "List")
	s.succeeds(t, steps.Apply{})
	require.GreaterOrEqual(t, calls(l.Node("cp1"), "List")-reads, 3, "its disks, volumes and links")
	require.Equal(t, 1, applied(l.Node("cp1")))
}

// DryRun executes apply without changing anything.
func (s *session) DryRun(t *testing.T) {
	t.Helper()

	s.Settings.DryRun = true
	s.do(t, steps.Apply{})
	s.Settings.DryRun = false
}

func TestGivenFingerprintsRefuseEveryOtherCertificate(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0)
	l.untilMaintenance(t)

	l.session(t, "CERT_FINGERPRINTS=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=").
		fails(t, diagnosis.ExitApply, diagnosis.FingerprintMismatch, steps.Apply{})
	require.Zero(t, applied(l.Node("cp1")))
}

func TestApplyAloneRefusesAnAmbiguousDisk(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0, edit("cp1", func(node *emulator.NodeOptions) {
		node.Disks = []emulator.Disk{
			{Name: "vda", Size: 50_000_000_000, Transport: "virtio"},
			{Name: "vdb", Size: 900_000_000_000, Transport: "virtio"},
		}
	}))
	l.changeFile(t, "cp1", "disk: /dev/vda", "diskSelector:\n            size: '>= 10GB'")
	l.untilMaintenance(t)

	l.session(t).fails(t, diagnosis.ExitApply, diagnosis.InstallDiskAmbiguous, steps.Apply{})
	require.Zero(t, applied(l.Node("cp1")))

	l.session(t, "-allowAmbiguousDisk=true").succeeds(t, steps.Apply{})
	require.Equal(t, 1, applied(l.Node("cp1")))
}

func TestADriftedNode(t *testing.T) {
	t.Parallel()

	t.Run("gets its new config while there is no etcd", func(t *testing.T) {
		t.Parallel()

		l := newLab(t, 2, 0)
		l.installed(t)
		l.tuned(t, "cp2")

		s := l.session(t, "DRY_RUN=true")
		s.fails(t, diagnosis.ExitDryRun, diagnosis.WouldChange, steps.Apply{})
		require.Equal(t, 1, applied(l.Node("cp2")))

		s = l.session(t).succeeds(t, steps.Apply{})
		require.Equal(t, report.Applied, s.status("applySequential", "cp2"))
		require.Equal(t, report.Skipped, s.status("applySequential", "cp1"))
		require.Equal(t, 2, applied(l.Node("cp2")))
		require.Contains(t, string(l.Node("cp2").Config()), tunedSetting)
	})

	t.Run("gets nothing before it has booted", func(t *testing.T) {
		t.Parallel()

		l := newLab(t, 1, 0)
		l.untilMaintenance(t)
		l.Node("cp1").Set(func(f *emulator.Faults) { f.InstallStall = time.Hour })
		l.session(t).succeeds(t, steps.Apply{})
		l.tuned(t, "cp1")
		wait(t, l.Node("cp1"), inStage("installing"))

		second, looks := l.session(t), calls(l.Node("cp1"), "ServiceList")

		var running sync.WaitGroup

		running.Go(func() { second.succeeds(t, steps.Apply{}) })
		require.Eventually(t, func() bool { return calls(l.Node("cp1"), "ServiceList") > looks+3 }, labcluster.Deadline,
			time.Millisecond)
		require.Equal(t, 1, applied(l.Node("cp1")))
		l.Node("cp1").Set(func(f *emulator.Faults) { f.InstallStall = 0 })
		running.Wait()

		require.Equal(t, report.Applied, second.status("applySequential", "cp1"))
		require.Equal(t, 2, l.Node("cp1").Boots(), "the installer was not taken over")
		require.Contains(t, string(l.Node("cp1").Config()), tunedSetting)
	})

	t.Run("counts as one of a cluster with etcd while a control plane is silent", func(t *testing.T) {
		t.Parallel()

		l := newLab(t, 2, 0)
		l.installed(t)
		l.tuned(t, "cp2")
		l.Node("cp1").PowerOff()

		s := l.session(t, "NODE=cp2").succeeds(t, steps.Apply{})
		require.Equal(t, report.Drifted, s.status("applySequential", "cp2"))
		require.Equal(t, 1, applied(l.Node("cp2")))
	})

	t.Run("of a cluster with etcd is changed only when that is asked for", func(t *testing.T) {
		t.Parallel()

		l := newLab(t, 3, 1)
		l.up(t)
		l.tuned(t, "cp2")
		l.tuned(t, "worker1")

		s := l.session(t).succeeds(t, steps.Apply{})
		require.Equal(t, report.Drifted, s.status("applySequential", "cp2"))
		require.Equal(t, 1, applied(l.Node("cp2")))

		s = l.session(t, "-update=true").succeeds(t, steps.Apply{})
		require.Equal(t, report.Applied, s.status("applySequential", "cp2"))
		require.True(t, l.times("worker1", applyMethod)[1].Before(l.times("cp2", applyMethod)[1]),
			"workers meet a bad config first")
		require.Equal(t, 1, l.Node("cp2").Boots()-1, "the install's reboot is the only one")
	})

	t.Run("reboots only when that is asked for too, and never at the cost of quorum", func(t *testing.T) {
		t.Parallel()

		l := newLab(t, 3, 0)
		l.up(t)
		l.needsReboot(t, "cp2")

		problem := l.session(t, "-update=true").fails(t, diagnosis.ExitApply, diagnosis.UpdateNeedsReboot, steps.Apply{})
		require.Contains(t, problem.Next, "-update -reboot")

		l.session(t, "-update=true", "-reboot=true").succeeds(t, steps.Apply{})
		require.Equal(t, 3, l.Node("cp2").Boots())
		l.requireOneEtcd(t)

		two := newLab(t, 2, 0)
		two.up(t)
		two.needsReboot(t, "cp2")
		two.session(t, "-update=true", "-reboot=true").fails(t, diagnosis.ExitApply, diagnosis.QuorumWouldBeLost,
			steps.Apply{})
		require.Equal(t, 2, two.Node("cp2").Boots())
	})

	t.Run("is left alone while etcd is not healthy", func(t *testing.T) {
		t.Parallel()

		l := newLab(t, 3, 0)
		l.up(t)
		l.tuned(t, "cp2")
		l.Node("cp3").PowerOff()

		l.session(t, "-update=true", "NODE=cp2").fails(t, diagnosis.ExitApply, diagnosis.EtcdNotHealthy, steps.Apply{})
		require.Equal(t, 1, applied(l.Node("cp2")))
	})

	t.Run("that does not come back well holds the others back", func(t *testing.T) {
		t.Parallel()

		l := newLab(t, 1, 2)
		l.up(t)
		l.needsReboot(t, "worker1")
		l.tuned(t, "worker2")
		l.Node("worker1").Set(func(f *emulator.Faults) { f.BootLoop = true })

		s := l.session(t, "-update=true", "-reboot=true")
		problem := s.fails(t, diagnosis.ExitApply, diagnosis.StageStuck, steps.Apply{})
		require.Equal(t, "worker1", problem.Node)
		require.ErrorContains(t, s.err, string(diagnosis.ChangeHeldBack))
		require.Equal(t, 1, applied(l.Node("worker2")))
	})

	t.Run("whose reply is lost", func(t *testing.T) {
		t.Parallel()

		for name, when := range map[string]emulator.When{"before the effect": emulator.BeforeEffect,
			"after it": emulator.AfterEffect} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()

				l := newLab(t, 1, 0)
				l.up(t)
				l.tuned(t, "cp1")

				fault(l.Node("cp1"),
					emulator.CallFault{Method: applyMethod, Mutating: true, When: when, Do: emulator.Cut, Times: 1})
				l.session(t, "-update=true").succeeds(t, steps.Apply{})
				require.Contains(t, string(l.Node("cp1").Config()), tunedSetting)
			})
		}
	})
}

// needsReboot changes a machine's config file in a way that no running system takes over.
func (l *lab) needsReboot(t *testing.T, name string) {
	t.Helper()

	l.changeFile(t, name, "machine:\n",
		"machine:\n  udev:\n    rules:\n      - SUBSYSTEM==\"example\", MODE=\"0660\"\n")
}

func TestAMachineThatRunsAnothersConfigIsNamedWithBoth(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 2, func(options *labcluster.Options) { options.DHCP = true })
	l.untilMaintenance(t)
	l.sendInsecurely(t, "worker1", "worker2")

	for _, step := range []steps.Step{steps.Preflight{}, steps.Apply{}, steps.Verify{}} {
		l.session(t).do(t, steps.Apply{})

		problem := l.session(t, "NODE=worker1").swapped(t, step)
		require.Contains(t, problem.Cause, "worker1")
		require.Contains(t, problem.Cause, "worker2")
	}
}

func (s *session) swapped(t *testing.T, step steps.Step) *diagnosis.Problem {
	t.Helper()

	return s.fails(t, diagnosis.ExitVerify, diagnosis.NodesSwapped, step)
}

// sendInsecurely sends a machine the config of another, as somebody might by hand, and waits until it serves its secure
// API.
func (l *lab) sendInsecurely(t *testing.T, name, config string) {
	t.Helper()

	// The control plane has to be up for a worker to open its API.
	l.session(t, "NODE=cp1").succeeds(t, steps.Apply{}, steps.Verify{})
	l.session(t).do(t, steps.Bootstrap{})

	data, err := l.Config(config)
	require.NoError(t, err)
	l.applyInsecurely(t, name, data)
	wait(t, l.Node(name), inStage("running"))
}

func TestAConfigThatThisRunDidNotSendIsNotTakenForItsOwn(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0)
	l.untilMaintenance(t)

	s := l.session(t).succeeds(t, steps.Apply{}, steps.Verify{})

	// Somebody else changes the node meanwhile.
	l.tuned(t, "cp1")

	data, err := l.Config("cp1")
	require.NoError(t, err)

	_, err = l.client(t, "cp1").ApplyConfiguration(t.Context(),
		&machine.ApplyConfigurationRequest{Data: data, Mode: machine.ApplyConfigurationRequest_AUTO})
	require.NoError(t, err)

	s.fails(t, diagnosis.ExitVerify, diagnosis.ConfigUnsent, steps.Verify{})
}

func TestTwoRunsOnOneMachineTakeTurns(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0, func(options *labcluster.Options) { options.Timing.Apply = 30 * time.Second })
	l.untilMaintenance(t)

	first, second := l.session(t), l.session(t)

	var both sync.WaitGroup

	both.Go(func() { first.succeeds(t, steps.Apply{}) })
	require.Eventually(t, func() bool { return applied(l.Node("cp1")) > 0 }, labcluster.Deadline, time.Millisecond)

	problem := second.fails(t, diagnosis.ExitPreflight, diagnosis.LockTaken, steps.Apply{})
	require.Contains(t, problem.Cause, "process ")
	both.Wait()
	require.Equal(t, 1, applied(l.Node("cp1")))
}

// As when another user made it for himself alone. With another TMPDIR the two would no longer take turns.
func TestALockThatCannotBeOpenedIsToBeRemoved(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0)
	l.session(t).succeeds(t, steps.Configs{})

	locks, err := filepath.Glob(filepath.Join(l.folder, "talos-mage-*.lock"))
	require.NoError(t, err)
	require.Len(t, locks, 1)
	require.NoError(t, os.Remove(locks[0]))

	// Not even root can open a socket.
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(l.folder, "socket"), Net: "unix"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = socket.Close() })
	require.NoError(t, os.Rename(filepath.Join(l.folder, "socket"), locks[0]))

	problem := l.session(t).fails(t, diagnosis.ExitBadInput, diagnosis.FileUnwritable, steps.Configs{})
	require.Contains(t, problem.Next, "have its owner remove "+locks[0])
	require.NotContains(t, problem.Next, "TMPDIR")
}

// As when somebody else configures the node in that moment: it installs, and that takes longer than a few attempts.
func TestANodeThatFallsSilentBeforeItWasSentAnythingIsWaitedFor(t *testing.T) {
	t.Parallel()

	var lists atomic.Int32

	l := newLab(t, 1, 0, func(options *labcluster.Options) {
		options.LabOptions.Watch = func(node *emulator.Node, call emulator.Call) {
			// The observation of the node reads its links, and so does what is about to send.
			if call.Name() == "List" && lists.Add(1) == 2 {
				node.Refuse(true)
				time.AfterFunc(500*time.Millisecond, func() { node.Refuse(false) })
			}
		}
	})
	l.untilMaintenance(t)

	l.session(t, "MAX_RETRIES=1").succeeds(t, steps.Apply{})
	require.GreaterOrEqual(t, lists.Load(), int32(2))
	require.Equal(t, 1, applied(l.Node("cp1")))
}

// As when an address goes to another machine in that moment. A web server refuses no config that could be corrected.
func TestWhatIsNoNodeAnyMoreIsNotSaidToRefuseTheConfig(t *testing.T) {
	t.Parallel()

	for _, call := range []int32{1, 4, 8, 12} {
		t.Run(fmt.Sprintf("after call %d", call), func(t *testing.T) {
			t.Parallel()

			var calls atomic.Int32

			l := newLab(t, 1, 0, func(options *labcluster.Options) {
				options.LabOptions.Watch = func(node *emulator.Node, _ emulator.Call) {
					if calls.Add(1) == call {
						node.Refuse(true) // which ends the connections that are open
						node.Set(func(f *emulator.Faults) { f.Impostor = emulator.PlainHTTPImpostor })
						node.Refuse(false)
					}
				}
			})
			l.untilMaintenance(t)

			problem := l.session(t).fails(t, diagnosis.ExitApply, diagnosis.NotTalos, steps.Apply{})
			require.Contains(t, problem.Cause, "a plain HTTP server")
			require.NotContains(t, problem.Next, "correct the config")
		})
	}
}

// abandoned is a context that is done before anybody who waits for it is told.
type abandoned struct{ context.Context }

func (abandoned) Err() error { return context.Canceled }

func TestALockThatIsTakenInTheMomentOfAnInterruptionIsGivenBack(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0)

	interrupted := l.session(t)
	require.Equal(t, diagnosis.ExitInterrupt,
		steps.CodeOf(steps.Execute(abandoned{t.Context()}, interrupted.Run, steps.Apply{})))

	l.untilMaintenance(t)
	l.session(t).succeeds(t, steps.Apply{})
}

func TestAWrongClockIsNamedByApplyToo(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0)
	l.installed(t)
	l.Node("cp1").Set(func(f *emulator.Faults) { f.ClockOffset = 400 * 24 * time.Hour })

	require.Eventually(t, func() bool {
		s := l.session(t, "MAX_RETRIES=1")
		s.do(t, steps.Apply{})
		problem, failed := diagnosis.AsProblem(s.err)

		return failed && problem.ID == diagnosis.NodeClock && problem.Node == "cp1"
	}, labcluster.Deadline, 50*time.Millisecond)
}
