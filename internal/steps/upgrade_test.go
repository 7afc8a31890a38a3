//go:build !race

// Below the race detector the matrix of faults plays the same.

package steps_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/kubernetes"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/kube/drain"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/test/documents"
)

func TestAClusterIsUpgradedNodeByNodeControlPlanesFirst(t *testing.T) {
	t.Parallel()

	var (
		l       *lab
		drained = map[string][]bool{}
	)

	l = toUpgrade(t, 3, 2, documents.Talos, func(options *labcluster.Options) {
		options.LabOptions.Watch = func(node *emulator.Node, call emulator.Call) {
			if name := call.Name(); name == "Pull" || name == rebootCall {
				drained[node.Name()] = append(drained[node.Name()], l.cordons(t)[node.Name()] == drain.Ours)
			}
		}
	})

	s := l.session(t, "DRY_RUN=true")
	s.fails(t, diagnosis.ExitDryRun, diagnosis.WouldChange, steps.Upgrade{})
	require.Contains(t, s.detail(upgradeStep, "cp1"), "from Talos v1.13.9 to v1.14.1")
	require.Empty(t, snapshots(t, filepath.Join(l.Dir, "snapshots")))

	s = l.session(t, "-yes=true", "MAX_PARALLEL=1")
	s.succeeds(t, steps.Upgrade{})
	require.Equal(t, "v1.14.1 v1.14.1 v1.14.1 v1.14.1 v1.14.1", l.versions())
	require.Len(t, snapshots(t, filepath.Join(l.Dir, "snapshots")), 1)
	require.Regexp(t, `lab-.*\.db, .*copied from cp\d and verified$`, s.detail(upgradeStep, ""))
	require.Empty(t, l.cordons(t))

	// One is done before the next is begun.
	var last time.Time

	for _, node := range l.Nodes {
		require.Equal(t, []string{"Pull", "Upgrade", "Reboot"}, changesOf(node)[len(changesOf(node))-3:], node.Name())
		require.True(t, l.times(node.Name(), pullCall[strings.LastIndex(pullCall, "/")+1:])[0].After(last), node.Name())

		last = l.times(node.Name(), rebootCall)[0]

		require.Equal(t, report.Applied, s.status(upgradeStep, node.Name()))
		require.Equal(t, []bool{false, true}, drained[node.Name()], "%s has its image before its pods leave it", node.Name())
	}

	// Done is done.
	boots := l.Nodes[0].Boots()
	s = l.session(t, "-yes=true")
	s.succeeds(t, steps.Upgrade{})
	require.Equal(t, report.OK, s.status(upgradeStep, "cp1"))
	require.Equal(t, boots, l.Nodes[0].Boots())
	require.Len(t, snapshots(t, filepath.Join(l.Dir, "snapshots")), 1)
}

func TestNodesBeforeTalos113AreUpgradedByTheOlderCall(t *testing.T) {
	t.Parallel()

	l := toUpgrade(t, 3, 1, emulator.DefaultTalosVersion,
		func(options *labcluster.Options) { options.TalosVersion = "v1.12.1" })
	l.session(t, "-yes=true").succeeds(t, steps.Upgrade{})

	for _, node := range l.Nodes {
		require.Equal(t, "Upgrade", changesOf(node)[len(changesOf(node))-1], node.Name())
	}

	l.isUpgraded(t, emulator.DefaultTalosVersion)
}

func TestASlowPullIsTriedAgainAndAMissingImageIsNot(t *testing.T) {
	t.Parallel()

	l := toUpgrade(t, 3, 0, documents.Talos)
	l.Node("cp1").Set(func(f *emulator.Faults) { f.Install, f.InstallTimes = emulator.InstallImageSlow, 2 })
	l.Node("cp2").Set(func(f *emulator.Faults) { f.Install = emulator.InstallImagePull })

	s := l.session(t, "-yes=true")
	problem := s.fails(t, diagnosis.ExitApply, diagnosis.UpgradeImageMissing, steps.Upgrade{})
	require.Equal(t, "cp2", problem.Node)
	require.Contains(t, problem.Cause, "not found")
	require.Contains(t, s.out.String(), "still pulling the installer")
	require.Equal(t, report.Skipped, s.status(upgradeStep, "cp3"))
	require.Equal(t, "left alone, since cp2 did not come through", s.detail(upgradeStep, "cp3"))
	require.Equal(t, "v1.14.1 v1.13.9 v1.13.9", l.versions())
	require.Equal(t, 1, calls(l.Node("cp2"), "Pull"), "what does not exist is not asked for again")
	require.Empty(t, l.cordons(t))

	l.Node("cp2").Set(func(f *emulator.Faults) { f.Install = emulator.InstallWorks })
	l.isUpgraded(t, documents.Talos)
}

