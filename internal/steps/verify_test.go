package steps_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/clock"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
)

// throughFirst makes the first control plane the endpoint, so that workers reach trustd without an etcd.
func throughFirst(options *labcluster.Options) { options.Endpoint = labcluster.FirstControlPlane }

func TestEachOfTheThreeClocksEndsTheWait(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		spoil   func(*testing.T, *lab)
		setting string
		want    diagnosis.ID
		silent  bool
	}{
		"in maintenance": {func(*testing.T, *lab) {}, "VERIFICATION_TIMEOUT=20", diagnosis.StillMaintenance, false},
		"port refused": {func(_ *testing.T, l *lab) { l.Node("cp1").Refuse(true) }, "INSTALL_TIMEOUT=20",
			diagnosis.NodeRefused, true},
		"no answer": {func(_ *testing.T, l *lab) { l.Node("cp1").PowerOff() }, "NODE_WAIT=20", diagnosis.NodeSilent,
			true},
		"stage unchanged": {func(t *testing.T, l *lab) {
			l.Node("cp1").Set(func(f *emulator.Faults) { f.InstallStall = time.Hour })
			l.session(t).succeeds(t, steps.Apply{})
		}, "INSTALL_TIMEOUT=20", diagnosis.StageStuck, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 1, 0)
			l.untilMaintenance(t)
			tt.spoil(t, l)

			problem := l.session(t, tt.setting).fails(t, diagnosis.ExitVerify, tt.want, steps.Verify{})
			require.Equal(t, "cp1", problem.Node)
			require.NotEmpty(t, problem.Cause)
			require.NotEmpty(t, problem.Next)

			impatient := l.session(t, "NO_WAIT=true", tt.setting)
			paused := impatient.pauses()
			problem = impatient.fails(t, diagnosis.ExitVerify, tt.want, steps.Verify{})

			if tt.silent {
				require.Zero(t, paused.soFar(), "nobody answers, so nobody is waited for")
				require.NotContains(t, problem.Cause, " for ")
			} else {
				require.NotZero(t, paused.soFar(), "a node that answers is waited for")
			}
		})
	}
}

// Handshakes are what many nodes cost most.
func TestANodeThatIsWaitedForIsAskedAgainOnTheSameConnection(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0)
	l.untilMaintenance(t)
	l.Node("cp1").Set(func(f *emulator.Faults) { f.InstallStall = 2 * time.Minute })
	l.session(t).succeeds(t, steps.Apply{}, steps.Verify{})

	observed, connections := 0, map[string]bool{}

	for _, call := range l.Node("cp1").Calls() {
		connections[call.Peer] = true

		if call.Name() == "ServiceList" {
			observed++
		}
	}

	require.Greater(t, observed, 3*len(connections))
}

func TestAnInstallThatFailsIsToldWithItsReasonIfTheNodeGaveOne(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		talos  string
		auto   bool
		reason string
	}{
		"static hostname: the API is up during the install": {"v1.13.9", false, "failed to pull image"},
		"hostname found out later: the port is closed":      {"v1.13.9", true, "keeps no trace"},
		"Talos 1.12: the port is closed":                    {"v1.12.1", false, "keeps no trace"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 1, 0, func(options *labcluster.Options) {
				options.TalosVersion, options.AutoHostnames = tt.talos, tt.auto
				options.LabOptions.TimeScale = 20
			})
			l.untilMaintenance(t)
			l.Node("cp1").Set(func(f *emulator.Faults) { f.Install, f.InstallTimes = emulator.InstallImagePull, 1 })

			s := l.session(t)
			problem := s.fails(t, diagnosis.ExitVerify, diagnosis.InstallFailed, steps.Apply{}, steps.Verify{})
			require.Contains(t, problem.Cause, tt.reason)

			// Healed, the same command ends well.
			l.untilMaintenance(t)
			l.session(t).succeeds(t, steps.Apply{}, steps.Verify{})
		})
	}
}

