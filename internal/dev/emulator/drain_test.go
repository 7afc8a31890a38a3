package emulator_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// unhurried are machines that are quick at everything but keep the wall's time, so that the ten seconds that a node
// waits for its open calls are long.
func unhurried(edit func(*emulator.NodeOptions)) labcluster.Options {
	const moment = 5 * time.Millisecond

	return labcluster.Options{
		LabOptions: emulator.LabOptions{TimeScale: 1},
		Timing: emulator.Timing{
			Boot: moment, Install: moment, Stop: moment, Reboot: moment, Containers: moment, Kubelet: moment, EtcdData: moment,
			EtcdStart: moment,
			EtcdJoin:  moment, ControlPlane: moment, TimeSync: moment,
		},
		Edit: edit,
	}
}

// refused waits until a machine's port is closed.
func refused(t *testing.T, node *emulator.Node) {
	t.Helper()

	eventually(t, func() error {
		conn, err := net.DialTimeout("tcp", node.Endpoint(), labcluster.Deadline)
		if err == nil {
			conn.Close() //nolint:errcheck // it was only a look

			return errNotYet
		}

		// The port was closed while the connection was being made.
		if errors.Is(err, syscall.ECONNRESET) {
			return errNotYet
		}

		require.ErrorIs(t, err, syscall.ECONNREFUSED)

		return nil
	})
}

// watching holds a watch on a machine until it is let go.
func watching(t *testing.T, c *client.Client) (letGo context.CancelFunc) {
	t.Helper()

	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)

	events := make(chan state.Event, 100)
	require.NoError(t, c.COSI.Watch(ctx, runtimeres.NewMachineStatus().Metadata(), events))
	next(t, events)

	return cancel
}

func TestClaim_2_29_AnOpenWatchKeepsThePortClosedAfterAnApply(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, unhurried(func(o *emulator.NodeOptions) { o.Timing.Install = 1000 * time.Hour }))
	letGo := watching(t, insecure(t, node))

	applyOwn(t, cluster, "cp1")
	refused(t, node)
	waitStage(t, node, "installing")

	letGo()
	eventually(t, func() error {
		_, asked, err := handshake(t, node, 0)
		if err != nil {
			return err
		}

		return until(asked)
	})
	require.Equal(t, "installing", node.Stage())
}

func TestClaim_2_30_WhatIsHeldLongerThanTenSecondsIsCut(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, labcluster.Options{Timing: emulator.Timing{Install: 1000 * time.Hour}})

	stream, err := insecure(t, node).MachineClient.Events(deadline(t), &machineapi.EventsRequest{})
	require.NoError(t, err)

	_, err = stream.Recv()
	require.NoError(t, err)

	applyOwn(t, cluster, "cp1")

	for err == nil {
		_, err = stream.Recv()
	}

	require.Equal(t, codes.Unavailable, client.StatusCode(err), "%v", err)
	require.ErrorContains(t, err, `received prior goaway: code: NO_ERROR, debug data: "graceful_stop"`)
}

// heard are the events of a stream to its end, which is to be a clean one.
func heard(t *testing.T, stream machineapi.MachineService_EventsClient) []*machineapi.Event {
	t.Helper()

	var events []*machineapi.Event

	for {
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return events
		}

		require.NoError(t, err)

		events = append(events, event)
	}
}