func TestAnInstallerThatFailsLeavesTheNodeAsItWas(t *testing.T) {
	t.Parallel()

	l := toUpgrade(t, 3, 0, documents.Talos)
	l.Node("cp1").Set(func(f *emulator.Faults) { f.Install = emulator.InstallDiskWrite })

	problem := l.session(t, "-yes=true").fails(t, diagnosis.ExitApply, diagnosis.UpgradeFailed, steps.Upgrade{})
	require.Equal(t, "cp1", problem.Node)
	require.Contains(t, problem.Cause, "the installer ended with code 1: error: failed to write partition")
	require.Equal(t, "v1.13.9 v1.13.9 v1.13.9", l.versions())
	require.Empty(t, l.cordons(t))
	require.Equal(t, 1, calls(l.Node("cp1"), "Upgrade"))

	l.Node("cp1").Set(func(f *emulator.Faults) { f.Install = emulator.InstallWorks })
	l.isUpgraded(t, documents.Talos)
}

func TestANodeThatGoesBackToItsOldSystemIsNoSuccess(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct{ before, after, says string }{
		"with the LifecycleService": {"v1.13.9", "v1.14.1", "the installer ended well, but the new system did not come up"},
		"by the older call":         {"v1.12.1", "v1.13.9", "its own drain or the installer failed, or the new system"},
		"to another patch":          {"v1.14.0", "v1.14.1", "the installer ended well"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := toUpgrade(t, 1, 2, test.after, func(options *labcluster.Options) { options.TalosVersion = test.before })
			l.Node("worker1").Set(func(f *emulator.Faults) { f.NewSystemFails = true })

			s := l.session(t, "-yes=true", "MAX_PARALLEL=1")
			problem := s.fails(t, diagnosis.ExitApply, diagnosis.UpgradeRolledBack, steps.Upgrade{})
			require.Equal(t, "worker1", problem.Node)
			require.Contains(t, problem.Cause, "it rebooted and runs "+test.before+" again, not "+test.after)
			require.Contains(t, problem.Cause, test.says)
			require.Equal(t, test.after+" "+test.before+" "+test.before, l.versions())
			require.Empty(t, l.cordons(t))

			l.Node("worker1").Set(func(f *emulator.Faults) { f.NewSystemFails = false })
			l.isUpgraded(t, test.after)
		})
	}
}

// What a node runs after its reboot is believed, not what it was told.
func TestANodeThatSomebodyElseUpgradesTooIsNotBelieved(t *testing.T) {
	t.Parallel()

	own, _, _ := strings.Cut(clusterfiles.DefaultImage, "/metal-installer/")
	other := strings.Repeat("5a", 32)

	for image, says := range map[string]string{
		clusterfiles.DefaultImage + ":v1.14.0":         "it runs v1.14.0, neither v1.13.9 as before nor v1.14.1",
		own + "/metal-installer/" + other + ":v1.14.1": "it runs v1.14.1, but made from schematic " + other,
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()

			var (
				l     *lab
				cross sync.Once
			)

			l = toUpgrade(t, 1, 2, documents.Talos, func(options *labcluster.Options) {
				options.LabOptions.Watch = func(node *emulator.Node, call emulator.Call) {
					if call.Name() == rebootCall && node.Name() == "worker1" {
						cross.Do(func() { l.upgradeAside(t, "worker1", image) })
					}
				}
			})

			s := l.session(t, "-yes=true", "MAX_PARALLEL=1")
			problem := s.fails(t, diagnosis.ExitApply, diagnosis.UpgradeOtherSystem, steps.Upgrade{})
			require.Equal(t, "worker1", problem.Node)
			require.Contains(t, problem.Cause, says)
			require.Equal(t, report.Skipped, s.status(upgradeStep, "worker2"))

			l.isUpgraded(t, documents.Talos)
		})
	}
}