// A run that sent no config goes by a port that was closed, as while a node installs.
func TestAClosedPortAndThenMaintenanceAreAFailedInstall(t *testing.T) {
	t.Parallel()

	install := func(t *testing.T, l *lab) {
		l.Node("cp1").Set(func(f *emulator.Faults) { f.InstallStall = time.Hour })
		l.session(t).succeeds(t, steps.Apply{})
		wait(t, l.Node("cp1"), inStage("installing"))
	}
	cutPower := func(l *lab) {
		l.Node("cp1").PowerOff()
		l.Node("cp1").PowerOn()
	}

	for name, tt := range map[string]struct {
		before []steps.Step
		spoil  func(*testing.T, *lab)
		heal   func(*lab)
		want   diagnosis.ID
	}{
		"of which this run saw the end": {nil, install, cutPower, diagnosis.InstallFailed},
		"of which this run saw all":     {[]steps.Step{steps.Preflight{}}, install, cutPower, diagnosis.InstallFailed},
		"but not in one boot": {[]steps.Step{steps.Preflight{}},
			func(_ *testing.T, l *lab) { l.Node("cp1").Refuse(true) }, func(l *lab) { l.Node("cp1").Refuse(false) },
			diagnosis.StillMaintenance},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 1, 0, func(options *labcluster.Options) { options.AutoHostnames = true })
			l.untilMaintenance(t)

			s := l.session(t, seconds("VERIFICATION_TIMEOUT", 20))
			healed := make(chan struct{})

			go func() {
				defer close(healed)

				for !strings.Contains(s.out.String(), "port refused") {
					time.Sleep(time.Millisecond)
				}

				tt.heal(l)
			}()

			list := append(tt.before, meanwhile{func() { tt.spoil(t, l) }}, steps.Verify{})
			problem := s.fails(t, diagnosis.ExitVerify, tt.want, list...)
			<-healed

			if tt.want == diagnosis.InstallFailed {
				require.Contains(t, problem.Cause, "its port was closed")
				require.Contains(t, problem.Cause, "a power cut")
			}
		})
	}
}

func TestANodeThatRebootsForEverEndsTheWait(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0, func(options *labcluster.Options) { options.LabOptions.TimeScale = 20 })
	l.untilMaintenance(t)
	l.Node("cp1").Set(func(f *emulator.Faults) { f.BootLoop = true })

	problem := l.session(t).fails(t, diagnosis.ExitVerify, diagnosis.StageStuck, steps.Apply{}, steps.Verify{})
	require.Contains(t, problem.Cause, "rebooted 3 times")
}

func TestANodeIsFoundWhereItsConfigPutsIt(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0, edit("cp1", func(node *emulator.NodeOptions) {
		// In maintenance it has another address than afterwards.
		node.Address = node.Address.Next().Next()
	}))
	l.untilMaintenance(t)

	now := l.Node("cp1").Address().String()
	s := l.session(t, "NODE_ADDRESSES=cp1="+now)
	s.succeeds(t, s.recipe()...)

	require.NotEqual(t, now, l.Node("cp1").Address().String())
	require.Contains(t, s.detail("verify", "cp1"), "at "+l.Node("cp1").Address().String())
}

func TestANodeThatGotAnotherLeaseIsLookedForWhereDiscoverySawIt(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 1, throughFirst,
		func(options *labcluster.Options) { options.DHCP, options.LabOptions.Discovery = true, true })
	l.untilMaintenance(t)

	elsewhere := l.Lab.Address(77)
	l.Node("worker1").Set(func(f *emulator.Faults) { f.AddressAfter = elsewhere })

	// On loopback an address that nobody has refuses.
	s := l.session(t, seconds("INSTALL_TIMEOUT", 120))
	problem := s.fails(t, diagnosis.ExitVerify, diagnosis.NodeRefused, s.recipe()...)
	require.Equal(t, "worker1", problem.Node)
	require.Contains(t, problem.Cause, elsewhere.String())
	require.Contains(t, problem.Next, "NODE_ADDRESSES=worker1="+elsewhere.String())

	healed := l.session(t, "NODE_ADDRESSES=worker1="+elsewhere.String())
	healed.succeeds(t, healed.recipe()...)
}

func TestBeforeBootstrapWorkersAreOnlyOnTheirWay(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 3, throughFirst)
	l.untilMaintenance(t, "worker3")
	l.Node("worker1").Set(func(f *emulator.Faults) { f.InstallStall = time.Hour }) // answers, and installs for ever
	l.session(t, "NODE=cp1,worker1,worker2").succeeds(t, steps.Apply{})
	l.Node("worker2").PowerOff()

	s := l.session(t, "NODE=cp1,worker1,worker2").succeeds(t, steps.Verify{})
	require.Equal(t, report.OK, s.status("verify", "cp1"))
	require.Equal(t, report.Joining, s.status("verify", "worker1"))
	require.Equal(t, report.Joining, s.status("verify", "worker2"))

	// One that has no config is not on its way.
	problem := l.session(t, "NODE=worker3", seconds("VERIFICATION_TIMEOUT", 10)).fails(t, diagnosis.ExitVerify,
		diagnosis.StillMaintenance, steps.Verify{})
	require.Equal(t, "worker3", problem.Node)
}

