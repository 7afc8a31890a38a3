package steps_test

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/test/documents"
)

// asTheyAre has the machine configs used as they are: no talconfig.yaml renders those of these tests.
const asTheyAre = "CONFIG_GENERATOR=none"

// on114 is a cluster without a VIP whose machines run Talos 1.14, with files for it in the form of 1.13.
func on114(options *labcluster.Options) {
	options.TalosVersion, options.Endpoint = documents.Talos, labcluster.FirstControlPlane
}

// inDocuments writes machines' configs in documents.
func (l *lab) inDocuments(t *testing.T, names []string, edits ...documents.Edit) {
	t.Helper()

	for _, name := range names {
		data, err := documents.Config(l.Generated.Options, name, edits...)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(l.ConfigFile(name), data, 0o600))
	}
}

func names(l *lab) []string {
	var all []string
	for _, node := range l.Nodes {
		all = append(all, node.Name())
	}

	return all
}

func TestARecipeBringsUpNodesOfTalos114(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		inDocuments []string
		change      func(*labcluster.Options)
	}{
		"configs as for 1.13":     {},
		"configs in documents":    {inDocuments: []string{"cp1", "cp2", "cp3", "worker1"}},
		"both forms side by side": {inDocuments: []string{"cp2", "worker1"}},
		"with nodes of older releases": {inDocuments: []string{"cp1"}, change: func(options *labcluster.Options) {
			options.TalosVersion = "v1.12.1"
			edit("cp1", func(node *emulator.NodeOptions) { node.TalosVersion = documents.Talos })(options)
			edit("cp2", func(node *emulator.NodeOptions) { node.TalosVersion = "v1.13.9" })(options)
			edit("cp3", func(node *emulator.NodeOptions) { node.TalosVersion = documents.Talos })(options)
		}},
		"kubelet appears after the boot": {inDocuments: []string{"cp1", "cp2", "cp3", "worker1"},
			change: func(options *labcluster.Options) { options.LabOptions.Unsettled.KubeletAfterBoot = true }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			changes := []func(*labcluster.Options){on114}
			if test.change != nil {
				changes = append(changes, test.change)
			}

			l := newLab(t, 3, 1, changes...)
			l.inDocuments(t, test.inDocuments)
			l.untilMaintenance(t)

			s := l.session(t, asTheyAre, "MAX_PARALLEL=100%")
			s.succeeds(t, s.recipe()...)
			require.NotContains(t, s.lines.all(), "nothing answers")

			sent, effective := l.bootstraps()
			require.Equal(t, 1, effective)
			require.GreaterOrEqual(t, sent, 1)

			for _, node := range l.Nodes {
				require.Equal(t, 2, node.Boots(), node.Name())
				require.Equal(t, 1, applied(node), node.Name())
			}

			again := l.session(t, asTheyAre)
			again.succeeds(t, again.recipe()...)

			for _, node := range l.Nodes {
				require.Equal(t, 1, applied(node), node.Name())
				require.Equal(t, report.Skipped, again.status("applySequential", node.Name()))
			}
		})
	}
}

func TestARecipeRendersDocumentsAndBringsUpNodesWithThem(t *testing.T) {
	t.Parallel()

	w := withoutTalhelper(t, newWorkshop(t, 1, 1, on114))
	w.untilMaintenance(t)

	const contract = "TALOS_CONTRACT=v1.14"

	s := w.session(t, contract)
	s.succeeds(t, s.recipe()...)
	require.Contains(t, readFile(t, w.ConfigFile("cp1")), "kind: UnattendedInstallConfig")

	again := w.session(t, contract)
	again.succeeds(t, again.recipe()...)

	for _, node := range w.Nodes {
		require.Equal(t, 1, applied(node), node.Name())
		require.Equal(t, 2, node.Boots(), node.Name())
	}
}

func TestAFailingUnattendedInstallIsToldAndCorrected(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		edit   documents.Edit
		faults emulator.Faults
		says   string
		skip   string
	}{
		"the installer image can't be pulled": {edit: documents.NoImage, says: "failed to pull image",
			faults: emulator.Faults{Install: emulator.InstallImagePull}},
		"no disk matches": {edit: documents.NoDisk, says: "no disk matched the selector", skip: "SKIP_CHECKS=TM048"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 1, 0, on114)
			node := l.Node("cp1")
			node.Set(func(f *emulator.Faults) { *f = test.faults })
			l.inDocuments(t, []string{"cp1"}, test.edit)
			l.untilMaintenance(t)

			environ := []string{asTheyAre, test.skip, seconds("VERIFICATION_TIMEOUT", 20)}
			failed := l.session(t, environ...)
			problem := failed.fails(t, diagnosis.ExitVerify, diagnosis.InstallFailed, steps.Apply{}, steps.Verify{})
			require.Contains(t, problem.Cause, test.says)
			require.Contains(t, problem.Next, "mage applySequential -node=cp1")
			require.Regexp(t, "(goes on trying|after it failed): "+test.says, failed.lines.all())

			require.Eventually(t, func() bool {
				status := steps.ReadStatus(t.Context(), l.session(t, environ...).Run)
				return len(status.Findings) > 0 && status.Findings[0].ID == diagnosis.InstallFailed &&
					strings.Contains(status.Findings[0].Cause, test.says) &&
					strings.Contains(status.Next, "mage applySequential -node=cp1")
			}, labcluster.Deadline, 10*time.Millisecond)

			same := l.session(t, environ...).succeeds(t, steps.Apply{})
			require.Contains(t, same.detail("applySequential", "cp1"), "has its config")
			require.Equal(t, 1, applied(node))

			l.inDocuments(t, []string{"cp1"})
			node.Set(func(f *emulator.Faults) { *f = emulator.Faults{} })

			l.session(t, environ...).succeeds(t, steps.Apply{}, steps.Verify{})
			require.Equal(t, 2, applied(node))
			require.Equal(t, 2, node.Boots(), "never back to maintenance")
		})
	}
}

