package emulator_test

import (
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
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// payload is what an event carries; nil for the hello.
func payload(t *testing.T, event *machineapi.Event) proto.Message {
	t.Helper()

	url := event.GetData().GetTypeUrl()
	if url == "" {
		return nil
	}

	kind, err := protoregistry.GlobalTypes.FindMessageByName(
		protoreflect.FullName(strings.TrimPrefix(url, "talos/runtime/")))
	require.NoError(t, err)

	message := kind.New().Interface()
	require.NoError(t, proto.Unmarshal(event.GetData().GetValue(), message))

	return message
}

// statuses are the machine statuses that are told until one fits.
func statuses(t *testing.T, c *client.Client,
	last func(*machineapi.MachineStatusEvent) bool) []*machineapi.MachineStatusEvent {
	t.Helper()

	stream, err := c.MachineClient.Events(deadline(t), &machineapi.EventsRequest{TailEvents: -1})
	require.NoError(t, err)

	var told []*machineapi.MachineStatusEvent

	for {
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			require.Nil(t, last, "the stream ended before the last status")

			return told
		}

		require.NoError(t, err)

		status, ok := payload(t, event).(*machineapi.MachineStatusEvent)
		if !ok {
			continue
		}

		told = append(told, status)

		if last != nil && last(status) {
			return told
		}
	}
}

// stages are the stages of statuses in order, without repetitions.
func stages(told []*machineapi.MachineStatusEvent) []string {
	var names []string

	for _, status := range told {
		names = append(names, status.GetStage().String())
	}

	return slices.Compact(names)
}

// reasons are why a status is not ready, by condition.
func reasons(status *machineapi.MachineStatusEvent) []string {
	var texts []string
	for _, condition := range status.GetStatus().GetUnmetConditions() {
		texts = append(texts, condition.GetName()+": "+condition.GetReason())
	}

	return texts
}

func inStage(stage machineapi.MachineStatusEvent_MachineStage) func(*machineapi.MachineStatusEvent) bool {
	return func(status *machineapi.MachineStatusEvent) bool { return status.GetStage() == stage }
}

func isReady(status *machineapi.MachineStatusEvent) bool {
	return status.GetStage() == machineapi.MachineStatusEvent_RUNNING && status.GetStatus().GetReady()
}

func TestClaim_1_24_OnlyBootingAndRunningMachinesAreEverUnready(t *testing.T) {
	t.Parallel()

	_, node := idle(t)
	told := statuses(t, insecure(t, node), inStage(machineapi.MachineStatusEvent_MAINTENANCE))

	require.Equal(t, []string{"UNKNOWN", "BOOTING", "MAINTENANCE"}, stages(told))

	for _, status := range told {
		require.Equal(t, status.GetStage() != machineapi.MachineStatusEvent_BOOTING, status.GetStatus().GetReady(),
			status.GetStage())
	}

	require.Equal(t, []string{
		"time: time is not synced",
		"network: waiting on: address, connectivity, etc-files, hostname",
		"services: apid not running, machined not running, kubelet not running",
	}, reasons(told[1]), "in this order")
}

func TestClaim_1_25_AControlPlaneBootsUntilSomebodyBootstrapsEtcd(t *testing.T) {
	t.Parallel()

	cluster, node := configured(t, labcluster.Options{Timing: emulator.Timing{EtcdData: 1000 * time.Hour}})
	c := secure(t, cluster.Talosconfig(), node)

	waits := func(status *machineapi.MachineStatusEvent) bool {
		return slices.Equal(reasons(status),
			[]string{"services: etcd not running", `nodeReady: node "cp1" status is not available yet`})
	}

	told := statuses(t, c, waits)
	require.Equal(t, []string{"UNKNOWN", "BOOTING"}, stages(told))
	require.True(t, slices.ContainsFunc(told, func(status *machineapi.MachineStatusEvent) bool {
		return slices.ContainsFunc(reasons(status), func(reason string) bool {
			return strings.HasPrefix(reason, "services: kubelet not running, etcd not running")
		})
	}), "without kubelet too at first")

	for _, status := range told {
		for _, reason := range reasons(status) {
			require.NotContains(t, reason, "staticPods", "there are none before etcd is healthy")
		}
	}

	eventually(t, func() error { return c.Bootstrap(deadline(t), &machineapi.BootstrapRequest{}) })

	// Etcd has not even made its cluster yet.
	told = statuses(t, c, inStage(machineapi.MachineStatusEvent_RUNNING))
	require.False(t, told[len(told)-1].GetStatus().GetReady())
	require.Zero(t, cluster.Lab.EtcdClusters())
}

