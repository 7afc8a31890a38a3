package emulator_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// edited is a machine's config with changes.
func edited(t *testing.T, cluster *labcluster.Cluster, name string, change func(*v1alpha1.Config)) []byte {
	t.Helper()

	data, err := cluster.Config(name)
	require.NoError(t, err)

	provider, err := configloader.NewFromBytes(data)
	require.NoError(t, err)

	patched, err := provider.PatchV1Alpha1(func(c *v1alpha1.Config) error {
		change(c)

		return nil
	})
	require.NoError(t, err)

	out, err := patched.Bytes()
	require.NoError(t, err)

	return out
}

func apply(t *testing.T, c *client.Client, data []byte,
	mode machineapi.ApplyConfigurationRequest_Mode) (*machineapi.ApplyConfiguration, error) {
	t.Helper()

	reply, err := c.ApplyConfiguration(deadline(t), &machineapi.ApplyConfigurationRequest{Data: data, Mode: mode})
	if err != nil {
		return nil, err
	}

	return reply.GetMessages()[0], nil
}

const (
	modeAuto     = machineapi.ApplyConfigurationRequest_AUTO
	modeReboot   = machineapi.ApplyConfigurationRequest_REBOOT
	modeNoReboot = machineapi.ApplyConfigurationRequest_NO_REBOOT
	modeStaged   = machineapi.ApplyConfigurationRequest_STAGED
	modeTry      = machineapi.ApplyConfigurationRequest_TRY
)

func TestClaim_2_03_MaintenanceAnswersWithoutARebootAndThenInstalls(t *testing.T) {
	t.Parallel()

	for name, mode := range map[string]machineapi.ApplyConfigurationRequest_Mode{"auto": modeAuto, "reboot": modeReboot,
		"no-reboot": modeNoReboot} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			cluster, node := alone(t, labcluster.Options{})
			data, err := cluster.Config("cp1")
			require.NoError(t, err)

			reply, err := apply(t, insecure(t, node), data, mode)
			require.NoError(t, err)
			require.Equal(t, modeNoReboot, reply.GetMode())
			require.Equal(t, "Applied configuration without a reboot", reply.GetModeDetails())
			require.Nil(t, reply.GetMetadata())

			installed(t, node)
			require.True(t, node.Installed())
		})
	}
}

func TestClaim_2_04_DryRunChangesNothingAndShowsTheDifference(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, labcluster.Options{})
	data, err := cluster.Config("cp1")
	require.NoError(t, err)

	reply, err := insecure(t, node).ApplyConfiguration(deadline(t),
		&machineapi.ApplyConfigurationRequest{Data: data, Mode: modeAuto, DryRun: true})
	require.NoError(t, err)
	require.Equal(t, modeNoReboot, reply.GetMessages()[0].GetMode())
	require.True(t, strings.HasPrefix(reply.GetMessages()[0].GetModeDetails(),
		"Dry run summary:\nApplied configuration without a reboot (skipped in dry-run).\nConfig diff:\n\n"))
	require.Contains(t, reply.GetMessages()[0].GetModeDetails(), "+machine:")
	require.Empty(t, reply.GetMessages()[0].GetWarnings())
	require.Equal(t, "maintenance", node.Stage())
	require.Empty(t, node.MutatingCalls())
	require.Nil(t, node.Config())
}

func TestClaim_2_05_PartialAndStagedConfigsLeaveTheNodeInMaintenance(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, labcluster.Options{})
	c := insecure(t, node)

	_, err := apply(t, c, []byte("apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: early\n"), modeAuto)
	require.NoError(t, err)
	require.Equal(t, "maintenance", node.Stage())

	name, err := c.MachineClient.Hostname(deadline(t), nil)
	require.NoError(t, err)
	require.Equal(t, "early", name.GetMessages()[0].GetHostname())

	data, err := cluster.Config("cp1")
	require.NoError(t, err)

	reply, err := apply(t, c, data, modeStaged)
	require.NoError(t, err)
	require.Equal(t, "Staged configuration to be applied after the next reboot", reply.GetModeDetails())
	require.Equal(t, "maintenance", node.Stage())
	require.False(t, node.Installed())
}

