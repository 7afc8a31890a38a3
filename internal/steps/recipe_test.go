package steps_test

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
)

func TestWithoutWaitingTheRecipeStillWaitsForNodesThatItConfigured(t *testing.T) {
	t.Parallel()

	for name, auto := range map[string]bool{
		"their API is open while they install":    false,
		"their port is closed while they install": true,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 3, 2, func(options *labcluster.Options) { options.AutoHostnames = auto })
			l.untilMaintenance(t)

			s := l.session(t, "NO_WAIT=true")
			s.succeeds(t, s.recipe()...)
		})
	}
}

func TestAStepThatIsLeftOutSaysWhy(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0)
	s := l.session(t)
	s.succeeds(t, steps.Apply{Late: true})

	require.Equal(t, report.Skipped, s.status("applySequential", ""))
	require.Equal(t, "no worker had to wait for bootstrap", s.detail("applySequential", ""))
	require.Contains(t, s.out.String(), "no worker had to wait for bootstrap")
}

func TestTheRecipeBringsAClusterUpOnceAndThenDoesNothing(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 2)
	l.untilMaintenance(t)

	first := l.session(t)
	first.succeeds(t, first.recipe()...)

	sent, effective := l.bootstraps()
	require.Equal(t, []int{1, 1}, []int{sent, effective})
	require.Equal(t, 1, l.Lab.EtcdClusters())

	second := l.session(t)
	second.succeeds(t, second.recipe()...)

	for _, node := range l.Nodes {
		require.Equal(t, 1, applied(node), node.Name())
		require.Equal(t, report.Skipped, second.status("applySequential", node.Name()))
	}

	sent, _ = l.bootstraps()
	require.Equal(t, 1, sent)
}

func TestClustersOfTheOlderTalosAndOfBothComeUpTheSameWay(t *testing.T) {
	t.Parallel()

	older := func(options *labcluster.Options) { options.TalosVersion = "v1.12.1" }
	newer := func(node *emulator.NodeOptions) { node.TalosVersion = "v1.13.9" }

	for name, change := range map[string][]func(*labcluster.Options){
		"v1.12": {older},
		"both":  {older, edit("cp2", newer), edit("worker1", newer)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 3, 2, change...)
			l.untilMaintenance(t)

			first := l.session(t)
			first.succeeds(t, first.recipe()...)
			require.Equal(t, 1, l.Lab.EtcdClusters())
			require.NotContains(t, first.out.String(), "could not be read", "what a release does not tell is not asked for")

			for _, node := range l.Nodes {
				require.Equal(t, "running", node.Stage())
				require.Equal(t, 1, applied(node), node.Name())
			}

			second := l.session(t)
			second.succeeds(t, second.recipe()...)

			for _, node := range l.Nodes {
				require.Equal(t, 1, applied(node), node.Name())
				require.Equal(t, report.Skipped, second.status("applySequential", node.Name()))
			}

			sent, effective := l.bootstraps()
			require.Equal(t, []int{1, 1}, []int{sent, effective})
		})
	}
}

func TestADryRunOfTheRecipeChangesNothingAndEndsWithCode8(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 1)
	l.untilMaintenance(t)

	s := l.session(t, "DRY_RUN=true")
	s.fails(t, diagnosis.ExitDryRun, diagnosis.WouldChange, s.recipe()...)

	for _, node := range l.Nodes {
		require.Empty(t, node.MutatingCalls(), node.Name())
		require.Equal(t, report.Planned, s.status("applySequential", node.Name()))
	}

	require.Contains(t, s.detail("bootstrap", "cp1"), "would be bootstrapped")
	require.NoFileExists(t, s.Settings.Kubeconfig)
}

func TestEveryFailureOfARecipeIsToldAndTheEarliestDecidesTheCode(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 2)
	l.untilMaintenance(t)
	l.Node("worker1").PowerOff()

	s := l.session(t, seconds("NODE_WAIT", 10), seconds("INSTALL_TIMEOUT", 120))
	go func() { wait(t, l.Node("worker2"), inStage("installing")); l.Node("worker2").PowerOff() }()
	s.do(t, s.recipe()...)

	require.Equal(t, diagnosis.ExitApply, steps.CodeOf(s.err), s.err)
	require.ErrorContains(t, s.err, "worker1")
	require.ErrorContains(t, s.err, "worker2")
	require.FileExists(t, s.Settings.Kubeconfig)
}

// Silence never ends a recipe in preflight, and a node can fall silent at any moment of it.
func TestANodeThatFallsSilentWhilePreflightReadsItsIdentityIsAskedAgainByApply(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0)
	l.untilMaintenance(t)

	s := l.session(t)
	recipe := s.recipe()
	apply := slices.IndexFunc(recipe, func(step steps.Step) bool { return step.Name() == "applySequential" })

	// Which machine it is was seen before; from then on until the config is sent nothing tells its links.
	recipe = slices.Insert(recipe, apply, steps.Step(meanwhile{func() {
		l.Node("cp1").Set(func(f *emulator.Faults) { f.Calls = nil })
	}}))
	recipe = slices.Insert(recipe, 0, steps.Step(steps.Preflight{}), steps.Step(meanwhile{func() {
		fault(l.Node("cp1"), emulator.CallFault{Method: "List", Resource: "LinkStatuses.net.talos.dev", Do: emulator.Cut})
	}}))

	s.succeeds(t, recipe...)
	require.Equal(t, report.Warned, s.status("preflight", "cp1"), s.out)
}

// What hangs up for a moment may be the cluster's own API, which goes down.
func TestAVIPWhoseHolderHangsUpForAMomentIsNotTakenForForeign(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0)
	l.untilMaintenance(t)

	listener, err := net.Listen("tcp", netip.AddrPortFrom(l.VIP, emulator.KubernetesPort).String())
	require.NoError(t, err)

	go func() {
		conn, err := listener.Accept()
		listener.Close()

		if err == nil {
			conn.Close()
		}
	}()

	s := l.session(t, "NODE_REACHABILITY_RETRIES=3")
	s.succeeds(t, s.recipe()...)
}

// What people are shown is how long they waited: the nodes of a rehearsal live faster than they do.
func TestARehearsalShowsTheWallsTime(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0)
	began := time.Now()
	l.installed(t)
	s := l.session(t).succeeds(t, steps.Preflight{}, steps.Bootstrap{})
	waited := time.Since(began)

	for _, result := range s.Results() {
		require.LessOrEqual(t, result.Duration, waited, result.Step)
	}

	require.Contains(t, s.out.String(), "bootstrap: ")
}