func TestClaim_1_26_AfterABootstrapItBecomesReadyBitByBit(t *testing.T) {
	t.Parallel()

	cluster, node, c := ready(t, labcluster.Options{})

	// Without a CNI it stays unready.
	nearly := func(status *machineapi.MachineStatusEvent) bool {
		return slices.Equal(reasons(status), []string{`nodeReady: node "cp1" is not ready`})
	}

	told := statuses(t, c, nearly)
	require.Equal(t, machineapi.MachineStatusEvent_RUNNING, told[len(told)-1].GetStage())

	var seen []string
	for _, status := range told {
		seen = append(seen, reasons(status)...)
	}

	pods := func(state string) string {
		return "staticPods: kube-system/kube-apiserver-cp1 " + state + ", kube-system/kube-controller-manager-cp1 " + state +
			", kube-system/kube-scheduler-cp1 " + state
	}

	require.Contains(t, seen, pods("pending"))
	require.Contains(t, seen, pods("not ready"))

	cluster.Lab.InstallCNI()
	statuses(t, c, isReady)

	node.Set(func(f *emulator.Faults) { f.EtcdUnhealthy = true })
	cluster.Lab.InstallCNI() // the cluster has changed: its members look after their health
	statuses(t, c, func(status *machineapi.MachineStatusEvent) bool {
		return slices.Contains(reasons(status), "services: etcd not healthy")
	})
}

func TestClaim_1_27_WorkersRunWithoutEtcd(t *testing.T) {
	t.Parallel()

	cluster := newCluster(t, labcluster.Options{ControlPlanes: 1, Workers: 2, Endpoint: labcluster.FirstControlPlane})
	applyOwn(t, cluster, "cp1")
	installed(t, cluster.Node("cp1"))
	applyOwn(t, cluster, "worker1")

	alone := edited(t, cluster, "worker2", func(c *v1alpha1.Config) {
		skip := true
		c.MachineConfig.MachineKubelet.KubeletSkipNodeRegistration = &skip
	})
	waitStage(t, cluster.Node("worker2"), "maintenance")
	_, err := apply(t, insecure(t, cluster.Node("worker2")), alone, modeAuto)
	require.NoError(t, err)

	told := statusesOf(t, cluster, "worker1", inStage(machineapi.MachineStatusEvent_RUNNING))
	require.Equal(t, []string{"UNKNOWN", "BOOTING", "RUNNING"}, stages(told))
	require.Equal(t, []string{`nodeReady: node "worker1" status is not available yet`}, reasons(told[len(told)-1]))

	for _, status := range told {
		for _, reason := range reasons(status) {
			require.NotContains(t, reason, "etcd not")
			require.NotContains(t, reason, "trustd")
		}
	}

	// Where no node is registered none is asked for.
	told = statusesOf(t, cluster, "worker2", isReady)
	for _, status := range told {
		for _, reason := range reasons(status) {
			require.NotContains(t, reason, "nodeReady")
		}
	}
}

// statusesOf are the statuses of a node, as soon as it has its API.
func statusesOf(t *testing.T, cluster *labcluster.Cluster, name string,
	last func(*machineapi.MachineStatusEvent) bool) []*machineapi.MachineStatusEvent {
	t.Helper()

	node := cluster.Node(name)
	installed(t, node)

	c := secure(t, cluster.Talosconfig(), node)
	eventually(t, func() error { _, err := c.Version(deadline(t)); return err })

	return statuses(t, c, last)
}

func TestClaim_1_28_AnInstalledMachineGoesFromMaintenanceToBooting(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, labcluster.Options{Edit: func(o *emulator.NodeOptions) { o.Installed = true }})
	applyOwn(t, cluster, "cp1")

	c := secure(t, cluster.Talosconfig(), node)
	eventually(t, func() error { return c.Bootstrap(deadline(t), &machineapi.BootstrapRequest{}) })

	told := statuses(t, c, inStage(machineapi.MachineStatusEvent_RUNNING))
	require.Equal(t, []string{"UNKNOWN", "BOOTING", "MAINTENANCE", "BOOTING", "RUNNING"}, stages(told))
	require.Equal(t, 1, node.Boots())
}

func TestClaim_1_29_TheStatusIsAResourceAndAnEvent(t *testing.T) {
	t.Parallel()

	cluster, node := waiting(t)
	c := secure(t, cluster.Talosconfig(), node)

	status, err := safe.StateGetByID[*runtimeres.MachineStatus](deadline(t), c.COSI, runtimeres.MachineStatusID)
	require.NoError(t, err)

	told := statuses(t, c, func(event *machineapi.MachineStatusEvent) bool {
		return len(event.GetStatus().GetUnmetConditions()) == len(status.TypedSpec().Status.UnmetConditions)
	})
	last := told[len(told)-1]

	require.EqualValues(t, status.TypedSpec().Stage, last.GetStage(), "the same numbers")
	require.Equal(t, status.TypedSpec().Status.Ready, last.GetStatus().GetReady())

	for i, number := range []machineapi.MachineStatusEvent_MachineStage{
		machineapi.MachineStatusEvent_UNKNOWN, machineapi.MachineStatusEvent_BOOTING,
		machineapi.MachineStatusEvent_INSTALLING,
		machineapi.MachineStatusEvent_MAINTENANCE, machineapi.MachineStatusEvent_RUNNING,
		machineapi.MachineStatusEvent_REBOOTING,
		machineapi.MachineStatusEvent_SHUTTING_DOWN, machineapi.MachineStatusEvent_RESETTING,
		machineapi.MachineStatusEvent_UPGRADING,
	} {
		require.EqualValues(t, i, number)
		require.Equal(t, strings.ToLower(strings.ReplaceAll(number.String(), "_", " ")), runtimeres.MachineStage(i).String())
	}
}
