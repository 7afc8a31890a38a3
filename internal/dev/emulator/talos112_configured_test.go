package emulator_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// configured112 is a control plane of Talos 1.12 that has booted with its config, and its administrator.
func configured112(t *testing.T, options labcluster.Options) (*labcluster.Cluster, *emulator.Node, *client.Client) {
	t.Helper()

	options.TalosVersion = talos112
	cluster, node := configured(t, options)

	return cluster, node, secure(t, cluster.Talosconfig(), node)
}

func TestClaim_10_18_AConfiguredNodeHandlesAppliesAtTheSameTime(t *testing.T) {
	t.Parallel()

	cluster, node, c := configured112(t, labcluster.Options{})
	data := edited(t, cluster, "cp1", func(c *v1alpha1.Config) {
		c.MachineConfig.MachineSysctls = map[string]string{"net.core.somaxconn": "4096"}
	})
	before := len(node.MutatingCalls())

	node.Set(func(f *emulator.Faults) { f.MetaNotReady = true })

	results := make(chan error)

	for range 2 {
		go func() {
			_, err := c.ApplyConfiguration(deadline(t), &machineapi.ApplyConfigurationRequest{Data: data, Mode: modeNoReboot})
			results <- err
		}()
	}

	eventually(t, func() error { return until(len(node.MutatingCalls()) == before+2) })
	node.Set(func(f *emulator.Faults) { f.MetaNotReady = false })

	for range 2 {
		require.NoError(t, next(t, results))
	}
}

func TestClaim_10_19_AnApplyIsTakenWhileTheNodeIsAboutToReboot(t *testing.T) {
	t.Parallel()

	cluster, node, c := configured112(t, labcluster.Options{Timing: emulator.Timing{Pods: 24 * time.Hour}})
	data, err := cluster.Config("cp1")
	require.NoError(t, err)
	eventually(t, func() error { return until(serviceInfo(t, c, "kubelet").GetHealth().GetHealthy()) })

	reply, err := apply(t, c, data, modeReboot)
	require.NoError(t, err)
	require.Equal(t, "Applied configuration with a reboot", reply.GetModeDetails())
	waitStage(t, node, "rebooting")

	_, err = apply(t, c, data, modeAuto)
	require.NoError(t, err)
}

func TestClaim_10_20_WorkersRefuseWithAFailedPrecondition(t *testing.T) {
	t.Parallel()

	cluster := newCluster(t, labcluster.Options{
		TalosVersion: talos112, ControlPlanes: 1, Workers: 2, Endpoint: labcluster.FirstControlPlane,
		Edit: func(o *emulator.NodeOptions) {
			if o.Name == "worker2" {
				o.Timing.Containers = 24 * time.Hour
			}
		},
	})

	for _, node := range cluster.Nodes {
		applyOwn(t, cluster, node.Name())
	}

	refused := func(name, text string) {
		c := secure(t, cluster.Talosconfig(), cluster.Node(name))

		eventually(t, func() error {
			err := c.Bootstrap(deadline(t), &machineapi.BootstrapRequest{})

			return until(client.StatusCode(err) == codes.FailedPrecondition && strings.Contains(err.Error(), text))
		})
	}

	refused("worker1", "bootstrap can only be performed on a control plane node")
	refused("worker2", "bootstrap is not available yet")

	_, err := secure(t, cluster.Talosconfig(), cluster.Node("worker1")).GenerateClientConfiguration(deadline(t),
		&machineapi.GenerateClientConfigurationRequest{
			Roles: []string{"os:admin"}, CrtTtl: durationpb.New(time.Hour),
		})
	require.Equal(t, codes.FailedPrecondition, client.StatusCode(err))
	require.ErrorContains(t, err, "client configuration (talosconfig) can't be generated on worker nodes")

	_, err = secure(t, cluster.Talosconfig(), cluster.Node("worker1")).EtcdAlarmDisarm(deadline(t))
	require.Equal(t, codes.Unimplemented, client.StatusCode(err))
	require.ErrorContains(t, err, "etcd alarm list is only available on control plane nodes", "the name of another call")
}

