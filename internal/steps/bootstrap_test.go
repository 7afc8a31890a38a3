package steps_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	config "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/base/clock"
	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
)

// onDisk makes a machine one that Talos is installed on, with or without etcd data of an earlier life.
func onDisk(data emulator.EtcdData) func(*emulator.NodeOptions) {
	return func(node *emulator.NodeOptions) { node.Installed, node.EtcdData = true, data }
}

// requireOneEtcd asserts that all control planes are voters of one etcd, and that no other ever existed.
func (l *lab) requireOneEtcd(t *testing.T) {
	t.Helper()

	require.Equal(t, 1, l.Lab.EtcdClusters())

	for _, node := range l.Nodes {
		if strings.HasPrefix(node.Name(), "cp") {
			require.True(t, node.EtcdVoter(), node.Name())
		}
	}
}

func TestDataOnALaterControlPlaneMeansNoBootstrap(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 0, edit("cp2", onDisk(emulator.WholeEtcdData)))
	l.installed(t)

	s := l.session(t).succeeds(t, steps.Bootstrap{})

	sent, _ := l.bootstraps()
	require.Zero(t, sent)
	l.requireOneEtcd(t)
	require.Equal(t, report.Skipped, s.status("bootstrap", "cp1"))
}

func TestAnEtcdThatRunsAndIsNotHealthyYetIsWaitedFor(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 0)
	l.up(t)

	// A power cut, after which no member passes its health check for a while.
	for _, node := range l.Nodes {
		node.PowerOff()
		node.Set(func(f *emulator.Faults) { f.EtcdUnhealthy = true })
	}

	for _, node := range l.Nodes {
		node.PowerOn()
		wait(t, node, inStage("booting"))
	}

	healed := time.AfterFunc(time.Second, func() {
		for _, node := range l.Nodes {
			node.Set(func(f *emulator.Faults) { f.EtcdUnhealthy = false })
		}
	})
	defer healed.Stop()

	eventuallyAnswers(t, l, "cp1", "cp2", "cp3")
	l.session(t).succeeds(t, steps.Bootstrap{})

	sent, _ := l.bootstraps()
	require.Equal(t, 1, sent, "only the one that made the cluster")
	l.requireOneEtcd(t)
}

func TestTheTimeThatANodeWasOffDoesNotCountForTheBootstrapThatThisUndid(t *testing.T) {
	t.Parallel()

	const limit = 150 * time.Second // for etcd, of the nodes' time

	l := newLab(t, 1, 0, func(options *labcluster.Options) { options.Timing.EtcdData = time.Minute })
	l.installed(t)
	fault(l.Node("cp1"), emulator.CallFault{Method: "Bootstrap", Do: emulator.Cut, When: emulator.AfterEffect, Times: 1})

	back := make(chan error, 1)

	go func() {
		for sent, _ := l.bootstraps(); sent == 0 && t.Context().Err() == nil; sent, _ = l.bootstraps() {
			time.Sleep(time.Millisecond)
		}

		l.Node("cp1").PowerOff()

		back <- l.Lab.Clock().Sleep(t.Context(), limit+10*time.Second)

		l.Node("cp1").PowerOn()
	}()

	s := l.session(t, "ETCD_TIMEOUT="+limit.String(), "NODE_REACHABILITY_RETRIES=200").succeeds(t, steps.Bootstrap{})
	require.NoError(t, <-back)
	require.Contains(t, s.out.String(), "it rebooted right after Bootstrap, before etcd had any data: bootstrapping again")

	sent, effective := l.bootstraps()
	require.Equal(t, 2, sent)
	require.Equal(t, 2, effective)
	l.requireOneEtcd(t)
}

// eventuallyAnswers waits until the machines serve their secure API with etcd in their list of services.
func eventuallyAnswers(t *testing.T, l *lab, names ...string) {
	t.Helper()

	for _, name := range names {
		l.session(t, "NODE="+name).succeeds(t, steps.Verify{})
	}
}