func TestClaim_2_31_AHeldStreamTellsTheWholeInstall(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, unhurried(nil))

	stream, err := insecure(t, node).MachineClient.Events(deadline(t), &machineapi.EventsRequest{})
	require.NoError(t, err)

	_, err = stream.Recv()
	require.NoError(t, err)
	applyOwn(t, cluster, "cp1")

	var (
		told   []string
		shown  []*machineapi.MachineStatusEvent
		phases []string
	)

	for _, event := range heard(t, stream) {
		switch event := payload(t, event).(type) {
		case *machineapi.TaskEvent:
			if event.GetTask() == "runningMaintenance" {
				told = append(told, event.GetTask()+" "+event.GetAction().String())
			}
		case *machineapi.SequenceEvent:
			told = append(told, event.GetSequence()+" "+event.GetAction().String())
		case *machineapi.PhaseEvent:
			if event.GetAction() == machineapi.PhaseEvent_START {
				phases = append(phases, event.GetPhase())
			}
		case *machineapi.MachineStatusEvent:
			shown = append(shown, event)
		}
	}

	require.Equal(t, []string{"runningMaintenance STOP", "initialize STOP", "install START"}, told)
	require.Equal(t, []string{"env", "install", "meta", "saveMeta", "volumeFinalize", "stopEverything"}, phases,
		"the rest is not told any more")
	require.Equal(t, []string{"INSTALLING"}, stages(shown))

	installed(t, node)
}

func TestClaim_2_32_AFailedInstallIsToldToWhoListensAndOnTheConsole(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, unhurried(func(o *emulator.NodeOptions) { o.Cmdline = "talos.platform=metal panic=0" }))

	stream, err := insecure(t, node).MachineClient.Events(deadline(t), &machineapi.EventsRequest{})
	require.NoError(t, err)

	_, err = stream.Recv()
	require.NoError(t, err)

	_, err = apply(t, insecure(t, node),
		edited(t, cluster, "cp1", func(c *v1alpha1.Config) { c.MachineConfig.MachineInstall.InstallDisk = "/dev/nope" }),
		modeAuto)
	require.NoError(t, err)

	const reason = "error running phase 2 in install sequence: task 1/1: failed, lstat /dev/nope: no such file or " +
		"directory"

	var (
		failures []*machineapi.SequenceEvent
		shown    []*machineapi.MachineStatusEvent
	)

	for _, event := range heard(t, stream) {
		switch event := payload(t, event).(type) {
		case *machineapi.SequenceEvent:
			if event.GetAction() == machineapi.SequenceEvent_NOOP {
				failures = append(failures, event)
			}
		case *machineapi.MachineStatusEvent:
			shown = append(shown, event)
		}
	}

	require.Len(t, failures, 1)
	require.Equal(t, "install", failures[0].GetSequence())
	require.Equal(t, common.Code_FATAL, failures[0].GetError().GetCode())
	require.Equal(t, "sequence failed: "+reason, failures[0].GetError().GetMessage())
	require.Equal(t, []string{"INSTALLING", "REBOOTING"}, stages(shown))
	require.True(t, shown[len(shown)-1].GetStatus().GetReady())

	// With this kernel argument the machine stays as it is, for somebody to read the console.
	eventually(t, func() error {
		return until(strings.Contains(console(node), "panic=0 kernel flag found, sleeping forever"))
	})
	require.Contains(t, console(node), reason)
	require.Equal(t, 1, node.Boots())
	refused(t, node)
}

func TestClaim_2_33_AMachineCountsDownBeforeItRebootsAfterAFailure(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t,
		labcluster.Options{Edit: func(o *emulator.NodeOptions) { o.Faults.Install = emulator.InstallImagePull }})

	seen := make(chan []string, 1)

	go func() {
		var last []string

		for node.Boots() == 1 {
			if now := node.Console(); len(now) > len(last) {
				last = now
			}

			time.Sleep(time.Millisecond)
		}

		seen <- last
	}()

	applyOwn(t, cluster, "cp1")
	require.NoError(t, node.WaitFor(deadline(t),
		func(n *emulator.Node) bool { return n.Boots() == 2 && n.Stage() == "maintenance" }))

	last := next(t, seen)
	require.True(t, slices.ContainsFunc(last,
		func(line string) bool { return strings.Contains(line, "rebooting in 10 seconds") }))
	require.NotContains(t, console(node), "failed to pull image")
}