// The next control plane is left alone until etcd is whole again.
func TestEtcdThatIsNotWholeAfterAControlPlaneEndsTheUpgrade(t *testing.T) {
	t.Parallel()

	var l *lab

	l = toUpgrade(t, 3, 1, documents.Talos, func(options *labcluster.Options) {
		options.LabOptions.Watch = func(node *emulator.Node, call emulator.Call) {
			if call.Name() == rebootCall && node.Name() == "cp1" {
				l.Node("cp2").Set(func(f *emulator.Faults) { f.EtcdUnhealthy = true })
			}
		}
	})

	s := l.session(t, "-yes=true", seconds("ETCD_TIMEOUT", 30))
	problem := s.fails(t, diagnosis.ExitApply, diagnosis.UpgradeEtcdNotBack, steps.Upgrade{})
	require.Equal(t, "cp1", problem.Node)
	require.Contains(t, problem.Cause, "it runs v1.14.1, but etcd is not whole")
	require.Contains(t, problem.Cause, "cp2: etcd runs, not healthy")
	require.Equal(t, "mage etcd:status", problem.Next)
	require.Equal(t, report.Skipped, s.status(upgradeStep, "cp3"))
	require.Equal(t, report.Skipped, s.status(upgradeStep, "worker1"))
	require.Equal(t, "v1.14.1 v1.13.9 v1.13.9 v1.13.9", l.versions())

	l.Node("cp2").Set(func(f *emulator.Faults) { f.EtcdUnhealthy = false })
	l.isUpgraded(t, documents.Talos)
}

func TestANodeThatNeverComesBackEndsTheUpgrade(t *testing.T) {
	t.Parallel()

	l := toUpgrade(t, 3, 1, documents.Talos)
	lost := l.Node("cp2")

	off := make(chan struct{})

	go func() {
		defer close(off)

		for lost.Boots() < 3 && t.Context().Err() == nil && lost.Stage() != "rebooting" {
			time.Sleep(5 * time.Millisecond)
		}

		lost.PowerOff()
	}()

	s := l.session(t, "-yes=true", seconds("NODE_WAIT", 300), seconds("INSTALL_TIMEOUT", 300))
	problem := s.fails(t, diagnosis.ExitApply, diagnosis.NodeSilent, steps.Upgrade{})
	<-off

	require.Equal(t, "cp2", problem.Node)
	require.Contains(t, problem.Cause, "it did not come back from the reboot into v1.14.1: ")
	require.Contains(t, s.out.String(), "it stays cordoned")
	require.Equal(t, report.Skipped, s.status(upgradeStep, "cp3"))
	require.Equal(t, report.Skipped, s.status(upgradeStep, "worker1"))
	require.Equal(t, map[string]drain.Owner{"cp2": drain.Ours}, l.cordons(t))

	// It is named as well by a run that leaves it out.
	lost.PowerOn()
	wait(t, lost, (*emulator.Node).EtcdVoter)

	s = l.session(t, "-yes=true", "NODE=worker1")
	s.succeeds(t, steps.Upgrade{})
	require.Regexp(t, `stays cordoned.*node="cp2"`, s.out.String())

	l.isUpgraded(t, documents.Talos)
}

