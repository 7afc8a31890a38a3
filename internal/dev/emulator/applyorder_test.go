package emulator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/crypto/x509"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// Parts of machine configs.
var (
	needsReboot = func(c *v1alpha1.Config) {
		c.MachineConfig.MachineEnv = map[string]string{"http_proxy": "http://192.0.2.1"}
	}
	oldKubelet = func(c *v1alpha1.Config) {
		c.MachineConfig.MachineKubelet.KubeletImage = "ghcr.io/siderolabs/kubelet:v1.10.0"
	}
	wrongType = func(c *v1alpha1.Config) { c.MachineConfig.MachineType = "master" }
)

// patchedSysctl is a change that takes effect without a reboot and can be told from others by its value.
func patchedSysctl(value string) func(*v1alpha1.Config) {
	return func(c *v1alpha1.Config) { c.MachineConfig.MachineSysctls = map[string]string{"vm.swappiness": value} }
}

func both(changes ...func(*v1alpha1.Config)) func(*v1alpha1.Config) {
	return func(c *v1alpha1.Config) {
		for _, change := range changes {
			change(c)
		}
	}
}

// conflictingNames is a document that is not valid by itself.
const conflictingNames = "apiVersion: v1alpha1\nkind: HostnameConfig\nauto: stable\nhostname: both\n"

func TestClaim_2_20_AnApplyIsCheckedInOrder(t *testing.T) {
	t.Parallel()

	cluster, node, c := ready(t, labcluster.Options{Timing: emulator.Timing{Pods: 1000 * time.Hour}})
	reader := signed(t, cluster, node, x509.Organization(string(role.Reader)))

	good, err := cluster.Config("cp1")
	require.NoError(t, err)

	refused := func(c *client.Client, data []byte, mode machineapi.ApplyConfigurationRequest_Mode, code codes.Code,
		text string) {
		t.Helper()

		_, err := c.ApplyConfiguration(deadline(t),
			&machineapi.ApplyConfigurationRequest{Data: data, Mode: mode, DryRun: true})
		require.Equal(t, code, client.StatusCode(err), "%v", err)
		require.ErrorContains(t, err, text)
	}

	// From the last check to the first: each request would fail the later ones as well.
	refused(c, edited(t, cluster, "cp1", needsReboot), modeNoReboot, codes.InvalidArgument,
		"this config change can't be applied in immediate mode\ndiff:\n")
	refused(c, edited(t, cluster, "cp1", both(needsReboot, oldKubelet)), modeNoReboot, codes.InvalidArgument,
		"kubelet image is not valid")
	refused(c, edited(t, cluster, "cp1", both(needsReboot, oldKubelet, wrongType)), modeNoReboot, codes.InvalidArgument,
		`unknown machine type "master"`)
	refused(c, []byte(conflictingNames), modeNoReboot, codes.InvalidArgument,
		"the applied machine configuration doesn't contain v1alpha1 config")
	refused(c, []byte("no config at all"), modeNoReboot, codes.InvalidArgument, "expected a YAML document")
	refused(reader, []byte("no config at all"), modeNoReboot, codes.PermissionDenied, "not authorized")

	// A refused caller ends no try, since that comes after the role.
	_, err = c.ApplyConfiguration(deadline(t), &machineapi.ApplyConfigurationRequest{
		Data: edited(t, cluster, "cp1", patchedSysctl("1")), Mode: modeTry, TryModeTimeout: durationpb.New(20 * time.Second),
	})
	require.NoError(t, err)
	refused(reader, good, modeNoReboot, codes.PermissionDenied, "not authorized")
	require.NoError(t, node.WaitFor(deadline(t),
		func(n *emulator.Node) bool { return !strings.Contains(string(n.Config()), "vm.swappiness") }))

	// The lock comes before the role.
	node.Set(func(f *emulator.Faults) { f.MetaNotReady = true })

	started, waited := ended(node, "ApplyConfiguration"), make(chan error, 1)

	go func() {
		_, err := c.ApplyConfiguration(deadline(t),
			&machineapi.ApplyConfigurationRequest{Data: good, DryRun: true, Mode: modeAuto})
		waited <- err
	}()

	eventually(t, func() error { return until(len(callsOf(node, "ApplyConfiguration")) > started) })
	eventually(t, func() error {
		_, err := reader.ApplyConfiguration(deadline(t), &machineapi.ApplyConfigurationRequest{Data: good, DryRun: true})

		return until(client.StatusCode(err) == codes.FailedPrecondition)
	})
	refused(reader, []byte("no config at all"), modeNoReboot, codes.FailedPrecondition,
		"another apply configuration is already in progress")
	node.Set(func(f *emulator.Faults) { f.MetaNotReady = false })
	require.NoError(t, next(t, waited))

	// And so does a reboot that is about to come.
	_, err = apply(t, c, good, modeReboot)
	require.NoError(t, err)
	refused(reader, []byte("no config at all"), modeNoReboot, codes.FailedPrecondition,
		"configuration was already applied and node is rebooting, cannot apply more configuration changes until next reboot")
}