func TestAnInstallThatNobodySeesFailIsSaidToBeOne(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0, on114)
	node := l.Node("cp1")
	node.Set(func(f *emulator.Faults) { f.Install = emulator.InstallImagePull })
	l.inDocuments(t, []string{"cp1"}, documents.AutoHostname)
	l.untilMaintenance(t)

	s := l.session(t, asTheyAre, seconds("INSTALL_TIMEOUT", 30))
	problem := s.fails(t, diagnosis.ExitVerify, diagnosis.NodeRefused, steps.Preflight{InRecipe: true}, steps.Apply{},
		steps.Verify{})
	require.Contains(t, problem.Cause, "nothing but its console tells whether its install fails")
	require.Contains(t, problem.Next, "turn it off and on")
	require.Contains(t, s.out.String(), string(diagnosis.InstallHidden))
	require.Contains(t, s.lines.all(), "port refused until it is installed, however often that fails")
}

func TestASelectorWithoutAMatchIsFoundBeforeANodeWaitsForItForEver(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0, on114)
	l.inDocuments(t, []string{"cp1"}, documents.Edit{`disk.dev_path == "/dev/vda"`, `disk.transport == "nvme" && disk.size > 1u * GB`})
	l.untilMaintenance(t)

	problem := l.session(t, asTheyAre).fails(t, diagnosis.ExitPreflight, diagnosis.InstallDiskNoMatch, steps.Preflight{})
	require.Contains(t, problem.Cause, `no disk matches disk.transport == "nvme" && disk.size > 1u * GB, and the node would wait for one for ever`)
	require.Regexp(t, `/dev/vda .* not disk.transport == "nvme"\n`, problem.Cause+"\n")
	require.Zero(t, applied(l.Node("cp1")))
}

func TestAChangeThatWaitsForARebootIsNamedAndRebootedForWhenAsked(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 0, on114)
	l.inDocuments(t, names(l))
	l.upAsTheyAre(t)

	l.inDocuments(t, []string{"cp2"}, documents.NoIsolation)

	node := l.Node("cp2")
	boots := node.Boots()

	problem := l.session(t, asTheyAre, "-update=true").fails(t, diagnosis.ExitApply, diagnosis.UpdateNeedsReboot,
		steps.Apply{})
	require.Equal(t, "SecurityProfileConfig takes effect at a reboot only", problem.Cause)
	require.Contains(t, problem.Next, "mage applySequential -node=cp2 -update -reboot")
	require.Equal(t, 1, applied(node))

	s := l.session(t, asTheyAre, "-update=true", "-reboot=true").succeeds(t, steps.Apply{})
	require.Equal(t, report.Applied, s.status("applySequential", "cp2"))
	require.Equal(t, boots+1, node.Boots())
	require.Equal(t, 1, calls(node, "Reboot"))

	for _, other := range []string{"cp1", "cp3"} {
		require.Zero(t, calls(l.Node(other), "Reboot"))
	}
}

func TestARebootWhoseReplyIsLostIsNotTakenForDone(t *testing.T) {
	t.Parallel()

	for name, lost := range map[string]emulator.CallFault{
		"it did nothing":        {Method: "Reboot", Do: emulator.Cut, When: emulator.BeforeEffect, Times: 1},
		"the node is rebooting": {Method: "Reboot", Do: emulator.Cut, When: emulator.AfterEffect, Times: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 1, 0, on114)
			l.inDocuments(t, []string{"cp1"})
			l.upAsTheyAre(t)
			l.inDocuments(t, []string{"cp1"}, documents.NoIsolation)

			node := l.Node("cp1")
			boots := node.Boots()

			fault(node, lost)

			l.session(t, asTheyAre, "-update=true", "-reboot=true").succeeds(t, steps.Apply{})
			require.Equal(t, boots+1, node.Boots())
			require.Contains(t, string(node.Config()), "workloadIsolation: false")
		})
	}
}