// A person at three in the morning is told at once what holds the upgrade up, and how to do without it.
func TestANodeThatIsOffIsNamedAtOnceAndNothingIsBegun(t *testing.T) {
	t.Parallel()

	l := toUpgrade(t, 3, 2, documents.Talos)
	l.drain(t, "worker1")
	l.Node("worker2").PowerOff()

	s := l.session(t, "DRY_RUN=true")
	problem := s.fails(t, diagnosis.ExitPreflight, diagnosis.UpgradeNodeAway, steps.Upgrade{})
	require.Equal(t, "worker2", problem.Node)
	require.Contains(t, problem.Next, "or leave it out: mage upgrade -node=cp1,cp2,cp3,worker1")
	require.Equal(t, report.Planned, s.status(upgradeStep, "cp1"), "the rest of the plan is told all the same")
	require.Equal(t, report.Refused, s.status(upgradeStep, "worker2"))

	s = l.session(t, "-yes=true", "NODE_WAIT=24h", "INSTALL_TIMEOUT=24h")
	s.fails(t, diagnosis.ExitPreflight, diagnosis.UpgradeNodeAway, steps.Upgrade{})
	require.Zero(t, calls(l.Node("cp1"), "EtcdSnapshot")+calls(l.Node("cp1"), "Pull")+calls(l.Node("worker1"), "Pull"))

	l.Node("cp3").PowerOff()

	problem = l.session(t, "-yes=true", "NODE=cp1,cp2,cp3").fails(t, diagnosis.ExitPreflight, diagnosis.UpgradeNodeAway,
		steps.Upgrade{})
	require.Equal(t, "cp3", problem.Node)
	require.Contains(t, problem.Cause, "etcd is not whole without it")
	require.Contains(t, problem.Next, "mage replaceNode cp3")
}

// A member of etcd that falls ill after the plan was made keeps each control plane from being taken down, in its words.
func TestNoControlPlaneIsTakenDownOnceAnotherMemberIsIll(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct{ before, after, during string }{
		"before the first":           {"v1.13.9", "v1.14.1", "EtcdSnapshot"},
		"while its image is pulled":  {"v1.13.9", "v1.14.1", "Pull"},
		"before it does all at once": {"v1.12.1", "v1.13.9", "EtcdSnapshot"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var (
				l     *lab
				falls sync.Once
			)

			l = toUpgrade(t, 3, 0, test.after, func(o *labcluster.Options) {
				o.TalosVersion = test.before
				o.LabOptions.Watch = func(_ *emulator.Node, call emulator.Call) {
					if call.Name() == test.during {
						falls.Do(func() { l.Node("cp3").Set(func(f *emulator.Faults) { f.EtcdUnhealthy = true }) })
					}
				}
			})

			problem := l.session(t, "-yes=true").fails(t, diagnosis.ExitApply, diagnosis.UpgradeEtcdUnhealthy,
				steps.Upgrade{})
			require.Equal(t, "cp1", problem.Node)
			require.Contains(t, problem.Cause, "etcd is not whole")
			require.Contains(t, problem.Cause, "cp3: etcd runs, not healthy")
			require.Contains(t, problem.Next, "mage etcd:status")
			require.False(t, slices.ContainsFunc(l.Node("cp1").Calls(), func(call emulator.Call) bool {
				return call.Name() == rebootCall || call.Method == atOnceCall
			}))
			require.Empty(t, l.cordons(t))

			l.Node("cp3").Set(func(f *emulator.Faults) { f.EtcdUnhealthy = false })
			l.isUpgraded(t, test.after)
		})
	}
}

// Whatever a run ends with, it names a cordon that an earlier one has left, and the command that takes it back.
func TestACordonOfAnEarlierRunIsNeverLeftInSilence(t *testing.T) {
	t.Parallel()

	l := toUpgrade(t, 1, 2, documents.Talos)
	l.drain(t, "worker2")
	l.Node("worker1").Set(func(f *emulator.Faults) { f.Install = emulator.InstallImagePull })

	for _, test := range []struct {
		name, settings string
		change         func()
		code           diagnosis.ExitCode
		id             diagnosis.ID
	}{
		{name: "a dry run", settings: "DRY_RUN=true", code: diagnosis.ExitDryRun, id: diagnosis.WouldChange},
		{name: "nobody has agreed", code: diagnosis.ExitBadInput, id: diagnosis.NotAgreed},
		{name: "it is left out", settings: "-yes=true NODE=worker1", code: diagnosis.ExitApply,
			id: diagnosis.UpgradeImageMissing},
		{name: "another node fails before its turn", settings: "-yes=true NODE=worker1,worker2 MAX_PARALLEL=1",
			code: diagnosis.ExitApply, id: diagnosis.UpgradeImageMissing},
		{name: "the plan is refused", settings: "-yes=true", code: diagnosis.ExitPreflight, id: diagnosis.UpgradeNodeAway,
			change: l.Node("worker1").PowerOff},
	} {
		if test.change != nil {
			test.change()
		}

		s := l.session(t, strings.Fields(test.settings)...)
		s.fails(t, test.code, test.id, steps.Upgrade{})

		var named []string

		for _, finding := range s.Findings() {
			if finding.ID == diagnosis.CordonLeft {
				named = append(named, finding.Node)
				require.Equal(t, "mage upgrade -node=worker2 takes the cordon back once the node is whole; at once: "+
					"kubectl uncordon worker2", finding.Next, test.name)
			}
		}

		require.Equal(t, []string{"worker2"}, named, test.name)
	}
}

