package emulator_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/test/documents"
)

// inDocuments is a machine's config as Talos 1.14 generates it, but for its static host name.
func inDocuments(t *testing.T, cluster *labcluster.Cluster, name string, edits ...documents.Edit) []byte {
	t.Helper()

	data, err := documents.Config(cluster.Generated.Options, name, edits...)
	require.NoError(t, err)

	return data
}

// Edits of documents.
var (
	noReboot = documents.Edit{"kind: UnattendedInstallConfig\n", "kind: UnattendedInstallConfig\nreboot: false\n"}
	noImage  = documents.Edit{"    image: " + documents.Installer + "\n", "    image: \"\"\n"}
)

// unattended is a control plane in the middle of an unattended install, and an administrator's client.
func unattended(t *testing.T, options labcluster.Options, edits ...documents.Edit) (
	*labcluster.Cluster, *emulator.Node, *client.Client,
) {
	t.Helper()

	cluster, node := alone(t, on114(options))

	_, err := apply(t, insecure(t, node), inDocuments(t, cluster, "cp1", edits...), modeAuto)
	require.NoError(t, err)

	return cluster, node, secure(t, cluster.Talosconfig(), node)
}

// installStatus is what a machine tells of its unattended install: "installed", or "failed: …".
func installStatus(t *testing.T, c *client.Client) (string, error) {
	t.Helper()

	status, err := safe.StateGetByID[*runtimeres.UnattendedInstallStatus](deadline(t), c.COSI,
		runtimeres.UnattendedInstallStatusID)
	if err != nil {
		return "", err
	}

	text := status.TypedSpec().Phase.String()
	if problem := status.TypedSpec().Error; problem != "" {
		text += ": " + problem
	}

	return text, nil
}

// awaitInstall waits until a machine tells this of its unattended install.
func awaitInstall(t *testing.T, c *client.Client, want string) {
	t.Helper()

	eventually(t, func() error {
		text, err := installStatus(t, c)
		if err != nil {
			return err
		}

		return until(text == want)
	})
}

// endless is an install that no test waits for.
var endless = labcluster.Options{
	LabOptions: emulator.LabOptions{TimeScale: 100}, Timing: emulator.Timing{Install: 1000 * time.Hour},
}

func TestClaim_11_04_AnUnattendedInstallGoesOnBesideTheBoot(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, on114(leisurely(labcluster.Options{})))
	_, err := apply(t, insecure(t, node), inDocuments(t, cluster, "cp1"), modeAuto)
	require.NoError(t, err)

	c := secure(t, cluster.Talosconfig(), node)
	awaitInstall(t, c, "installing")
	require.Equal(t, "booting", node.Stage(), "never installing")

	told := statuses(t, c, func(status *machineapi.MachineStatusEvent) bool {
		return status.GetStage() == machineapi.MachineStatusEvent_REBOOTING
	})
	require.Equal(t, []string{"BOOTING", "REBOOTING"}, stages(told)[len(stages(told))-2:])
	require.NotContains(t, stages(told), "INSTALLING")

	installed(t, node)
	awaitInstall(t, c, "installed")
	eventually(t, func() error { return c.Bootstrap(deadline(t), &machineapi.BootstrapRequest{}) })
	waitStage(t, node, "running")
	require.Equal(t, 2, node.Boots())
	require.NoError(t, node.WaitFor(deadline(t), (*emulator.Node).EtcdVoter))
}

func TestClaim_11_05_AMachineTellsOfItsUnattendedInstall(t *testing.T) {
	t.Parallel()

	options := leisurely(labcluster.Options{})
	options.Timing.Flush = 1000 * time.Hour

	cluster, node := alone(t, on114(options))
	_, err := installStatus(t, insecure(t, node))
	require.True(t, state.IsNotFoundError(err), "%v", err)

	_, err = apply(t, insecure(t, node), inDocuments(t, cluster, "cp1", documents.NoDisk), modeAuto)
	require.NoError(t, err, "a selector that matches nothing is accepted")

	c := secure(t, cluster.Talosconfig(), node)
	awaitInstall(t, c, "pending: no disk matched the selector")
	require.Equal(t, "booting", node.Stage())

	_, err = apply(t, c, inDocuments(t, cluster, "cp1"), modeAuto)
	require.NoError(t, err)
	awaitInstall(t, c, "installing")

	requests := func() error {
		_, err := safe.StateGetByID[*runtimeres.RebootRequest](deadline(t), c.COSI, runtimeres.RebootRequestID)

		return err
	}
	require.True(t, state.IsNotFoundError(requests()))

	eventually(t, requests)
	awaitInstall(t, c, "waiting-for-reboot")

	status, err := safe.StateGetByID[*runtimeres.UnattendedInstallStatus](deadline(t), c.COSI,
		runtimeres.UnattendedInstallStatusID)
	require.NoError(t, err)
	require.Equal(t, documents.Installer, status.TypedSpec().Image)
}