func TestOnlyWhatIsKnownToWaitForARebootGetsOne(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0, on114)
	l.inDocuments(t, []string{"cp1"})
	l.upAsTheyAre(t)

	node := l.Node("cp1")
	boots := node.Boots()

	l.inDocuments(t, []string{"cp1"}, documents.Edit{"kind: VolumeConfig\nname: EPHEMERAL\n",
		"kind: VolumeConfig\nname: EPHEMERAL\nprovisioning: {grow: true}\n"})

	s := l.session(t, asTheyAre, "-update=true", "-reboot=true").succeeds(t, steps.Apply{})
	require.Contains(t, s.out.String(), "VolumeConfig EPHEMERAL.provisioning may need a reboot")
	require.Contains(t, s.out.String(), string(diagnosis.RebootPending))
	require.Zero(t, calls(node, "Reboot"))
	require.Equal(t, boots, node.Boots())
}

func TestModeRebootIsNeverSentToTalos114(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0, on114)
	l.inDocuments(t, []string{"cp1"})
	l.upAsTheyAre(t)
	l.inDocuments(t, []string{"cp1"}, documents.Tuned)

	boots := l.Node("cp1").Boots()

	l.session(t, asTheyAre, "-update=true", "-reboot=true", "MODE=reboot").succeeds(t, steps.Apply{})
	require.Equal(t, boots+1, l.Node("cp1").Boots())
	require.Equal(t, 1, calls(l.Node("cp1"), "Reboot"))
}

// Documents are for the release that a node will run; until then it would refuse all of its config.
func TestDocumentsAreNotSentToANodeWhoseTalosDoesNotKnowThem(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0, func(options *labcluster.Options) { options.Endpoint = labcluster.FirstControlPlane })
	l.upAsTheyAre(t)
	l.inDocuments(t, []string{"cp1"})

	applies := applied(l.Node("cp1"))

	problem := l.session(t, asTheyAre, "-update=true").
		fails(t, diagnosis.ExitApply, diagnosis.TalosVersionMismatch, steps.Apply{})
	require.Equal(t, "cp1", problem.Node)
	require.Contains(t, problem.Cause, "the node runs Talos v1.13.9, which does not know these documents")
	require.Equal(t, applies, applied(l.Node("cp1")))
}

func TestBootstrapWaitsForAnUnattendedInstall(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0, on114, func(options *labcluster.Options) { options.Timing.Install = 2 * time.Minute })
	l.inDocuments(t, []string{"cp1"})
	l.untilMaintenance(t)

	l.session(t, asTheyAre).succeeds(t, steps.Apply{})
	require.Eventually(t, func() bool {
		return strings.HasPrefix(steps.ReadStatus(t.Context(), l.session(t, asTheyAre).Run).Nodes[0].Stage, "installing")
	}, labcluster.Deadline, 10*time.Millisecond)

	s := l.session(t, asTheyAre).succeeds(t, steps.Bootstrap{})
	require.Contains(t, s.lines.all(), "installing")

	_, effective := l.bootstraps()
	require.Equal(t, 1, effective)
}

// Its status tells nothing of the install, and each watch is a connection.
func TestTheStatusOfANodeThatInstallsUnattendedIsNotWatched(t *testing.T) {
	t.Parallel()

	var (
		mu   sync.Mutex
		last time.Time // when a call came in the boot that installs
	)

	l := newLab(t, 1, 0, on114, func(options *labcluster.Options) {
		options.LabOptions.Watch = func(node *emulator.Node, _ emulator.Call) {
			mu.Lock()
			defer mu.Unlock()

			if node.Boots() == 1 {
				last = time.Now()
			}
		}
	})
	l.inDocuments(t, []string{"cp1"})
	l.untilMaintenance(t)

	s := l.session(t, asTheyAre).succeeds(t, steps.Apply{}, steps.Verify{})
	require.Contains(t, s.lines.all(), "installing")

	for _, call := range l.Node("cp1").Calls() {
		if call.Name() == "Watch" && call.Resource == runtimeres.MachineStatusType {
			require.True(t, call.Time.After(last), "it was watched while it installed")
		}
	}
}

func TestABootstrapWithoutACAForEtcdIsFinal(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0, on114)
	node := l.Node("cp1")

	l.inDocuments(t, []string{"cp1"})
	l.untilMaintenance(t)
	l.session(t, asTheyAre).succeeds(t, steps.Apply{}, steps.Verify{})
	fault(node, emulator.CallFault{Method: "Bootstrap", Do: emulator.Fail, Code: codes.InvalidArgument,
		Text: "etcd is not configured, bootstrap is not possible"})

	problem := l.session(t, asTheyAre).fails(t, diagnosis.ExitBootstrap, diagnosis.BootstrapFailed, steps.Bootstrap{})
	require.Contains(t, problem.Cause, "no certificate authority for etcd")
	require.Contains(t, problem.Next, "mage applySequential -node=cp1 -update")
	require.Equal(t, 1, calls(node, "Bootstrap"))
}

// upAsTheyAre brings a cluster up with its files as they are.
func (l *lab) upAsTheyAre(t *testing.T) {
	t.Helper()

	l.untilMaintenance(t)
	s := l.session(t, asTheyAre, "APPLY_MODE=parallel", "MAX_PARALLEL=100%")
	s.succeeds(t, s.recipe()...)
}