func TestAfterBootstrapAWorkerThatIsNotUpIsAFailureWithItsCause(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		spoil func(*lab)
		want  diagnosis.ID
	}{
		"powered off after it got its config": {func(l *lab) { l.Node("worker1").PowerOff() }, diagnosis.NodeSilent},
		"trustd does not sign": {func(l *lab) {
			l.Node("cp1").Set(func(f *emulator.Faults) { f.TrustdDown = true })
		}, diagnosis.WorkerJoining},
		"kubelet never healthy": {func(l *lab) {
			l.Node("worker1").Set(func(f *emulator.Faults) { f.KubeletDown = true })
		}, diagnosis.StageStuck},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 1, 1)
			l.untilMaintenance(t)

			first := l.session(t, seconds("NODE_WAIT", 90), seconds("INSTALL_TIMEOUT", 90), seconds("STAGE_TIMEOUT", 90))
			list := slices.Insert(first.recipe(), 4, steps.Step(meanwhile{func() { tt.spoil(l) }}))
			require.IsType(t, steps.Apply{}, list[3])

			problem := first.fails(t, diagnosis.ExitVerify, tt.want, list...)
			require.Equal(t, "worker1", problem.Node)
			require.FileExists(t, first.Settings.Kubeconfig, "a failed worker never holds up the cluster")

			for _, node := range l.Nodes {
				node.Set(func(f *emulator.Faults) { *f = emulator.Faults{} })
				node.PowerOn()
			}

			healed := l.session(t)
			healed.succeeds(t, healed.recipe()...)
		})
	}
}

// meanwhile is something that happens between two steps.
type meanwhile struct{ do func() }

func (meanwhile) Name() string { return "meanwhile" }

func (meanwhile) Exit() diagnosis.ExitCode { return diagnosis.ExitUnexpected }

func (m meanwhile) Run(context.Context, *steps.Run) error {
	m.do()

	return nil
}

func TestAWorkerWhoseTrustdIsLateIsWaitedFor(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 1)
	l.untilMaintenance(t)
	l.Node("cp1").Set(func(f *emulator.Faults) { f.TrustdDown = true })

	s := l.session(t)
	list := s.recipe()
	open := meanwhile{func() {
		time.AfterFunc(500*time.Millisecond, func() { l.Node("cp1").Set(func(f *emulator.Faults) { f.TrustdDown = false }) })
	}}

	s.succeeds(t, slices.Insert(list, len(list)-1, steps.Step(open))...)
}

func TestAControlPlaneThatIsNotThroughWithItsBootIsNamedThoughEtcdIsWhole(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		fault func(*emulator.Faults)
		cause string
	}{
		"trustd":         {func(f *emulator.Faults) { f.TrustdDown = true }, "trustd not running"},
		"kube-apiserver": {func(f *emulator.Faults) { f.KubernetesDown = true }, "kube-system/kube-apiserver-cp2 not ready"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 3, 0, edit("cp2", func(node *emulator.NodeOptions) { test.fault(&node.Faults) }))
			l.untilMaintenance(t)

			s := l.session(t, seconds("STAGE_TIMEOUT", 60))
			problem := s.fails(t, diagnosis.ExitVerify, diagnosis.StageStuck, s.recipe()...)
			require.Equal(t, "cp2", problem.Node)
			require.Contains(t, problem.Cause, test.cause)
			require.True(t, l.Node("cp2").EtcdVoter())

			l.Node("cp2").Set(func(f *emulator.Faults) { *f = emulator.Faults{} })
			again := l.session(t)
			again.succeeds(t, again.recipe()...)
		})
	}
}

func TestNotReadyIsAFailureOnlyWithTalosOwnCNI(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 1)
	l.up(t)

	s := l.session(t).succeeds(t, steps.VerifyWorkers{})
	require.Contains(t, s.out.String(), string(diagnosis.NotReadyExpected))

	// The files say that Talos brings its own, and the nodes stay NotReady.
	l.changeFile(t, "cp1", "name: none", "name: flannel")

	s = l.session(t, seconds("API_TIMEOUT", 10))
	problem := s.fails(t, diagnosis.ExitKubernetes, diagnosis.NodesNotReady, steps.VerifyWorkers{})
	require.Contains(t, problem.Cause, "worker1")
	require.Equal(t, report.Failed, s.status("verifyWorkers", "worker1"))
	require.Equal(t, "runs, and is not Ready in Kubernetes", s.detail("verifyWorkers", "worker1"))

	l.Lab.InstallCNI()
	s = l.session(t).succeeds(t, steps.VerifyWorkers{})
	require.NotContains(t, s.out.String(), string(diagnosis.NotReadyExpected))
}