// serviceEvents are the events of a service in this boot, up to one with this text.
func serviceEvents(t *testing.T, c *client.Client, id, last string) []string {
	t.Helper()

	stream, err := c.MachineClient.Events(deadline(t), &machineapi.EventsRequest{TailEvents: -1})
	require.NoError(t, err)

	var texts []string

	for !slices.Contains(texts, last) {
		received, err := stream.Recv()
		require.NoError(t, err)

		if received.GetData().GetTypeUrl() == "" {
			continue
		}

		event, err := client.UnmarshalEvent(received)
		require.NoError(t, err)

		if change, ok := event.Payload.(*machineapi.ServiceStateEvent); ok && change.GetService() == id {
			texts = append(texts, change.GetAction().String()+": "+change.GetMessage())
		}
	}

	return texts
}

func TestClaim_10_21_BootstrapMakesTheWaitForAClusterFail(t *testing.T) {
	t.Parallel()

	_, node, c := configured112(t, labcluster.Options{})

	eventually(t, func() error { return until(serviceInfo(t, c, "etcd").GetState() == "Preparing") })
	require.NoError(t, c.Bootstrap(deadline(t), &machineapi.BootstrapRequest{}))

	events := serviceEvents(t, c, "etcd", "FINISHED: Bootstrap requested")
	require.Equal(t, "FAILED: Failed to run pre stage: failed to build initial etcd cluster: failed to build cluster "+
		"arguments: "+
		"1 error(s) occurred:\n\terror getting etcd member list: context canceled", events[len(events)-2])

	require.NoError(t, node.WaitFor(deadline(t), (*emulator.Node).EtcdVoter))
	require.Equal(t, "Starting: Starting service", history(serviceInfo(t, c, "etcd"))[0], "the history starts again")
}

func TestClaim_10_22_ServicesOfTalos113AreUnknown(t *testing.T) {
	t.Parallel()

	_, node, c := configured112(t, labcluster.Options{})
	ctx := deadline(t)

	for service, call := range map[string]func() error{
		"machine.ImageService": func() error {
			return firstFrame(
				c.ImageClient.List(ctx, &machineapi.ImageServiceListRequest{}))
		},
		"machine.LifecycleService": func() error {
			return firstFrame(c.LifecycleClient.Upgrade(ctx, &machineapi.LifecycleServiceUpgradeRequest{}))
		},
		"machine.DebugService": func() error { return firstFrame(c.DebugClient.ContainerRun(ctx)) },
	} {
		err := call()
		require.Equal(t, codes.Unimplemented, client.StatusCode(err), service)
		require.ErrorContains(t, err, "unknown service "+service)
	}

	_, err := safe.StateGetByID[*runtimeres.MachineStatus](client.WithNodes(ctx, node.Address().String()), c.COSI,
		runtimeres.MachineStatusID)
	require.Equal(t, codes.InvalidArgument, client.StatusCode(err))
	require.ErrorContains(t, err, "one-2-many proxying is not supported for COSI methods")
}

func TestClaim_10_23_EachHealthCheckHasItsOwnLimitAndAskesForACNI(t *testing.T) {
	t.Parallel()

	cluster, node, c := configured112(t,
		labcluster.Options{CNI: constants.NoneCNI, LabOptions: emulator.LabOptions{TimeScale: 400}})

	eventually(t, func() error { return c.Bootstrap(deadline(t), &machineapi.BootstrapRequest{}) })
	eventually(t, func() error {
		status, err := safe.StateGetByID[*runtimeres.MachineStatus](deadline(t), c.COSI, runtimeres.MachineStatusID)
		if err != nil {
			return err
		}

		unmet := status.TypedSpec().Status.UnmetConditions

		return until(len(unmet) == 1 && unmet[0].Reason == `node "cp1" is not ready`)
	})

	check := func() (said []string, err error) {
		stream, err := c.ClusterHealthCheck(context.WithoutCancel(deadline(t)), 24*time.Hour, nil)
		require.NoError(t, err)

		for {
			progress, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return said, nil
			} else if err != nil {
				return said, err
			}

			said = append(said, progress.GetMessage())
		}
	}

	said, err := check()
	require.Equal(t, codes.DeadlineExceeded, client.StatusCode(err), "with a day to go")
	require.Contains(t, said, "waiting for all k8s nodes to report ready: some nodes are not ready: [cp1]")

	cluster.Lab.InstallCNI()
	require.NoError(t, node.WaitFor(deadline(t), (*emulator.Node).Ready))

	said, err = check()
	require.NoError(t, err)
	require.Contains(t, said, "waiting for coredns to report ready: OK")
}