func TestClaim_2_34_WhatAnInstallingNodeAnswers(t *testing.T) {
	t.Parallel()

	cluster, node, c := stillInstalling(t, labcluster.Options{})

	kubeconfig, err := c.Kubeconfig(deadline(t))
	require.NoError(t, err)
	require.NotEmpty(t, kubeconfig)

	data, err := cluster.Config("cp1")
	require.NoError(t, err)

	reply, err := apply(t, c, data, modeAuto)
	require.NoError(t, err)
	require.Equal(t, modeNoReboot, reply.GetMode())

	for method, want := range map[string]string{
		"/machine.MachineService/Bootstrap":   "bootstrap is not available yet",
		"/machine.MachineService/Upgrade":     "Talos is not installed",
		"/machine.MachineService/Rollback":    "system disk not found",
		"/machine.MachineService/EtcdRecover": "etcd service is not ready for recovery yet",
	} {
		err := knock(t, c, deadline(t), method)
		require.Equal(t, codes.FailedPrecondition, client.StatusCode(err), method)
		require.ErrorContains(t, err, want)
	}

	_, err = upgradeLife(t, c)
	require.Equal(t, codes.FailedPrecondition, client.StatusCode(err))
	require.ErrorContains(t, err, "machine is not installed")

	// What would need the machine is answered, and an event tells that it does not happen.
	stream, err := c.MachineClient.Events(deadline(t), &machineapi.EventsRequest{})
	require.NoError(t, err)

	_, err = stream.Recv()
	require.NoError(t, err)

	for sequence, call := range map[string]func() error{
		"reboot": func() error { return c.Reboot(deadline(t)) },
		"reset": func() error {
			return c.ResetGeneric(deadline(t),
				&machineapi.ResetRequest{Reboot: true,
					SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{{Label: "STATE", Wipe: true}}})
		},
	} {
		err := call()
		if err != nil && sequence == "reset" {
			require.ErrorContains(t, err, `volume "STATE" is not located`, "nothing is there to wipe")

			continue
		}

		require.NoError(t, err)

		locked := nextSequence(t, stream)
		require.Equal(t, sequence, locked.GetSequence())
		require.Equal(t, machineapi.SequenceEvent_NOOP, locked.GetAction())
		require.Equal(t, common.Code_LOCKED, locked.GetError().GetCode())
		require.Equal(t, "sequence not started: locked", locked.GetError().GetMessage())
	}

	require.Equal(t, "installing", node.Stage())

	// Only a shutdown takes over. It ends the install.
	require.NoError(t, c.Shutdown(deadline(t)))
	waitStage(t, node, "off")
	require.False(t, node.Installed())
}

func upgradeLife(t *testing.T, c *client.Client) (*machineapi.LifecycleServiceUpgradeResponse, error) {
	t.Helper()

	stream, err := c.LifecycleClient.Upgrade(deadline(t), &machineapi.LifecycleServiceUpgradeRequest{
		Containerd: &common.ContainerdInstance{Driver: common.ContainerDriver_CONTAINERD,
			Namespace: common.ContainerdNamespace_NS_SYSTEM},
		Source: &machineapi.InstallArtifactsSource{ImageName: "ghcr.io/siderolabs/installer:v1.13.9"},
	})
	require.NoError(t, err)

	return stream.Recv()
}

// nextSequence is the next event of a stream that tells of a sequence.
func nextSequence(t *testing.T, stream machineapi.MachineService_EventsClient) *machineapi.SequenceEvent {
	t.Helper()

	for {
		event, err := stream.Recv()
		require.NoError(t, err)

		if sequence, ok := payload(t, event).(*machineapi.SequenceEvent); ok {
			return sequence
		}
	}
}

func TestClaim_7_05_AHeldStreamDelaysAReboot(t *testing.T) {
	t.Parallel()

	cluster, node, c := ready(t, unhurried(nil))
	letGo := watching(t, secure(t, cluster.Talosconfig(), node))
	boots := node.Boots()

	require.NoError(t, c.Reboot(deadline(t)))
	refused(t, node)
	require.Equal(t, boots, node.Boots(), "for at most ten seconds")
	require.Equal(t, "rebooting", node.Stage())

	letGo()
	require.NoError(t, node.WaitFor(deadline(t), func(n *emulator.Node) bool { return n.Boots() == boots+1 }))
}