// callsOf are a machine's calls of a method.
func callsOf(node *emulator.Node, method string) []emulator.Call {
	var calls []emulator.Call

	for _, call := range node.Calls() {
		if call.Name() == method {
			calls = append(calls, call)
		}
	}

	return calls
}

// swappiness are the values of a setting in the active and in the persistent config.
func swappiness(t *testing.T, c *client.Client) (active, persistent string) {
	t.Helper()

	value := func(id string) string {
		found, err := safe.StateGetByID[*config.MachineConfig](deadline(t), c.COSI, id)
		if state.IsNotFoundError(err) {
			return "absent"
		}

		require.NoError(t, err)

		return found.Config().Machine().Sysctls()["vm.swappiness"]
	}

	return value("v1alpha1"), value("persistent")
}

func TestClaim_2_21_TheModesOfAConfiguredNode(t *testing.T) {
	t.Parallel()

	cluster, node, c := ready(t, labcluster.Options{Endpoint: labcluster.FirstControlPlane})
	waitStage(t, node, "running")

	send := func(mode machineapi.ApplyConfigurationRequest_Mode, dry bool,
		changes ...func(*v1alpha1.Config)) *machineapi.ApplyConfiguration {
		t.Helper()

		reply, err := c.ApplyConfiguration(deadline(t), &machineapi.ApplyConfigurationRequest{
			Data: edited(t, cluster, "cp1", both(changes...)), Mode: mode, DryRun: dry,
		})
		require.NoError(t, err)

		return reply.GetMessages()[0]
	}

	expect := func(active, persistent string) {
		t.Helper()

		now, next := swappiness(t, c)
		require.Equal(t, active, now)
		require.Equal(t, persistent, next)
	}

	// What would happen is told, with the mode that it would happen in.
	for mode, want := range map[machineapi.ApplyConfigurationRequest_Mode]struct {
		mode machineapi.ApplyConfigurationRequest_Mode
		text string
	}{
		modeAuto:     {modeNoReboot, "Applied configuration without a reboot"},
		modeNoReboot: {modeNoReboot, "Applied configuration without a reboot"},
		modeTry:      {modeTry, "Applied configuration without a reboot"},
		modeStaged:   {modeStaged, "Staged configuration to be applied after the next reboot"},
		modeReboot:   {modeReboot, "Applied configuration with a reboot"},
	} {
		reply := send(mode, true, patchedSysctl("9"))
		require.Equal(t, want.mode, reply.GetMode())
		require.Contains(t, reply.GetModeDetails(), "Dry run summary:\n"+want.text+" (skipped in dry-run).\nConfig diff:\n\n")
		require.Contains(t, reply.GetModeDetails(), `vm.swappiness: "9"`)
	}

	require.Contains(t, send(modeAuto, true).GetModeDetails(), "No changes.")
	expect("", "absent")

	require.Equal(t, "Applied configuration without a reboot",
		send(modeNoReboot, false, patchedSysctl("1")).GetModeDetails())
	expect("1", "1")

	reply := send(modeTry, false, patchedSysctl("2"))
	require.Equal(t, modeTry, reply.GetMode())
	require.Equal(t, "Applied configuration without a reboot\nThe config is applied in 'try' mode and will be "+
		"automatically reverted back in 1m0s", reply.GetModeDetails())
	expect("2", "1")

	_, err := apply(t, c, edited(t, cluster, "cp1", needsReboot), modeTry)
	require.Equal(t, codes.InvalidArgument, client.StatusCode(err))
	require.ErrorContains(t, err, "this config change can't be applied in immediate mode")

	reply = send(modeStaged, false, patchedSysctl("3"), needsReboot)
	require.Equal(t, modeStaged, reply.GetMode())

	_, next := swappiness(t, c)
	require.Equal(t, "3", next)
	require.Equal(t, "running", node.Stage())

	// Without a mode a node reboots.
	boots := node.Boots()
	answer, err := c.ApplyConfiguration(deadline(t),
		&machineapi.ApplyConfigurationRequest{Data: edited(t, cluster, "cp1", patchedSysctl("4"))})
	require.NoError(t, err)
	require.Equal(t, modeReboot, answer.GetMessages()[0].GetMode())
	require.NoError(t, node.WaitFor(deadline(t),
		func(n *emulator.Node) bool { return n.Boots() == boots+1 && n.Stage() == "running" }))
	eventually(t, func() error { _, err := c.Version(deadline(t)); return err })
	expect("4", "absent")
}