func TestABudgetThatForbidsItHoldsTheNodeAndIsNamed(t *testing.T) {
	t.Parallel()

	l := toUpgrade(t, 3, 2, documents.Talos, func(options *labcluster.Options) {
		options.CNI = "flannel" // without one no pod runs
		options.LabOptions.Workloads = []kubernetes.Workload{{Name: "db", Node: "worker1", Budget: 1}}
	})

	problem := l.session(t, "-yes=true", "MAX_PARALLEL=1").fails(t, diagnosis.ExitKubernetes, diagnosis.DrainBlocked,
		steps.Upgrade{})
	require.Equal(t, "worker1", problem.Node)
	require.Contains(t, problem.Cause, "pod default/db")
	require.Contains(t, problem.Cause, "PodDisruptionBudget db needs 1")
	require.Equal(t, "v1.14.1 v1.14.1 v1.14.1 v1.13.9 v1.13.9", l.versions())
	require.Empty(t, l.cordons(t), "it goes on as before")
	require.Zero(t, calls(l.Node("worker1"), "Upgrade"))
}

func TestARollbackForAnExtensionThatTheNewImageLacksNamesIt(t *testing.T) {
	t.Parallel()

	l := toUpgrade(t, 1, 1, documents.Talos, edit("worker1", func(node *emulator.NodeOptions) {
		node.Extensions = []emulator.Extension{{Name: "zfs", Version: "2.4.0"}}
	}))
	l.Node("worker1").Set(func(f *emulator.Faults) { f.NewSystemFails = true })

	problem := l.session(t, "-yes=true", "NODE=worker1").fails(t, diagnosis.ExitApply, diagnosis.UpgradeRolledBack,
		steps.Upgrade{})
	require.Contains(t, problem.Cause, "; the new image lacks what the old one has: zfs")
}

func TestANodeThatFallsSilentInAPullIsNotWaitedForForEver(t *testing.T) {
	t.Parallel()

	l := toUpgrade(t, 1, 1, documents.Talos)
	fault(l.Node("worker1"), emulator.CallFault{Method: pullCall, Do: emulator.Freeze, Times: 1})

	l.session(t, "-yes=true", "NODE=worker1").succeeds(t, steps.Upgrade{})
	require.Equal(t, 2, calls(l.Node("worker1"), "Pull"))
	require.Equal(t, "v1.13.9 v1.14.1", l.versions())
}

// The only control plane's API goes away whenever it restarts, and with it whoever could be asked to drain the node.
func TestAKubernetesAPIThatIsAwayForAWhileIsWaitedForBeforeADrain(t *testing.T) {
	t.Parallel()

	// The pull is long enough to take the API away meanwhile.
	l := toUpgrade(t, 1, 0, documents.Talos, func(options *labcluster.Options) { options.Timing.Pull = 20 * time.Second })
	node := l.Node("cp1")

	s := l.session(t, "-yes=true")
	healed := make(chan struct{})

	go func() {
		defer close(healed)

		for calls(node, "Pull") == 0 && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}

		node.Set(func(f *emulator.Faults) { f.KubernetesDown = true })

		for !strings.Contains(s.out.String(), "draining: the Kubernetes API: ") && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}

		node.Set(func(f *emulator.Faults) { f.KubernetesDown = false })
	}()

	s.succeeds(t, steps.Upgrade{})
	<-healed
	require.Equal(t, documents.Talos, l.versions())
}