func TestClaim_2_06_ASecondAnonymousApplyIsNotAuthorized(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, labcluster.Options{LabOptions: emulator.LabOptions{TimeScale: 20}})
	data, err := cluster.Config("cp1")
	require.NoError(t, err)

	c := insecure(t, node)
	_, err = apply(t, c, data, modeAuto)
	require.NoError(t, err)

	_, err = apply(t, c, data, modeAuto)
	require.Contains(t, []codes.Code{codes.PermissionDenied, codes.Unavailable}, client.StatusCode(err),
		"not authorized until the port closes")
	require.Len(t, node.MutatingCalls(), 1+countRefused(node))
}

func countRefused(node *emulator.Node) int {
	refused := 0

	for _, call := range node.MutatingCalls() {
		if call.Code == codes.PermissionDenied {
			refused++
		}
	}

	return refused
}

func TestClaim_2_07_AStaticHostnameKeepsTheAPIDuringTheInstall(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t,
		labcluster.Options{LabOptions: emulator.LabOptions{TimeScale: 100}, Timing: emulator.Timing{Install: time.Hour}})
	applyOwn(t, cluster, "cp1")

	c := secure(t, cluster.Talosconfig(), node)

	eventually(t, func() error {
		status, err := safe.StateGetByID[*runtimeres.MachineStatus](deadline(t), c.COSI, runtimeres.MachineStatusID)
		if err != nil {
			return err
		}

		return until(status.TypedSpec().Stage == runtimeres.MachineStageInstalling)
	})

	err := c.Bootstrap(deadline(t), &machineapi.BootstrapRequest{})
	require.Equal(t, codes.FailedPrecondition, client.StatusCode(err))
	require.ErrorContains(t, err, "bootstrap is not available yet")

	require.NoError(t, c.Reboot(deadline(t)), "the answer comes before the lock is asked for")
	eventually(t, func() error {
		return until(strings.Contains(strings.Join(node.Console(), "\n"), "reboot failed: locked"))
	})
	require.Equal(t, "installing", node.Stage())
}

func TestClaim_2_08_AnAutomaticHostnameClosesThePortForTheInstall(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, labcluster.Options{
		AutoHostnames: true, LabOptions: emulator.LabOptions{TimeScale: 100},
		Timing: emulator.Timing{Install: 100 * time.Second},
	})
	applyOwn(t, cluster, "cp1")
	waitStage(t, node, "installing")
	eventually(t, func() error {
		_, _, err := handshake(t, node, 0)

		return until(err != nil && strings.Contains(err.Error(), "connection refused"))
	})

	installed(t, node)
	eventually(t, func() error {
		name, err := secure(t, cluster.Talosconfig(), node).MachineClient.Hostname(deadline(t), nil)
		if err != nil {
			return err
		}

		return until(strings.HasPrefix(name.GetMessages()[0].GetHostname(), "talos-"))
	})
}

func TestClaim_2_35_ANameThatWasSentBeforeTheConfigIsGoneWithIt(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, labcluster.Options{AutoHostnames: true, Timing: emulator.Timing{Install: 1000 * time.Hour}})

	_, err := apply(t, insecure(t, node), []byte("apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: early\n"),
		modeAuto)
	require.NoError(t, err)

	applyOwn(t, cluster, "cp1")
	waitStage(t, node, "installing")
	refused(t, node)
}