func TestEtcdDataThatNothingRunsFromIsExplained(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		lost         []string
		suggestReset bool
	}{
		"on one control plane, the others asked and empty": {[]string{"cp2"}, true},
		"on two control planes":                            {[]string{"cp1", "cp3"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var changes []func(*labcluster.Options)
			for _, lost := range tt.lost {
				changes = append(changes, edit(lost, onDisk(emulator.LostEtcdData)))
			}

			l := newLab(t, 3, 0, changes...)
			l.installed(t)

			s := l.session(t, seconds("ETCD_TIMEOUT", 60))
			problem := s.fails(t, diagnosis.ExitBootstrap, diagnosis.EtcdNotHealthy, steps.Bootstrap{})

			sent, _ := l.bootstraps()
			require.Zero(t, sent)
			require.Contains(t, problem.Cause, "quorum is lost")
			require.Contains(t, problem.Cause, "members: not readable")

			for _, node := range []string{"cp1", "cp2", "cp3"} {
				require.Contains(t, problem.Cause, node+": ", "each control plane's etcd")
			}

			if tt.suggestReset {
				require.Contains(t, problem.Cause, "only "+tt.lost[0]+" holds data")
				require.Contains(t, problem.Next, "this may be the only copy of a cluster: snapshot or copy /var/lib/etcd first")
				require.Less(t, strings.Index(problem.Next, "only copy"), strings.Index(problem.Next, "reset"))
			} else {
				require.NotContains(t, problem.Next, "reset")
			}
		})
	}
}

func TestALostBootstrapReplyIsLookedIntoBeforeAnythingIsSentAgain(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		fault emulator.CallFault
		sent  int
	}{
		"lost after it took effect": {emulator.CallFault{Method: "Bootstrap", When: emulator.AfterEffect, Do: emulator.Cut,
			Times: 1}, 1},
		"lost before it did": {emulator.CallFault{Method: "Bootstrap", When: emulator.BeforeEffect, Do: emulator.Cut,
			Times: 1}, 2},
		"data appeared meanwhile": {emulator.CallFault{
			Method: "Bootstrap", Do: emulator.Fail, Code: codes.AlreadyExists, Text: "etcd data directory is not empty",
			Times: 1,
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 3, 0)
			l.installed(t)
			fault(l.Node("cp1"), tt.fault)

			l.session(t).succeeds(t, steps.Bootstrap{})

			sent, effective := l.bootstraps()
			require.Equal(t, tt.sent, sent)
			require.LessOrEqual(t, effective, 1)
			l.requireOneEtcd(t)

			l.requireApart(t, 30*time.Second)
		})
	}
}

// requireApart asserts that Bootstrap calls are so far apart, in the lab's time, and that between them every control
// plane's etcd was looked at.
func (l *lab) requireApart(t *testing.T, least time.Duration) {
	t.Helper()

	var times []time.Time

	for _, call := range l.Node("cp1").Calls() {
		if call.Name() == "Bootstrap" {
			times = append(times, call.Time)
		}
	}

	for i := 1; i < len(times); i++ {
		apart := times[i].Sub(times[i-1])
		require.GreaterOrEqual(t, time.Duration(float64(apart)*l.Scale), least)

		for _, node := range l.Nodes {
			looked := false

			for _, call := range node.Calls() {
				looked = looked || call.Name() == "List" && call.Time.After(times[i-1]) && call.Time.Before(times[i])
			}

			require.True(t, looked, "%s was not asked for etcd data in between", node.Name())
		}
	}
}

func TestARefusalThatMayPassIsRetried(t *testing.T) {
	t.Parallel()

	for _, text := range []string{"bootstrap is not available yet", "time is not in sync yet"} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 1, 0)
			l.installed(t)
			fault(l.Node("cp1"), emulator.CallFault{Method: "Bootstrap", Do: emulator.Fail, Code: codes.FailedPrecondition,
				Text: text, Times: 2})

			l.session(t).succeeds(t, steps.Bootstrap{})

			sent, effective := l.bootstraps()
			require.Equal(t, []int{3, 1}, []int{sent, effective})
		})
	}
}

func TestARefusalToBootstrapIsToldWithWhatTheNodeWaitsFor(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0)
	l.installed(t)
	l.Node("cp1").Set(func(f *emulator.Faults) { f.KubeletDown = true })
	l.Node("cp1").PowerOff()
	l.Node("cp1").PowerOn()
	eventuallyAnswers(t, l, "cp1")
	fault(l.Node("cp1"), emulator.CallFault{Method: "Bootstrap", Do: emulator.Fail, Code: codes.FailedPrecondition,
		Text: "bootstrap is not available yet"})

	s := l.session(t, seconds("STAGE_TIMEOUT", 20))
	problem := s.fails(t, diagnosis.ExitBootstrap, diagnosis.BootstrapFailed, steps.Bootstrap{})
	require.Regexp(t, "bootstrap is not available yet; the node is booting: .*; its kubelet is not healthy",
		problem.Cause)
	require.NotEmpty(t, s.lines.with("cp1: bootstrap is not available yet; the node is booting"))
}