func TestACordonOfSomebodyElseStays(t *testing.T) {
	t.Parallel()

	l := toUpgrade(t, 1, 1, documents.Talos)

	l.cordon(t.Context(), t, "worker1")

	s := l.session(t, "-yes=true", "NODE=worker1")
	s.succeeds(t, steps.Upgrade{})
	require.Equal(t, "v1.13.9 v1.14.1", l.versions())
	require.Contains(t, s.detail(upgradeStep, "worker1"), "; still cordoned, and not by us")
	require.Equal(t, map[string]drain.Owner{"worker1": drain.Others}, l.cordons(t))
}

// Workers go down so many at once as was said, after all control planes. Who cordons one meanwhile finds it so.
func TestWorkersAreUpgradedSoManyAtOnceAndKeepTheCordonsOfOthers(t *testing.T) {
	t.Parallel()

	var (
		mu     sync.Mutex
		l      *lab
		begun  = map[*emulator.Node]bool{}
		most   int
		early  []string
		cordon = sync.OnceFunc(func() { l.cordon(context.Background(), t, "worker4") })
		armed  = make(chan struct{})
	)

	l = toUpgrade(t, 1, 4, documents.Talos, func(options *labcluster.Options) {
		options.LabOptions.Watch = func(node *emulator.Node, call emulator.Call) {
			select {
			case <-armed:
			default:
				return
			}

			if call.Name() != "Pull" || node.Name() == "cp1" {
				return
			}

			mu.Lock()
			defer mu.Unlock()

			cordon()

			begun[node] = true
			underway := 0

			for one := range begun {
				if one.TalosVersion() != documents.Talos {
					underway++
				}
			}

			most = max(most, underway)

			if l.Node("cp1").TalosVersion() != documents.Talos {
				early = append(early, node.Name())
			}
		}
	})
	close(armed)

	s := l.session(t, "-yes=true", "MAX_PARALLEL=2")
	s.succeeds(t, steps.Upgrade{})
	require.Empty(t, early, "the control planes come first")
	require.Equal(t, 2, most)
	require.Contains(t, s.detail(upgradeStep, "worker4"), "; still cordoned, and not by us")
	require.Equal(t, map[string]drain.Owner{"worker4": drain.Others}, l.cordons(t))
	require.Equal(t, strings.TrimSpace(strings.Repeat(documents.Talos+" ", 5)), l.versions())
}

func TestLostRepliesLeadToAskingTheNode(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		fault    emulator.CallFault
		upgrades int
	}{
		"the pull's":              {fault: emulator.CallFault{Method: pullCall, Do: emulator.Cut}, upgrades: 1},
		"the installer's, before": {fault: emulator.CallFault{Method: lifecycleCall, Do: emulator.Cut}, upgrades: 2},
		"the installer's, after it": {fault: emulator.CallFault{Method: lifecycleCall, Do: emulator.Cut,
			When: emulator.AfterEffect}},
		"the installer's, a panic": {fault: emulator.CallFault{Method: lifecycleCall, Do: emulator.Fail,
			Code: codes.Internal, Text: "panic"}, upgrades: 2},
		"the reboot's, before": {fault: emulator.CallFault{Method: rebootCall, Do: emulator.Cut}, upgrades: 1},
		"the reboot's, after": {fault: emulator.CallFault{Method: rebootCall, Do: emulator.Cut, When: emulator.AfterEffect},
			upgrades: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := toUpgrade(t, 1, 1, documents.Talos)
			test.fault.Times = 1
			fault(l.Node("worker1"), test.fault)

			l.session(t, "-yes=true", "NODE=worker1").succeeds(t, steps.Upgrade{})
			require.Equal(t, "v1.13.9 v1.14.1", l.versions())
			require.Empty(t, l.cordons(t))

			if test.upgrades > 0 {
				require.Equal(t, test.upgrades, calls(l.Node("worker1"), "Upgrade"))
			}
		})
	}
}