func TestClaim_11_06_AnInstallThatFailsIsTriedAgain(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		fault emulator.InstallFault
		want  string
	}{
		"disk":  {emulator.InstallDiskMissing, "pending: no disk matched the selector"},
		"image": {emulator.InstallImagePull, `failed: failed to pull image "` + documents.Installer + `": failed to resolve reference`},
		"slow":  {emulator.InstallImageSlow, `failed: failed to pull image "` + documents.Installer + `": context deadline exceeded`},
		"write": {emulator.InstallDiskWrite, `failed: task "upgrade" failed: exit code 1`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			cluster, node, c := unattended(t, labcluster.Options{
				LabOptions: emulator.LabOptions{TimeScale: 20}, Timing: emulator.Timing{Install: time.Second},
				Edit: func(o *emulator.NodeOptions) { o.Faults.Install = test.fault },
			})

			for range 2 {
				eventually(t, func() error {
					text, err := installStatus(t, c)
					if err != nil {
						return err
					}

					return until(strings.HasPrefix(text, test.want))
				})

				if test.fault != emulator.InstallDiskMissing {
					awaitInstall(t, c, "installing")
				}
			}

			require.Equal(t, "booting", node.Stage())
			require.Equal(t, 1, node.Boots())

			_, err := apply(t, c, inDocuments(t, cluster, "cp1"), modeAuto)
			require.NoError(t, err, "a config is taken meanwhile")

			node.Set(func(f *emulator.Faults) { f.Install = emulator.InstallWorks })
			installed(t, node)
			awaitInstall(t, c, "installed")
		})
	}
}

func TestClaim_11_07_WithoutARebootTheServicesStart(t *testing.T) {
	t.Parallel()

	schematic := strings.Repeat("ab", 32)

	for name, test := range map[string]struct {
		edits []documents.Edit
		edit  func(*emulator.NodeOptions)
	}{
		"no reboot":                 {edits: []documents.Edit{noReboot}},
		"the host name of the disk": {edits: []documents.Edit{noReboot, documents.AutoHostname}},
		"the image that it was booted from": {
			[]documents.Edit{noImage}, func(o *emulator.NodeOptions) { o.Schematic = schematic },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, node, c := unattended(t, labcluster.Options{Edit: test.edit}, test.edits...)
			awaitInstall(t, c, "installed")
			eventually(t, func() error { return c.Bootstrap(deadline(t), &machineapi.BootstrapRequest{}) })
			waitStage(t, node, "running")
			require.Equal(t, 1, node.Boots())
			require.True(t, node.Installed())

			if test.edit != nil {
				require.Contains(t, console(node), "factory.talos.dev/metal-installer/"+schematic+":v1.14.1")
			}
		})
	}
}

func TestClaim_11_08_WithoutAnImageAnInstallNeedsASchematic(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, on114(labcluster.Options{}))

	reply, err := apply(t, insecure(t, node), inDocuments(t, cluster, "cp1", noImage), modeAuto)
	require.NoError(t, err)
	require.Contains(t, strings.Join(reply.GetWarnings(), "\n"),
		"installer.image is not set, if Talos is not booted from asset built by Image Factory, installation will fail")

	c := secure(t, cluster.Talosconfig(), node)
	eventually(t, func() error {
		text, err := installStatus(t, c)
		if err != nil {
			return err
		}

		return until(strings.HasPrefix(text,
			"failed: failed to determine installer image: failed to get image factory schematic: "))
	})
	require.Equal(t, "booting", node.Stage())

	_, err = apply(t, c, inDocuments(t, cluster, "cp1"), modeAuto)
	require.NoError(t, err)
	installed(t, node)
}

func TestClaim_11_09_ANodeThatChoosesItsNameIsClosedUntilItsDiskHasOne(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		options labcluster.Options
		opens   bool
	}{
		"installing": {options: endless},
		"failing": {options: labcluster.Options{Edit: func(o *emulator.NodeOptions) {
			o.Faults.Install = emulator.InstallImagePull
		}}},
		"installed": {options: labcluster.Options{Timing: emulator.Timing{Stop: 1000 * time.Hour}}},
		"installed, with an early STATE": {
			labcluster.Options{
				Timing:     emulator.Timing{Flush: 1000 * time.Hour},
				LabOptions: emulator.LabOptions{Unsettled: emulator.Unsettled{StateBeforeReboot: true}},
			}, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, node, c := unattended(t, test.options, documents.AutoHostname)
			refused(t, node)

			if test.opens {
				awaitInstall(t, c, "waiting-for-reboot")

				return
			}

			if name == "installed" {
				waitStage(t, node, "rebooting")
			} else {
				waitStage(t, node, "booting")
			}

			refused(t, node)
		})
	}
}