func TestClaim_2_09_AFailedInstallEndsInMaintenanceWithoutATrace(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		fault emulator.InstallFault
		want  string
	}{
		"disk":  {emulator.InstallDiskMissing, "lstat /dev/vda: no such file or directory"},
		"image": {emulator.InstallImagePull, "failed to pull image"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			cluster, node := alone(t,
				labcluster.Options{LabOptions: emulator.LabOptions{TimeScale: 100}, Edit: func(o *emulator.NodeOptions) {
					o.Faults.Install, o.Faults.InstallTimes = test.fault, 1
				}})
			applyOwn(t, cluster, "cp1")
			eventually(t, func() error { return until(strings.Contains(strings.Join(node.Console(), "\n"), test.want)) })

			require.NoError(t, node.WaitFor(deadline(t),
				func(n *emulator.Node) bool { return n.Boots() == 2 && n.Stage() == "maintenance" }))
			require.Nil(t, node.Config())
			require.NotContains(t, strings.Join(node.Console(), "\n"), test.want)

			applyOwn(t, cluster, "cp1")
			require.NoError(t, node.WaitFor(deadline(t), func(n *emulator.Node) bool { return n.Boots() == 3 && n.Installed() }))
		})
	}
}

// ready is a control plane that runs its own cluster, and its administrator's client.
func ready(t *testing.T, options labcluster.Options) (*labcluster.Cluster, *emulator.Node, *client.Client) {
	t.Helper()

	cluster, node := alone(t, options)
	applyOwn(t, cluster, "cp1")
	installed(t, node)

	c := secure(t, cluster.Talosconfig(), node)
	eventually(t, func() error { return c.Bootstrap(deadline(t), &machineapi.BootstrapRequest{}) })
	require.NoError(t, node.WaitFor(deadline(t), (*emulator.Node).EtcdVoter))

	return cluster, node, c
}

// stillInstalling is a control plane whose install goes on for as long as the test, with its API up.
func stillInstalling(t *testing.T, options labcluster.Options) (*labcluster.Cluster, *emulator.Node, *client.Client) {
	t.Helper()

	options.Timing.Install = 1000 * time.Hour
	cluster, node := alone(t, options)
	applyOwn(t, cluster, "cp1")
	waitStage(t, node, "installing")

	c := secure(t, cluster.Talosconfig(), node)
	eventually(t, func() error { _, err := c.Version(deadline(t)); return err })

	return cluster, node, c
}

func TestClaim_2_10_ARunningNodeRebootsOnlyForWhatNeedsIt(t *testing.T) {
	t.Parallel()

	cluster, node, c := ready(t, labcluster.Options{})

	harmless := edited(t, cluster, "cp1", func(c *v1alpha1.Config) {
		c.MachineConfig.MachineSysctls = map[string]string{"net.core.somaxconn": "4096"}
	})
	heavy := edited(t, cluster, "cp1", func(c *v1alpha1.Config) {
		c.MachineConfig.MachineEnv = map[string]string{"http_proxy": "http://192.0.2.1"}
	}) //nolint:staticcheck // needs a reboot

	reply, err := apply(t, c, harmless, modeAuto)
	require.NoError(t, err)
	require.Equal(t, modeNoReboot, reply.GetMode())

	_, err = apply(t, c, heavy, modeNoReboot)
	require.Equal(t, codes.InvalidArgument, client.StatusCode(err))
	require.ErrorContains(t, err, "this config change can't be applied in immediate mode\ndiff:\n")

	_, err = apply(t, c, []byte("apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: other\n"), modeAuto)
	require.ErrorContains(t, err, "doesn't contain v1alpha1 config")

	boots := node.Boots()
	reply, err = apply(t, c, heavy, modeAuto)
	require.NoError(t, err)
	require.Equal(t, modeReboot, reply.GetMode())
	require.Contains(t, reply.GetModeDetails(),
		"Applied configuration with a reboot: this config change can't be applied in immediate mode\ndiff:\n")
	require.NoError(t, node.WaitFor(deadline(t),
		func(n *emulator.Node) bool { return n.Boots() == boots+1 && n.Stage() == "running" }))
}