func TestAClockThatIsNeverSyncedEndsTheWaitInItsOwnTime(t *testing.T) {
	t.Parallel()

	for name, spoil := range map[string]func(*emulator.Node){
		"since the node booted": func(node *emulator.Node) {
			node.Set(func(f *emulator.Faults) { f.TimeUnsynced = true })
			node.PowerOff()
			node.PowerOn()
		},
		"as the call itself finds": func(node *emulator.Node) {
			fault(node, emulator.CallFault{Method: "Bootstrap", Do: emulator.Fail, Code: codes.FailedPrecondition,
				Text: "time is not in sync yet"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 1, 0, func(options *labcluster.Options) { options.Endpoint = labcluster.FirstControlPlane })
			l.installed(t)
			spoil(l.Node("cp1"))
			eventuallyAnswers(t, l, "cp1")

			s := l.session(t, seconds("TIME_SYNC_TIMEOUT", 20))
			problem := s.fails(t, diagnosis.ExitBootstrap, diagnosis.TimeNotSynced, steps.Bootstrap{})
			require.Contains(t, problem.Next, "NTP")

			_, effective := l.bootstraps()
			require.Zero(t, effective)
		})
	}
}

func TestAPermanentRefusalIsNotRetried(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0)
	l.installed(t)
	fault(l.Node("cp1"), emulator.CallFault{Method: "Bootstrap", Do: emulator.Fail, Code: codes.PermissionDenied,
		Text: "not authorized"})

	l.session(t).fails(t, diagnosis.ExitBootstrap, diagnosis.BootstrapFailed, steps.Bootstrap{})

	sent, _ := l.bootstraps()
	require.Equal(t, 1, sent)
}

func TestTwoOperatorsMakeOneEtcd(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 0)
	l.installed(t)

	// Two machines: their locks know nothing of each other.
	operators := []*session{l.session(t, "TMPDIR="+t.TempDir()), l.session(t, "TMPDIR="+t.TempDir())}

	var wait sync.WaitGroup
	for _, operator := range operators {
		wait.Go(func() { operator.do(t, steps.Bootstrap{}) })
	}
	wait.Wait()

	require.Equal(t, 1, l.Lab.EtcdClusters())

	for _, operator := range operators {
		if operator.err == nil {
			continue
		}

		problem, ok := diagnosis.AsProblem(operator.err)
		require.True(t, ok)
		require.Equal(t, diagnosis.EtcdStopped, problem.ID, operator.err)
	}
}

// A run that is killed right after its Bootstrap leaves an etcd without data, whose image may take minutes to be
// pulled. Another one would stop it.
func TestABootstrapOfAnEarlierRunIsNotRepeated(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0)
	l.installed(t)
	l.Node("cp1").Set(func(f *emulator.Faults) { f.EtcdImage = true })

	require.Equal(t, codes.OK, l.bootstrapByHand(t, "cp1"))
	wait(t, l.Node("cp1"), inStage("running"))
	require.Zero(t, l.Lab.EtcdClusters(), "the etcd has no data yet")

	// Nor is the node given another config, which would reboot it.
	l.tuned(t, "cp1")
	l.session(t).succeeds(t, steps.Apply{})
	require.Equal(t, 1, applied(l.Node("cp1")))

	before, _ := l.bootstraps()
	s := l.session(t)
	healed := make(chan struct{})

	go func() {
		defer close(healed)

		// The run has looked at it.
		for !strings.Contains(s.out.String(), "etcd is already starting there") && t.Context().Err() == nil {
			clock.Scaled(1).Sleep(t.Context(), time.Millisecond) //nolint:errcheck // the loop looks
		}

		l.Node("cp1").Set(func(f *emulator.Faults) { f.EtcdImage = false })
	}()

	s.succeeds(t, steps.Bootstrap{})
	<-healed
	require.Equal(t, report.Skipped, s.status("bootstrap", "cp1"))

	sent, effective := l.bootstraps()
	require.Equal(t, before, sent)
	require.Equal(t, 1, effective)
	require.Equal(t, 1, l.Lab.EtcdClusters())
}