func TestClaim_11_10_AWorkerIsClosedUntilAControlPlaneIsInstalled(t *testing.T) {
	t.Parallel()

	options := endless
	options.ControlPlanes, options.Workers, options.Endpoint = 1, 1, labcluster.FirstControlPlane
	options.Edit = func(o *emulator.NodeOptions) {
		if o.Name == "worker1" {
			o.Timing.Install = time.Second
		}
	}

	cluster := newCluster(t, on114(options))

	for _, node := range cluster.Nodes {
		waitStage(t, node, "maintenance")

		_, err := apply(t, insecure(t, node), inDocuments(t, cluster, node.Name()), modeAuto)
		require.NoError(t, err)
	}

	worker, controlPlane := cluster.Node("worker1"), cluster.Node("cp1")
	installed(t, worker)
	refused(t, worker)
	awaitInstall(t, secure(t, cluster.Talosconfig(), controlPlane), "installing")
	refused(t, worker)
}

func TestClaim_11_11_WithoutAnInstallAConfigIsTakenAndFails(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, on114(labcluster.Options{LabOptions: emulator.LabOptions{TimeScale: 100}}))

	_, err := apply(t, insecure(t, node),
		edited(t, cluster, "cp1", func(c *v1alpha1.Config) { c.MachineConfig.MachineInstall = nil }), modeAuto)
	require.NoError(t, err)
	waitStage(t, node, "installing")
	eventually(t, func() error { return until(strings.Contains(console(node), `task "upgrade" failed: exit code 1`)) })
	require.NoError(t, node.WaitFor(deadline(t),
		func(n *emulator.Node) bool { return n.Boots() == 2 && n.Stage() == "maintenance" }))
}

func TestClaim_11_12_AnInstallSectionInstallsAsBefore(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, on114(labcluster.Options{LabOptions: emulator.LabOptions{TimeScale: 100}}))
	applyOwn(t, cluster, "cp1")
	waitStage(t, node, "installing")
	installed(t, node)

	c := secure(t, cluster.Talosconfig(), node)
	eventually(t, func() error { return c.Bootstrap(deadline(t), &machineapi.BootstrapRequest{}) })
	waitStage(t, node, "running")

	_, err := installStatus(t, c)
	require.True(t, state.IsNotFoundError(err), "%v", err)
}

func TestClaim_11_13_ABootstrapWaitsForTheReboot(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		options labcluster.Options
		edits   []documents.Edit
		status  string
	}{
		"pending":    {edits: []documents.Edit{documents.NoDisk}, status: "pending: no disk matched the selector"},
		"installing": {options: endless, status: "installing"},
		"waiting": {
			options: labcluster.Options{Timing: emulator.Timing{Flush: 1000 * time.Hour}}, status: "waiting-for-reboot",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			cluster, node, c := unattended(t, test.options, test.edits...)
			awaitInstall(t, c, test.status)
			requireStatus(t, bootstrap(t, c), codes.FailedPrecondition, "bootstrap is not available yet")
			require.Zero(t, cluster.Lab.EtcdClusters())
			require.Equal(t, 1, node.Boots())
		})
	}
}