func TestClaim_2_11_ATryIsRolledBack(t *testing.T) {
	t.Parallel()

	cluster, node, c := ready(t, labcluster.Options{})
	tried := edited(t, cluster, "cp1",
		func(c *v1alpha1.Config) { c.MachineConfig.MachineSysctls = map[string]string{"vm.swappiness": "1"} })

	reply, err := c.ApplyConfiguration(deadline(t), &machineapi.ApplyConfigurationRequest{
		Data: tried, Mode: modeTry, TryModeTimeout: durationpb.New(20 * time.Second),
	})
	require.NoError(t, err)
	require.Contains(t, reply.GetMessages()[0].GetModeDetails(),
		"\nThe config is applied in 'try' mode and will be automatically reverted back in 20s")

	require.NoError(t, node.WaitFor(deadline(t),
		func(n *emulator.Node) bool { return !strings.Contains(string(n.Config()), "vm.swappiness") }))
}

func TestClaim_2_12_AnInstalledNodeLeavesMaintenanceWithoutAnInstall(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, labcluster.Options{Edit: func(o *emulator.NodeOptions) { o.Installed = true }})

	for name, change := range map[string]func(*v1alpha1.InstallConfig){
		"a selector that matches nothing": func(i *v1alpha1.InstallConfig) {
			i.InstallDisk, i.InstallDiskSelector = "", &v1alpha1.InstallDiskSelector{Model: "NOPE*"}
		},
		"arguments of two kinds": func(i *v1alpha1.InstallConfig) {
			yes := true
			i.InstallExtraKernelArgs, i.InstallGrubUseUKICmdline = []string{"a=b"}, &yes
		},
	} {
		data := edited(t, cluster, "cp1", func(c *v1alpha1.Config) { change(c.MachineConfig.MachineInstall) })
		require.Empty(t, refusal(t, insecure(t, node), data), name)
	}

	_, err := apply(t, insecure(t, node),
		edited(t, cluster, "cp1", func(c *v1alpha1.Config) { c.MachineConfig.MachineInstall = nil }), modeAuto)
	require.NoError(t, err, "an installed machine needs no install section")

	waitStage(t, node, "booting")
	eventually(t, func() error { _, err := secure(t, cluster.Talosconfig(), node).Version(deadline(t)); return err })
	require.Equal(t, 1, node.Boots())
}

func TestClaim_2_14_AnApplyThatIsWaitingIsAlone(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, labcluster.Options{})
	data, err := cluster.Config("cp1")
	require.NoError(t, err)

	const callers = 8

	results := make(chan error, callers)
	for range callers {
		go func() {
			_, err := insecure(t, node).ApplyConfiguration(deadline(t),
				&machineapi.ApplyConfigurationRequest{Data: data, Mode: modeAuto, DryRun: true})
			results <- err
		}()
	}

	worked := 0

	for range callers {
		err := next(t, results)
		if err == nil {
			worked++

			continue
		}

		require.Equal(t, codes.FailedPrecondition, client.StatusCode(err))
		require.ErrorContains(t, err, "another apply configuration is already in progress")
	}

	require.Positive(t, worked)
}

// giveUpOnApply sends a config to a machine whose META volume is not ready, impatiently, until the first that got
// through keeps the others out.
func giveUpOnApply(t *testing.T, node *emulator.Node, data []byte) {
	t.Helper()

	eventually(t, func() error {
		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()

		_, err := insecure(t, node).ApplyConfiguration(short,
			&machineapi.ApplyConfigurationRequest{Data: data, Mode: modeAuto})
		require.Error(t, err)

		return until(client.StatusCode(err) == codes.FailedPrecondition)
	})
}

func TestClaim_2_15_AnApplyGoesOnWhenItsCallerHasGivenUp(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, labcluster.Options{Edit: func(o *emulator.NodeOptions) { o.Faults.MetaNotReady = true }})
	data, err := cluster.Config("cp1")
	require.NoError(t, err)

	giveUpOnApply(t, node, data)

	_, err = apply(t, insecure(t, node), data, modeAuto)
	require.Equal(t, codes.FailedPrecondition, client.StatusCode(err))
	require.ErrorContains(t, err, "another apply configuration is already in progress")
	require.Nil(t, node.Config())
	node.Set(func(f *emulator.Faults) { f.MetaNotReady = false })
	installed(t, node)
}