func TestClaim_2_22_AStagedConfigWaitsForTheNextBoot(t *testing.T) {
	t.Parallel()

	for name, installed := range map[string]bool{"on an installed machine": true, "and is lost without a disk": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			cluster, node := alone(t, labcluster.Options{Edit: func(o *emulator.NodeOptions) { o.Installed = installed }})
			data, err := cluster.Config("cp1")
			require.NoError(t, err)

			reply, err := apply(t, insecure(t, node), data, modeStaged)
			require.NoError(t, err)
			require.Equal(t, modeStaged, reply.GetMode())
			require.Equal(t, "Staged configuration to be applied after the next reboot", reply.GetModeDetails())
			require.Equal(t, "maintenance", node.Stage())

			node.PowerOff()
			node.PowerOn()

			if !installed {
				require.NoError(t, node.WaitFor(deadline(t),
					func(n *emulator.Node) bool { return n.Boots() == 2 && n.Stage() == "maintenance" }))

				return
			}

			eventually(t, func() error { _, err := secure(t, cluster.Talosconfig(), node).Version(deadline(t)); return err })
			require.Equal(t, 2, node.Boots())
		})
	}
}

func TestClaim_2_23_MostOfAConfigTakesEffectWithoutAReboot(t *testing.T) {
	t.Parallel()

	cluster, node := waiting(t)
	c := secure(t, cluster.Talosconfig(), node)

	for name, test := range map[string]struct {
		change func(*v1alpha1.Config)
		mode   machineapi.ApplyConfigurationRequest_Mode
	}{
		"debug":        {func(c *v1alpha1.Config) { yes := true; c.ConfigDebug = &yes }, modeNoReboot},
		"cluster":      {func(c *v1alpha1.Config) { c.ClusterConfig.ClusterName = "renamed" }, modeNoReboot},
		"certSANs":     {func(c *v1alpha1.Config) { c.MachineConfig.MachineCertSANs = []string{"192.0.2.9"} }, modeNoReboot},
		"controlPlane": {func(c *v1alpha1.Config) { c.MachineConfig.MachineControlPlane = &v1alpha1.MachineControlPlaneConfig{} }, modeNoReboot},
		"install":      {func(c *v1alpha1.Config) { c.MachineConfig.MachineInstall.InstallDisk = "/dev/sdz" }, modeNoReboot},
		"kernel":       {func(c *v1alpha1.Config) { c.MachineConfig.MachineKernel = &v1alpha1.KernelConfig{} }, modeNoReboot},
		"kubelet": {func(c *v1alpha1.Config) {
			yes := true
			c.MachineConfig.MachineKubelet.KubeletSkipNodeRegistration = &yes
		}, modeNoReboot},
		"logging": {func(c *v1alpha1.Config) { c.MachineConfig.MachineLogging = &v1alpha1.LoggingConfig{} },
			modeNoReboot},
		"network": {func(c *v1alpha1.Config) { c.MachineConfig.MachineNetwork = &v1alpha1.NetworkConfig{} },
			modeNoReboot},
		"nodeAnnotations": {func(c *v1alpha1.Config) { c.MachineConfig.MachineNodeAnnotations = map[string]string{"a": "b"} },
			modeNoReboot},
		"nodeLabels": {func(c *v1alpha1.Config) { c.MachineConfig.MachineNodeLabels = map[string]string{"a": "b"} },
			modeNoReboot},
		"nodeTaints":      {func(c *v1alpha1.Config) { c.MachineConfig.MachineNodeTaints = map[string]string{"a": "b:NoSchedule"} }, modeNoReboot},
		"seccompProfiles": {func(c *v1alpha1.Config) { c.MachineConfig.MachineSeccompProfiles = nil }, modeNoReboot},
		"sysctls":         {patchedSysctl("1"), modeNoReboot},
		"sysfs": {func(c *v1alpha1.Config) { c.MachineConfig.MachineSysfs = map[string]string{"a": "b"} },
			modeNoReboot},
		"time": {func(c *v1alpha1.Config) { c.MachineConfig.MachineTime = &v1alpha1.TimeConfig{} }, modeNoReboot},
		"registries": {func(c *v1alpha1.Config) { c.MachineConfig.MachineRegistries.RegistryMirrors = nil },
			modeNoReboot},
		"pods": {func(c *v1alpha1.Config) { c.MachineConfig.MachinePods = nil }, modeNoReboot},
		"env":  {needsReboot, modeReboot},
		"files": {func(c *v1alpha1.Config) {
			c.MachineConfig.MachineFiles = []*v1alpha1.MachineFile{{FileContent: "x", FilePath: "/var/x", FileOp: "create"}}
		}, modeReboot},
		"udev": {func(c *v1alpha1.Config) { c.MachineConfig.MachineUdev = &v1alpha1.UdevConfig{UdevRules: []string{"x"}} },
			modeReboot},
		"token": {func(c *v1alpha1.Config) { c.MachineConfig.MachineToken = "aaaaaa.bbbbbbbbbbbbbbbb" }, modeReboot},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			eventually(t, func() error { // one at a time
				reply, err := c.ApplyConfiguration(deadline(t), &machineapi.ApplyConfigurationRequest{
					Data: edited(t, cluster, "cp1", test.change), Mode: modeAuto, DryRun: true,
				})
				if client.StatusCode(err) == codes.FailedPrecondition {
					return err
				}

				require.NoError(t, err)
				require.Equal(t, test.mode, reply.GetMessages()[0].GetMode())

				return nil
			})
		})
	}

	t.Run("other documents", func(t *testing.T) {
		t.Parallel()

		good, err := cluster.Config("cp1")
		require.NoError(t, err)

		eventually(t, func() error {
			reply, err := c.ApplyConfiguration(deadline(t), &machineapi.ApplyConfigurationRequest{
				Data: append(good, []byte("\n---\napiVersion: v1alpha1\nkind: WatchdogTimerConfig\ndevice: /dev/watchdog0\n")...),
				Mode: modeAuto, DryRun: true,
			})
			if client.StatusCode(err) == codes.FailedPrecondition {
				return err
			}

			require.NoError(t, err)
			require.Equal(t, modeNoReboot, reply.GetMessages()[0].GetMode())

			return nil
		})
	})
}

func TestClaim_2_24_AMessageHasAtMost32MiB(t *testing.T) {
	t.Parallel()

	_, node := idle(t)
	_, err := apply(t, insecure(t, node), make([]byte, 33<<20), modeAuto)
	require.Equal(t, codes.ResourceExhausted, client.StatusCode(err))

	text := refusal(t, insecure(t, node), []byte("# "+strings.Repeat("x", 5<<20)))
	require.NotEmpty(t, text, "read, and found to be no config")
}
