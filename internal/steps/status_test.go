package steps_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

// status is the page that `mage status` shows, with the lab's addresses as documentation addresses.
func (l *lab) status(t *testing.T, environ ...string) string {
	t.Helper()

	status := steps.ReadStatus(t.Context(), l.session(t, environ...).Run)

	var page strings.Builder

	page.WriteString(report.Columns(status.Rows(), 0, nil))

	for _, finding := range status.Findings {
		page.WriteString("\n" + string(finding.ID) + " " + finding.Cause + "\n")
	}

	page.WriteString("\nnext: " + status.Next + "\n")

	block := strings.TrimSuffix(l.Lab.Prefix().Addr().String(), "0")
	text := strings.ReplaceAll(page.String(), l.folder, "/home/op/lab")

	// Columns are as wide as the addresses, so they are narrowed to one space.
	return spaces(strings.ReplaceAll(text, block, "192.0.2."))
}

func spaces(text string) string {
	var lines []string

	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}

	return strings.Join(lines, "\n") + "\n"
}

func TestStatusShowsEveryStageAndTheNextCommand(t *testing.T) {
	t.Parallel()

	shows := func(t *testing.T, l *lab, name string, environ ...string) {
		t.Helper()

		golden.Assert(t, filepath.Join("testdata", "status", name+".txt"), l.status(t, environ...))
	}

	t.Run("on the way up", func(t *testing.T) {
		t.Parallel()

		l := newLab(t, 1, 1)

		for _, node := range l.Nodes {
			node.PowerOff()
		}

		shows(t, l, "off")

		for _, node := range l.Nodes {
			node.PowerOn()
		}

		l.untilMaintenance(t)
		shows(t, l, "maintenance")

		l.Node("cp1").Set(func(f *emulator.Faults) { f.InstallStall = 24 * time.Hour })
		l.session(t).succeeds(t, steps.Apply{})
		wait(t, l.Node("cp1"), inStage("installing"))
		wait(t, l.Node("worker1"), func(node *emulator.Node) bool { return node.Stage() != "maintenance" })
		shows(t, l, "installing")
		l.Node("cp1").Set(func(f *emulator.Faults) { f.InstallStall = 0 })

		eventuallyAnswers(t, l, "cp1")
		wait(t, l.Node("cp1"), inStage("booting"))
		l.waitForEtcdToAsk(t)
		shows(t, l, "before-bootstrap")

		l.session(t).succeeds(t, steps.Bootstrap{}, steps.VerifyWorkers{})
		shows(t, l, "no-kubeconfig")

		l.session(t).succeeds(t, steps.Kubeconfig{})
		shows(t, l, "up")

		l.tuned(t, "worker1")
		shows(t, l, "drifted")

		l.Node("worker1").PowerOff()
		shows(t, l, "worker-off")

		l.Node("cp1").Set(func(f *emulator.Faults) { f.Impostor = emulator.SSHImpostor })
		require.Eventually(t, func() bool { return strings.Contains(l.status(t), "not Talos") }, labcluster.Deadline,
			10*time.Millisecond)
		shows(t, l, "not-talos")
	})

	t.Run("of somebody else's machines", func(t *testing.T) {
		t.Parallel()

		l := newLab(t, 1, 0)
		l.installed(t)
		shows(t, l, "no-talosconfig", "TALOSCONFIG="+filepath.Join(l.folder, "missing"))
	})
}

// An upgrade of Kubernetes changes the nodes, and not their files, which would take it back.
func TestFilesThatAnUpgradeOfKubernetesHasOvertakenAreToBeMadeAnew(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 1)
	l.up(t)

	for _, node := range l.Nodes {
		replaceIn(t, l.ConfigFile(node.Name()), "v1.36.3", "v1.35.0")
	}

	const makeAnew = "restore talos/talsecret.yaml, or recover it: " +
		"mage config:secrets -from=talos/clusterconfig/lab-cp1.yaml; then mage config:generate " +
		"(the node runs Kubernetes v1.36.3, as declared, and its file is older)"

	require.Contains(t, l.status(t), "\nnext: "+makeAnew+"\n")

	for _, step := range []steps.Step{steps.Preflight{}, steps.Apply{}} {
		s := l.session(t)
		s.do(t, step)
		require.Contains(t, fmt.Sprint(s.Findings()), makeAnew)
	}

	planned := l.session(t, "DRY_RUN=true").fails(t, diagnosis.ExitDryRun, diagnosis.WouldChange, steps.Apply{})
	require.Contains(t, planned.Cause, "the files of cp1 and worker1 are older than what runs")
	require.True(t, strings.HasPrefix(makeAnew, planned.Next+" ("), planned.Next)

	l.session(t).succeeds(t, steps.Secrets{Asked: true, From: l.ConfigFile("cp1")}, steps.Configs{Replace: true})
	require.Contains(t, l.status(t), "\nnext: nothing: ")
}

func TestStatusNamesTwoEtcdsThatEachLookHealthy(t *testing.T) {
	t.Parallel()

	l := newLab(t, 2, 0)
	l.installed(t)

	for _, name := range []string{"cp1", "cp2"} {
		api := l.client(t, name)
		require.Eventually(t, func() bool { return api.Bootstrap(t.Context(), &machine.BootstrapRequest{}) == nil },
			labcluster.Deadline, 10*time.Millisecond)
	}

	for _, name := range []string{"cp1", "cp2"} {
		wait(t, l.Node(name), (*emulator.Node).EtcdVoter)
	}

	require.Eventually(t, func() bool {
		page := l.status(t)

		return strings.Count(page, "healthy, 1 member") == 2 && strings.Count(page, "running, node is not ready") == 2
	}, labcluster.Deadline, 10*time.Millisecond)
	golden.Assert(t, filepath.Join("testdata", "status", "split.txt"), l.status(t))

	_, findings, err := steps.EtcdList(t.Context(), l.session(t).Run)
	require.NoError(t, err)
	require.Equal(t, diagnosis.EtcdSplit, findings[0].ID)
}

// waitForEtcdToAsk waits until the first control plane lacks nothing but a Bootstrap.
func (l *lab) waitForEtcdToAsk(t *testing.T) {
	t.Helper()

	require.Eventually(t, func() bool {
		page := l.status(t)

		return strings.Contains(page, "booting, etcd not running") && strings.Contains(page, "no data")
	}, labcluster.Deadline, 10*time.Millisecond)
}

// Whoever looks at three in the morning learns how to do without the machines that are gone.
func TestStatusSaysHowToGoOnWithoutControlPlanes(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 0)
	l.up(t)

	l.silence("cp3")
	require.Contains(t, l.status(t), "\nnext: switch cp3 on, then mage bootstrap, which waits for etcd; for what is gone "+
		"for good, mage replaceNode cp3\n")

	l.silence("cp2")
	require.Eventually(t, func() bool {
		return strings.Contains(l.status(t), "\nnext: switch cp2 and cp3 on, then mage bootstrap, which waits for etcd; for "+
			"what is gone for good, mage etcd:recover <file>\n")
	}, patience, time.Millisecond)
}