func TestALostReplyOfTheOlderCallLeadsToAskingTheNode(t *testing.T) {
	t.Parallel()

	for name, when := range map[string]emulator.When{"before": emulator.BeforeEffect, "after": emulator.AfterEffect} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := toUpgrade(t, 1, 1, emulator.DefaultTalosVersion,
				func(options *labcluster.Options) { options.TalosVersion = "v1.12.1" })
			fault(l.Node("worker1"), emulator.CallFault{Method: atOnceCall, Do: emulator.Cut, When: when, Times: 1})

			l.session(t, "-yes=true", "NODE=worker1").succeeds(t, steps.Upgrade{})
			require.Equal(t, "v1.12.1 v1.13.9", l.versions())
			require.Empty(t, l.cordons(t))
		})
	}
}

func TestARunThatIsStoppedIsContinuedByTheNext(t *testing.T) {
	t.Parallel()

	for _, at := range []string{"EtcdSnapshot", "Pull", "Upgrade", "Reboot"} {
		t.Run("at "+at, func(t *testing.T) {
			t.Parallel()

			stopped, stop := context.WithCancel(t.Context())
			defer stop()

			armed := make(chan struct{})
			l := toUpgrade(t, 3, 1, documents.Talos, func(options *labcluster.Options) {
				options.LabOptions.Watch = func(node *emulator.Node, call emulator.Call) {
					select {
					case <-armed:
						if call.Name() == at && node.Name() != "cp1" {
							stop()
						}
					default:
					}
				}
			})
			close(armed)

			s := l.session(t, "-yes=true")
			err := steps.Execute(stopped, s.Run, steps.Upgrade{})

			if at != "EtcdSnapshot" {
				require.Error(t, err)
				require.Error(t, stopped.Err())
			}

			l.isUpgraded(t, documents.Talos)
		})
	}
}

func TestOneOrTwoControlPlanesAreUpgradedOnceThatIsAgreedTo(t *testing.T) {
	t.Parallel()

	l := toUpgrade(t, 1, 0, documents.Talos)

	s := l.session(t)
	problem := s.fails(t, diagnosis.ExitBadInput, diagnosis.NotAgreed, steps.Upgrade{})
	require.Contains(t, problem.Cause, "nothing was changed")
	require.Equal(t, "v1.13.9", l.versions())
	require.Len(t, snapshots(t, filepath.Join(l.Dir, "snapshots")), 1)

	l.session(t, "-yes=true").succeeds(t, steps.Upgrade{})
	require.Equal(t, "v1.14.1", l.versions())
}

func TestAnUpgradeIsAgreedToByName(t *testing.T) {
	t.Parallel()

	l := toUpgrade(t, 3, 1, documents.Talos)

	for name, test := range map[string]struct {
		node, asked, answer string
		told                []string
	}{
		"one node, by its name": {"worker1", "Type worker1 to go on", "lab", []string{"worker1 is drained and reboots"}},
		"several, by the cluster's": {"cp1,worker1", "Type lab to go on", "cp1",
			[]string{"cp1 is drained", "worker1 is drained"}},
	} {
		s := l.session(t, "NODE="+test.node)

		var question string

		s.Run.Ask = func(_ context.Context, text string) (string, error) {
			question = text
			return test.answer, nil
		}

		s.fails(t, diagnosis.ExitBadInput, diagnosis.NotAgreed, steps.Upgrade{})
		require.Contains(t, question, test.asked, name)

		for _, told := range test.told {
			require.Contains(t, question, told, name)
		}
	}

	require.Equal(t, "v1.13.9 v1.13.9 v1.13.9 v1.13.9", l.versions())
}

func TestASnapshotThatIsCutOffEndsTheUpgradeBeforeItBegins(t *testing.T) {
	t.Parallel()

	l := toUpgrade(t, 3, 0, documents.Talos)
	for _, node := range l.Nodes {
		node.Set(func(f *emulator.Faults) { f.SnapshotEnd = 2000 })
	}

	l.session(t, "-yes=true").fails(t, diagnosis.ExitApply, diagnosis.SnapshotFailed, steps.Upgrade{})
	require.Empty(t, snapshots(t, filepath.Join(l.Dir, "snapshots")))
	require.Equal(t, "v1.13.9 v1.13.9 v1.13.9", l.versions())

	for _, node := range l.Nodes {
		require.False(t, slices.Contains(changesOf(node), "Pull"), node.Name())
		node.Set(func(f *emulator.Faults) { f.SnapshotEnd = 0 })
	}

	l.isUpgraded(t, documents.Talos)
}