func TestWhatTakesTheAddressOfAMachineDoesNotWaitForItsCalls(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, labcluster.Options{Edit: func(o *emulator.NodeOptions) { o.Faults.MetaNotReady = true }})
	data, err := cluster.Config("cp1")
	require.NoError(t, err)

	giveUpOnApply(t, node, data)

	node.Set(func(f *emulator.Faults) { f.Impostor = emulator.SSHImpostor })
	require.NoError(t, node.WaitFor(deadline(t),
		func(n *emulator.Node) bool { return n.Impostor() == emulator.SSHImpostor }))

	node.Set(func(f *emulator.Faults) { f.Impostor = emulator.NoImpostor })
	giveUpOnApply(t, node, data) // told that the first is still in progress

	node.Set(func(f *emulator.Faults) { f.MetaNotReady = false })
	installed(t, node)
}

func TestClaim_2_16_ANodeThatRebootsForAConfigTakesNoOther(t *testing.T) {
	t.Parallel()

	cluster, node, c := ready(t, labcluster.Options{Timing: emulator.Timing{Pods: time.Hour}})
	waitStage(t, node, "running")

	data, err := cluster.Config("cp1")
	require.NoError(t, err)

	reply, err := apply(t, c, data, modeReboot)
	require.NoError(t, err)
	require.Equal(t, modeReboot, reply.GetMode())
	require.Equal(t, "Applied configuration with a reboot", reply.GetModeDetails())

	_, err = apply(t, c, data, modeAuto)
	require.Equal(t, codes.FailedPrecondition, client.StatusCode(err))
	require.ErrorContains(t, err,
		"configuration was already applied and node is rebooting, cannot apply more configuration changes until next reboot")

	waitStage(t, node, "rebooting") // the reply comes first

	status, err := safe.StateGetByID[*runtimeres.MachineStatus](deadline(t), c.COSI, runtimeres.MachineStatusID)
	require.NoError(t, err)
	require.Equal(t, runtimeres.MachineStageRebooting, status.TypedSpec().Stage)
	require.True(t, status.TypedSpec().Status.Ready, "only booting and running nodes are ever unready")
}

func TestClaim_2_17_ATryAsTheFirstConfigEndsInstalledAndWithoutOne(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, labcluster.Options{LabOptions: emulator.LabOptions{TimeScale: 50}})
	data, err := cluster.Config("cp1")
	require.NoError(t, err)

	// The time of the try is over while the installer runs.
	_, err = insecure(t, node).ApplyConfiguration(deadline(t), &machineapi.ApplyConfigurationRequest{
		Data: data, Mode: modeTry, TryModeTimeout: durationpb.New(15 * time.Second),
	})
	require.NoError(t, err)
	waitStage(t, node, "installing")
	require.NoError(t, node.WaitFor(deadline(t), func(n *emulator.Node) bool { return n.Config() == nil }))

	require.NoError(t, node.WaitFor(deadline(t),
		func(n *emulator.Node) bool { return n.Boots() == 2 && n.Stage() == "maintenance" }))
	require.True(t, node.Installed())
	require.Nil(t, node.Config())
}

func TestClaim_2_18_AnyLaterApplyKeepsATriedConfig(t *testing.T) {
	t.Parallel()

	cluster, node, c := ready(t, labcluster.Options{LabOptions: emulator.LabOptions{TimeScale: 100}})
	tried := edited(t, cluster, "cp1",
		func(c *v1alpha1.Config) { c.MachineConfig.MachineSysctls = map[string]string{"vm.swappiness": "1"} })

	_, err := c.ApplyConfiguration(deadline(t), &machineapi.ApplyConfigurationRequest{
		Data: tried, Mode: modeTry, TryModeTimeout: durationpb.New(50 * time.Second),
	})
	require.NoError(t, err)

	_, err = apply(t, c, []byte("no config at all"), modeAuto)
	require.Equal(t, codes.InvalidArgument, client.StatusCode(err))

	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()

	require.Error(t, node.WaitFor(short,
		func(n *emulator.Node) bool { return !strings.Contains(string(n.Config()), "vm.swappiness") }))
}