// Every fault that an install can meet shows in an unattended one too, and taking it back heals the machine.
func TestFaultsOfUnattendedInstalls(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		faults emulator.Faults
		shows  func(t *testing.T, s *sick)
	}{
		"InstallTimes": {emulator.Faults{Install: emulator.InstallImagePull, InstallTimes: 2},
			func(t *testing.T, s *sick) {
				t.Helper()
				installed(t, s.node)
				require.Equal(t, 2, s.node.Boots(), "the third try of one boot works by itself")
			}},
		"InstallTimes of a missing disk": {emulator.Faults{Install: emulator.InstallDiskMissing, InstallTimes: 2},
			func(t *testing.T, s *sick) { t.Helper(); installed(t, s.node) }},
		"InstallStall": {emulator.Faults{InstallStall: 1000 * time.Hour}, func(t *testing.T, s *sick) {
			t.Helper()
			awaitInstall(t, s.api(t), "installing")
			require.False(t, s.node.Installed())
		}},
		"Forgets": {emulator.Faults{Forgets: true}, func(t *testing.T, s *sick) {
			t.Helper()
			require.NoError(t, s.node.WaitFor(deadline(t),
				func(n *emulator.Node) bool { return n.Boots() == 2 && n.Stage() == "maintenance" }))
			require.False(t, s.node.Installed())
			s.heal()

			_, err := apply(t, insecure(t, s.node), inDocuments(t, s.Cluster, "cp1"), modeAuto)
			require.NoError(t, err)
		}},
		"Lingers": {emulator.Faults{Lingers: 1000 * time.Hour}, func(t *testing.T, s *sick) {
			t.Helper()
			require.Equal(t, "maintenance", s.node.Stage())
		}},
		"Lost: link": {emulator.Faults{Lost: emulator.LostLink}, func(t *testing.T, s *sick) {
			t.Helper()
			s.says(t, emulator.LostLink.String())
			eventually(t, func() error { return until(errors.Is(s.dial(emulator.APIPort, silence), os.ErrDeadlineExceeded)) })
			require.False(t, s.node.Installed())
		}},
		"Lost: disk": {emulator.Faults{Lost: emulator.LostDisk}, func(t *testing.T, s *sick) {
			t.Helper()
			s.says(t, emulator.LostDisk.String())
		}},
		"BootLoop": {emulator.Faults{BootLoop: true}, func(t *testing.T, s *sick) {
			t.Helper()
			require.NoError(t, s.node.WaitFor(deadline(t), func(n *emulator.Node) bool { return n.Boots() >= 4 }))
		}},
		"TimeUnsynced": {emulator.Faults{TimeUnsynced: true}, func(t *testing.T, s *sick) {
			t.Helper()
			installed(t, s.node)
			eventually(t, func() error {
				return until(strings.Contains(fmt.Sprint(bootstrap(t, s.api(t))), "time is not in sync yet"))
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			cluster, node, _ := unattended(t, labcluster.Options{
				LabOptions: emulator.LabOptions{TimeScale: 100},
				Edit:       func(o *emulator.NodeOptions) { o.Faults = test.faults },
			})
			s := &sick{Cluster: cluster, node: node}

			test.shows(t, s)
			s.heal()
			s.bootstrap(t)
			require.NoError(t, node.WaitFor(deadline(t), (*emulator.Node).EtcdVoter))
		})
	}
}

// A power cut in the middle of an install leaves the machine as it was; after it, the machine has what was installed.
func TestAPowerCutDuringAnUnattendedInstall(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		timing emulator.Timing
		status string
		stage  string
	}{
		"installing": {emulator.Timing{Install: 1000 * time.Hour}, "installing", "maintenance"},
		"installed":  {emulator.Timing{Flush: 1000 * time.Hour}, "waiting-for-reboot", "booting"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, node, c := unattended(t, labcluster.Options{Timing: test.timing})
			awaitInstall(t, c, test.status)
			node.PowerOff()
			node.PowerOn()
			require.NoError(t, node.WaitFor(deadline(t),
				func(n *emulator.Node) bool { return n.Boots() == 2 && n.Stage() == test.stage }))

			if test.stage == "booting" {
				awaitInstall(t, c, "installed")
			}
		})
	}
}

func TestClaim_11_22_AStagedUpgradeIsNotDoneBesideTheDocument(t *testing.T) {
	t.Parallel()

	_, node, c := unattended(t, labcluster.Options{})
	installed(t, node)
	eventually(t, func() error { return c.Bootstrap(deadline(t), &machineapi.BootstrapRequest{}) })
	waitStage(t, node, "running")

	_, err := upgrade(t, c, client.WithUpgradeImage(clusterfiles.DefaultImage+":v1.14.2"),
		client.WithUpgradeForce(true), client.WithUpgradeStage(true))
	require.NoError(t, err)
	require.NoError(t, node.WaitFor(deadline(t),
		func(n *emulator.Node) bool { return n.Boots() == 3 && n.Stage() == "running" }))
	require.Equal(t, talos114, versionOf(t, c))
}

func TestClaim_11_23_TheDocumentAloneInstallsInMaintenance(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, on114(labcluster.Options{}))

	var document string

	for _, text := range strings.Split(string(inDocuments(t, cluster, "cp1")), "\n---\n") {
		if strings.Contains(text, "kind: UnattendedInstallConfig\n") {
			document = text
		}
	}

	_, err := apply(t, insecure(t, node), []byte(document), modeAuto)
	require.NoError(t, err)
	require.NoError(t, node.WaitFor(deadline(t),
		func(n *emulator.Node) bool { return n.Boots() == 2 && n.Stage() == "maintenance" }))
	require.True(t, node.Installed())

	eventually(t, func() error {
		_, err := apply(t, insecure(t, node), inDocuments(t, cluster, "cp1"), modeAuto)

		return err
	})

	c := secure(t, cluster.Talosconfig(), node)
	awaitInstall(t, c, "installed")
	require.Equal(t, 2, node.Boots())
}