func TestAnEtcdThatASecondBootstrapStoppedIsRecognised(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0, func(options *labcluster.Options) { options.LabOptions.TimeScale = 10 },
		edit("cp1", func(node *emulator.NodeOptions) {
			onDisk(emulator.NoEtcdData)(node)
			// However slow this computer is, the second call comes before the data.
			node.Timing.EtcdData = 2 * time.Minute
		}))
	l.installed(t)
	l.stopEtcdWithASecondBootstrap(t, "cp1")

	problem := l.session(t).fails(t, diagnosis.ExitBootstrap, diagnosis.EtcdStopped, steps.Bootstrap{})
	require.Contains(t, problem.Next, "reboot")
	require.Equal(t, "cp1", problem.Node)

	// Healed by what it says.
	require.NoError(t, l.client(t, "cp1").Reboot(t.Context()))
	wait(t, l.Node("cp1"), func(node *emulator.Node) bool { return node.Boots() == 2 && node.Stage() == "booting" })
	eventuallyAnswers(t, l, "cp1")
	l.session(t).succeeds(t, steps.Bootstrap{})
	require.Equal(t, 1, l.Lab.EtcdClusters())
}

// client is machinery's own, as another tool would use it.
func (l *lab) client(t *testing.T, name string) *client.Client {
	t.Helper()

	made, err := l.Client(t.Context(), name)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, made.Close()) })

	return made
}

// stopEtcdWithASecondBootstrap does what must not be done: a second Bootstrap while the first one's etcd starts, before
// it has data.
func (l *lab) stopEtcdWithASecondBootstrap(t *testing.T, name string) {
	t.Helper()

	l.bootstrapByHand(t, name)

	require.NotEqual(t, codes.AlreadyExists, l.bootstrapByHand(t, name), "etcd has data already")
}

// bootstrapByHand sends Bootstrap until it gets an answer that counts.
func (l *lab) bootstrapByHand(t *testing.T, name string) codes.Code {
	t.Helper()

	var (
		api  = l.client(t, name)
		code codes.Code
	)

	require.Eventually(t, func() bool {
		code = client.StatusCode(api.Bootstrap(t.Context(), &machine.BootstrapRequest{}))

		return code != codes.FailedPrecondition
	}, labcluster.Deadline, time.Millisecond)

	return code
}

func TestMembersThatTheInventoryDoesNotNameAreAWarning(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 0)
	l.up(t)

	talconfig, err := os.ReadFile(l.Dir + "/talconfig.yaml")
	require.NoError(t, err)

	before, _, found := strings.Cut(string(talconfig), "  - hostname: cp3\n")
	require.True(t, found)
	require.NoError(t, os.WriteFile(l.Dir+"/talconfig.yaml", []byte(before), 0o600))

	s := l.session(t).succeeds(t, steps.Bootstrap{})

	warned := false

	for _, finding := range s.Findings() {
		if finding.ID == diagnosis.UnknownMembers {
			warned = true

			require.Contains(t, finding.Cause, "cp3")
			require.Equal(t, diagnosis.Warning, finding.Severity)
		}
	}

	require.True(t, warned, s.out)
}

func TestAMemberWhoseNodeIsInMaintenanceIsStale(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 0)
	l.up(t)
	l.wipe(t, "cp3")

	s := l.session(t)
	problem := s.fails(t, diagnosis.ExitBootstrap, diagnosis.EtcdIncomplete, steps.Bootstrap{})
	require.Contains(t, problem.Cause, "etcd works with 2 of 3")
	require.Contains(t, problem.Cause, "stale members, whose nodes are in maintenance: cp3")

	// The recipe takes the machine in again.
	again := l.session(t)
	again.succeeds(t, again.recipe()...)
	l.requireOneEtcd(t)
}

// wipe resets a machine into maintenance without having it leave etcd first.
func (l *lab) wipe(t *testing.T, name string) {
	t.Helper()

	_, err := l.client(t, name).MachineClient.Reset(t.Context(), &machine.ResetRequest{
		Reboot:                 true,
		SystemPartitionsToWipe: []*machine.ResetPartitionSpec{{Label: "STATE", Wipe: true}, {Label: "EPHEMERAL", Wipe: true}},
	})
	require.NoError(t, err)
	wait(t, l.Node(name), inStage("maintenance"))
}

