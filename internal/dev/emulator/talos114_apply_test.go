package emulator_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// talos114 is the newest release that nodes can play.
const talos114 = "v1.14.1"

// on114 makes machines run Talos 1.14, with files as for Talos 1.13.
func on114(options labcluster.Options) labcluster.Options {
	edit := options.Edit
	options.Edit = func(o *emulator.NodeOptions) {
		o.TalosVersion = talos114

		if edit != nil {
			edit(o)
		}
	}

	return options
}

const noRebootMode = "the REBOOT mode is not supported, please use AUTO or NO_REBOOT modes instead"

// asWorker makes the config of a control plane that of a worker.
func asWorker(c *v1alpha1.Config) {
	c.MachineConfig.MachineType = "worker"
	c.ClusterConfig.EtcdConfig = nil

	for _, ca := range []**x509.PEMEncodedCertificateAndKey{&c.MachineConfig.MachineCA, &c.ClusterConfig.ClusterCA} {
		*ca = &x509.PEMEncodedCertificateAndKey{Crt: (*ca).Crt}
	}
}

func TestClaim_11_01_AnApplyNeverReboots(t *testing.T) {
	t.Parallel()

	cluster, node, c := ready(t, on114(labcluster.Options{}))
	waitStage(t, node, "running")

	boots := node.Boots()

	for name, change := range map[string]func(*v1alpha1.Config){
		"the environment":  needsReboot,
		"the machine type": asWorker,
	} {
		for _, mode := range []machineapi.ApplyConfigurationRequest_Mode{modeAuto, modeNoReboot} {
			reply, err := apply(t, c, edited(t, cluster, "cp1", change), mode)
			require.NoError(t, err, name)
			require.Equal(t, modeNoReboot, reply.GetMode(), name)
			require.Equal(t, "Applied configuration without a reboot", reply.GetModeDetails(), name)
		}
	}

	reply, err := apply(t, c, edited(t, cluster, "cp1", needsReboot), modeTry)
	require.NoError(t, err)
	require.Equal(t, modeTry, reply.GetMode())

	require.Equal(t, boots, node.Boots())
	require.Equal(t, "running", node.Stage())

	for _, id := range []string{"etcd", "trustd"} {
		require.Equal(t, "Running", serviceInfo(t, c, id).GetState(), "a machine that is called a worker now")
	}
}

func TestClaim_11_02_TheModeRebootIsForMaintenanceAlone(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, on114(labcluster.Options{}))
	good, err := cluster.Config("cp1")
	require.NoError(t, err)

	reply, err := apply(t, insecure(t, node), good, modeReboot)
	require.NoError(t, err)
	require.Equal(t, modeNoReboot, reply.GetMode())
	installed(t, node)

	c := secure(t, cluster.Talosconfig(), node)
	eventually(t, func() error { _, err := c.Version(deadline(t)); return err })

	for _, test := range []struct {
		data []byte
		mode machineapi.ApplyConfigurationRequest_Mode
		code codes.Code
		text string
	}{
		{good, modeReboot, codes.Unimplemented, noRebootMode},
		{edited(t, cluster, "cp1", wrongType), modeReboot, codes.Unimplemented, noRebootMode},
		{[]byte(conflictingNames), modeReboot, codes.InvalidArgument, "doesn't contain v1alpha1 config"},
		{[]byte("no config at all"), modeReboot, codes.InvalidArgument, "expected a YAML document"},
		{good, 7, codes.InvalidArgument, "incorrect mode '7' specified for the apply config call"},
		{edited(t, cluster, "cp1", wrongType), 7, codes.InvalidArgument, `unknown machine type "master"`},
	} {
		_, err := apply(t, c, test.data, test.mode)
		requireStatus(t, err, test.code, test.text)
	}

	require.Equal(t, 2, node.Boots())
}

func TestClaim_11_03_OnlyAnApplyThatTakesEffectKeepsATriedConfig(t *testing.T) {
	t.Parallel()

	cluster, node, c := ready(t, on114(labcluster.Options{LabOptions: emulator.LabOptions{TimeScale: 20}}))
	good, err := cluster.Config("cp1")
	require.NoError(t, err)

	try := func(value string) {
		_, err := c.ApplyConfiguration(deadline(t), &machineapi.ApplyConfigurationRequest{
			Data: edited(t, cluster, "cp1", patchedSysctl(value)), Mode: modeTry,
			TryModeTimeout: durationpb.New(time.Minute),
		})
		require.NoError(t, err)
	}

	try("1")

	for _, without := range []*machineapi.ApplyConfigurationRequest{
		{Data: good, Mode: modeAuto, DryRun: true},
		{Data: []byte("no config at all"), Mode: modeAuto},
		{Data: edited(t, cluster, "cp1", wrongType), Mode: modeAuto},
		{Data: good, Mode: modeReboot},
	} {
		_, err := c.ApplyConfiguration(deadline(t), without)
		require.Equal(t, without.GetDryRun(), err == nil, "%v", err)
	}

	require.Contains(t, string(node.Config()), "vm.swappiness")
	require.NoError(t, node.WaitFor(deadline(t),
		func(n *emulator.Node) bool { return !strings.Contains(string(n.Config()), "vm.swappiness") }))

	try("2")

	reply, err := apply(t, c, good, modeStaged)
	require.NoError(t, err)
	require.Equal(t, "Staged configuration to be applied after the next reboot", reply.GetModeDetails())

	short, cancel := context.WithTimeout(t.Context(), 4*time.Second) // more than the minute on the node
	defer cancel()

	require.Error(t, node.WaitFor(short,
		func(n *emulator.Node) bool { return !strings.Contains(string(n.Config()), "vm.swappiness") }))
	require.Equal(t, codes.OK, client.StatusCode(err))
}