// pauses is a clock that adds up what is slept on it: how long something waits, however busy the machine.
type pauses struct {
	clock.Clock

	mu       sync.Mutex
	slept    time.Duration
	sleeping map[*time.Duration]bool
}

// pauses makes the session's clock one.
func (s *session) pauses() *pauses {
	paused := &pauses{Clock: s.Clock, sleeping: map[*time.Duration]bool{}}
	s.Clock = paused

	return paused
}

func (p *pauses) Sleep(ctx context.Context, d time.Duration) error {
	p.mu.Lock()
	p.slept += d
	p.sleeping[&d] = true
	p.mu.Unlock()

	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()

		delete(p.sleeping, &d)
	}()

	return p.Clock.Sleep(ctx, d)
}

func (p *pauses) soFar() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.slept
}

// restart adds up anew, from the sleeps on that are being slept.
func (p *pauses) restart() {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.slept = 0
	for d := range p.sleeping {
		p.slept += *d
	}
}

func TestAfterANodeAnswersTheWaitEndsWithinASecond(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0)
	l.installed(t)
	l.Node("cp1").Refuse(true)

	s := l.session(t)
	paused := s.pauses()
	verified := make(chan error, 1)

	go func() { verified <- steps.Execute(t.Context(), s.Run, steps.Verify{}) }()

	require.Eventually(t, func() bool { return paused.soFar() > 10*time.Second }, labcluster.Deadline, time.Millisecond)
	l.Node("cp1").Refuse(false)
	paused.restart()

	require.NoError(t, <-verified, s.out)
	require.LessOrEqual(t, paused.soFar(), time.Second)
}

func TestAWorkerThatIsLateToBootGetsItsConfigAfterBootstrap(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 1, edit("worker1", func(node *emulator.NodeOptions) { node.Timing.Boot = 20 * time.Second }))
	wait(t, l.Node("cp1"), inStage("maintenance"))

	s := l.session(t)
	s.succeeds(t, s.recipe()...)
	require.Equal(t, 1, applied(l.Node("worker1")))
	require.Equal(t, report.OK, s.status("verifyWorkers", "worker1"))
}

func TestAWorkerThatNeverOpensItsAPIIsToldOfBesideWhatItNeeds(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 1, edit("worker1", func(node *emulator.NodeOptions) { node.Timing.Boot = time.Hour }))
	wait(t, l.Node("cp1"), inStage("maintenance"))

	s := l.session(t, seconds("NODE_WAIT", 60), seconds("INSTALL_TIMEOUT", 60))
	problem := s.fails(t, diagnosis.ExitApply, diagnosis.WorkerJoining, s.recipe()...)
	require.Equal(t, "worker1", problem.Node)
	require.Contains(t, problem.Cause, "is its clock right?")
}

// The node of a machine that had the address before is still listed, and not Ready.
func TestANodeIsKnownInKubernetesByItsNameBeforeItsAddress(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 2, func(options *labcluster.Options) { options.DHCP, options.CNI = true, "flannel" })
	l.untilMaintenance(t)

	s := l.session(t, "NODE=cp1")
	s.succeeds(t, s.recipe()...)

	former := l.Node("worker2")
	data, err := l.Config("worker1")
	require.NoError(t, err)
	l.applyInsecurely(t, "worker2", data)
	wait(t, former, (*emulator.Node).Registered)

	l.Lab.Remove(former)
	_, err = l.Lab.Start(emulator.NodeOptions{Name: "worker2", Address: former.Options().Address,
		Links: former.Options().Links})
	require.NoError(t, err)

	s = l.session(t, "NODE=cp1,worker2")
	s.succeeds(t, s.recipe()...)
}

func TestAWorkerThatIsLateToBootGetsItsConfigThoughAnEtcdRunsAlready(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 1, edit("worker1", func(node *emulator.NodeOptions) { node.Timing.Boot = time.Minute }))
	l.Node("worker1").PowerOff()
	wait(t, l.Node("cp1"), inStage("maintenance"))

	s := l.session(t, "NODE=cp1")
	s.succeeds(t, s.recipe()...)

	l.Node("cp1").Set(func(f *emulator.Faults) { f.TrustdDown = true })
	l.Node("worker1").PowerOn()

	s = l.session(t)
	list := s.recipe()
	open := meanwhile{func() { l.Node("cp1").Set(func(f *emulator.Faults) { f.TrustdDown = false }) }}

	s.succeeds(t, slices.Insert(list, len(list)-1, steps.Step(open))...)
	require.Equal(t, 1, applied(l.Node("worker1")))
}