func TestASilentControlPlane(t *testing.T) {
	t.Parallel()

	for name, silence := range map[string]func(*emulator.Node){
		"powered off": (*emulator.Node).PowerOff,
		"refusing":    func(node *emulator.Node) { node.Refuse(true) },
	} {
		t.Run(name+", with no etcd stops bootstrap unless it is assumed empty", func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 3, 0)
			l.installed(t)
			silence(l.Node("cp2"))
			silence(l.Node("cp3"))

			problem := l.session(t).fails(t, diagnosis.ExitBootstrap, diagnosis.BootstrapBlocked, steps.Bootstrap{})
			require.Equal(t, "cp2", problem.Node)
			require.Contains(t, problem.Next, "-assumeEmpty=cp2,cp3")

			sent, _ := l.bootstraps()
			require.Zero(t, sent)

			problem = l.session(t, "-assumeEmpty=cp2,cp3").fails(t, diagnosis.ExitBootstrap, diagnosis.EtcdIncomplete,
				steps.Bootstrap{})
			require.Contains(t, problem.Cause, "etcd works with 1 of 3")

			sent, _ = l.bootstraps()
			require.Equal(t, 1, sent)
		})

		t.Run(name+", with an etcd is reported at once", func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 3, 0)
			l.up(t)
			silence(l.Node("cp3"))

			problem := l.session(t).fails(t, diagnosis.ExitBootstrap, diagnosis.EtcdIncomplete, steps.Bootstrap{})
			require.Contains(t, problem.Cause, "etcd works with 2 of 3: cp3 missing")

			problem = l.session(t, "-assumeEmpty=cp3").fails(t, diagnosis.ExitBootstrap, diagnosis.AssumeEmptyRefused,
				steps.Bootstrap{})
			require.Equal(t, "cp3", problem.Node)
		})
	}
}

// A balancer accepts connections before there is anything behind it.
func TestABalancerWithNothingBehindItIsNoKubernetesAPI(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 0)
	l.installed(t)
	l.Node("cp3").PowerOff()
	require.NoError(t, l.Lab.Balance(l.VIP, []uint16{emulator.KubernetesPort}, l.Node("cp1"), l.Node("cp2")))

	problem := l.session(t).fails(t, diagnosis.ExitBootstrap, diagnosis.BootstrapBlocked, steps.Bootstrap{})
	require.Contains(t, problem.Next, "-assumeEmpty=cp3")

	problem = l.session(t, "-assumeEmpty=cp3").fails(t, diagnosis.ExitBootstrap, diagnosis.EtcdIncomplete,
		steps.Bootstrap{})
	require.Contains(t, problem.Cause, "etcd works with 2 of 3")
}

func TestAControlPlaneThatIsSilentForAMomentIsAskedAgain(t *testing.T) {
	t.Parallel()

	l := newLab(t, 2, 0)
	l.installed(t)
	l.Node("cp2").Refuse(true)
	require.NoError(t, l.Lab.Balance(l.VIP, []uint16{emulator.KubernetesPort}, l.Node("cp1"), l.Node("cp2")))

	var later sync.WaitGroup

	later.Go(func() {
		if l.Lab.Clock().Sleep(t.Context(), 20*time.Second) == nil {
			l.Node("cp2").Refuse(false)
		}
	})
	l.session(t, "NODE_REACHABILITY_RETRIES=60").succeeds(t, steps.Bootstrap{})
	later.Wait()
	l.requireOneEtcd(t)
}

func TestAControlPlaneThatJoinsLateIsWaitedFor(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 0)
	l.installed(t)
	l.Node("cp3").Set(func(f *emulator.Faults) { f.EtcdJoin = time.Minute })

	// Etcd itself has less time than the join takes.
	l.session(t, seconds("ETCD_TIMEOUT", 40)).succeeds(t, steps.Bootstrap{})
	l.requireOneEtcd(t)
}

func TestAControlPlaneThatNeverJoins(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 0)
	l.installed(t)
	l.Node("cp3").Set(func(f *emulator.Faults) { f.EtcdNever = true })

	s := l.session(t, seconds("ETCD_JOIN_TIMEOUT", 60))
	problem := s.fails(t, diagnosis.ExitBootstrap, diagnosis.EtcdIncomplete, steps.Bootstrap{})
	require.Contains(t, problem.Cause, "etcd works with 2 of 3 after")
	require.Contains(t, problem.Cause, "cp3: ")
	require.Contains(t, problem.Cause, "members: cp1 and cp2")
	require.Equal(t, report.Failed, s.status("bootstrap", "cp3"))
	require.Equal(t, report.OK, s.status("bootstrap", "cp2"))
}

func TestBootstrapGoesToTheControlPlaneThatIsAskedFor(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 0)
	l.installed(t)
	l.session(t, "BOOTSTRAP_NODE=cp2").succeeds(t, steps.Bootstrap{})

	require.Equal(t, 1, calls(l.Node("cp2"), "Bootstrap"))
	require.Zero(t, calls(l.Node("cp1"), "Bootstrap"))
	l.requireOneEtcd(t)
}

func TestAControlPlaneInMaintenanceIsWaitedForAndThenNamed(t *testing.T) {
	t.Parallel()

	l := newLab(t, 2, 0)
	l.untilMaintenance(t)
	l.session(t, "NODE=cp1").succeeds(t, steps.Apply{}, steps.Verify{})

	problem := l.session(t, seconds("VERIFICATION_TIMEOUT", 10)).fails(t, diagnosis.ExitBootstrap,
		diagnosis.BootstrapBlocked, steps.Bootstrap{})
	require.Equal(t, "cp2", problem.Node)
	require.Contains(t, problem.Next, "mage applySequential -node=cp2")

	sent, _ := l.bootstraps()
	require.Zero(t, sent)
}

func TestAnEndpointThatLeadsNowhereIsToldFromAnAPIThatIsDown(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		down []string
		want diagnosis.ID
	}{
		"a control plane's own API answers": {[]string{"cp1"}, diagnosis.EndpointSilent},
		"no API answers":                    {[]string{"cp1", "cp2"}, diagnosis.APINotReady},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 2, 0, func(options *labcluster.Options) { options.Endpoint = labcluster.FirstControlPlane })
			l.installed(t)

			for _, down := range tt.down {
				l.Node(down).Set(func(f *emulator.Faults) { f.KubernetesDown = true })
			}

			problem := l.session(t, seconds("API_TIMEOUT", 40)).fails(t, diagnosis.ExitKubernetes, tt.want, steps.Bootstrap{})
			require.NotEmpty(t, problem.Next)
		})
	}
}

// The machines of a rehearsal answer elsewhere than declared, and nobody answers at the declared endpoint.
func TestAnEndpointThatOnlyTheNodesReachIsToldFromAnAPIThatIsDown(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	generated, err := clusterfiles.Make(clusterfiles.Options{
		ClusterName: "lab", Endpoint: "https://192.0.2.10:6443", VIP: netip.MustParseAddr("192.0.2.10"), CNI: "none",
		Nodes: []clusterfiles.Node{
			{Name: "cp1", Role: config.TypeControlPlane, Address: netip.MustParsePrefix("192.0.2.11/24"),
				MAC: "02:00:00:00:00:01"},
		},
	})
	require.NoError(t, err)
	require.NoError(t, generated.Write(filepath.Join(folder, "talos")))

	cluster, err := labcluster.FromDirectory(filepath.Join(folder, "talos"), nil,
		labcluster.Options{LabOptions: emulator.LabOptions{TimeScale: scale}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })

	l := &lab{cluster, folder}
	l.untilMaintenance(t)
	l.session(t, cluster.Environ()...).succeeds(t, steps.Apply{}, steps.Verify{})

	for _, step := range []steps.Step{steps.Bootstrap{}, steps.VerifyWorkers{}} {
		problem := l.session(t, append(cluster.Environ(), seconds("API_TIMEOUT", 300))...).fails(t,
			diagnosis.ExitKubernetes, diagnosis.EndpointSilent, step)
		require.Contains(t, problem.Cause,
			"is ready at "+cluster.Lab.Address(11).String()+":6443, but the endpoint 192.0.2.10")
	}

	require.Regexp(t, `next: mage bootstrap \(.* answers at .*:6443, but not at the endpoint 192\.0\.2\.10:6443\)`,
		l.status(t, cluster.Environ()...))
}
