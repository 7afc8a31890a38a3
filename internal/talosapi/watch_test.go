package talosapi_test

import (
	"context"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/talos-mage/talos-mage/internal/emulator"
	"github.com/talos-mage/talos-mage/internal/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/talosapi"
)

// collect reads a watch to its end.
func collect(t *testing.T, updates <-chan talosapi.StatusUpdate) (stages []string, last error) {
	t.Helper()

	limit := time.After(labcluster.Deadline)

	for {
		select {
		case update, open := <-updates:
			if !open {
				return stages, last
			}

			require.NoError(t, last, "nothing follows an error")

			if last = update.Err; last == nil {
				stages = append(stages, update.Status.Stage)
			}
		case <-limit:
			require.Fail(t, "the watch never ended", "stages %v", stages)
		}
	}
}

func TestAWatchEndsWhenTheNodeGoesDown(t *testing.T) {
	t.Parallel()

	l := newLab(t, 20)
	node := l.configured(t, "cp1", emulator.NodeOptions{})
	l.await(t, node, "booting")

	conn := l.secure(t, node)
	updates := conn.WatchStatus(t.Context())

	first := <-updates
	require.NoError(t, first.Err)
	require.Equal(t, talosapi.StageBooting, first.Status.Stage, "the present status comes first")

	require.NoError(t, conn.Reboot(t.Context()))

	stages, err := collect(t, updates)
	require.NoError(t, err)
	require.Equal(t, talosapi.StageRebooting, stages[len(stages)-1])
}

func TestAWatchEndsWithItsConnection(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		happens func(*emulator.Node)
		dead    bool
	}{
		"reset":      {func(n *emulator.Node) { n.Refuse(true) }, false},
		"power cut":  {func(n *emulator.Node) { n.PowerOff() }, true},
		"no network": {func(n *emulator.Node) { n.Silence(true) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 0)
			node := l.inMaintenance(t, "cp1", emulator.NodeOptions{})

			impatient := *l.dialer
			impatient.Timeout = 300 * time.Millisecond

			conn, err := impatient.Maintenance(t.Context(), node.Endpoint())
			require.NoError(t, err)

			defer conn.Close()

			updates := conn.WatchStatus(t.Context())
			require.Equal(t, talosapi.StageMaintenance, (<-updates).Status.Stage)

			test.happens(node)

			_, err = collect(t, updates)
			require.Error(t, err, "a watch never goes silent")
			require.Equal(t, talosapi.Retry, talosapi.Classify(talosapi.OpWatch, err), "%v", err)
		})
	}
}

func TestAWatchEndsWithItsContext(t *testing.T) {
	t.Parallel()

	l := newLab(t, 0)
	node := l.inMaintenance(t, "cp1", emulator.NodeOptions{})

	ctx, stop := context.WithCancel(t.Context())
	updates := l.maintenance(t, node).WatchStatus(ctx)
	<-updates
	stop()

	_, err := collect(t, updates)
	require.NoError(t, err)
}

func TestAWatchThatIsRefusedSaysSo(t *testing.T) {
	t.Parallel()

	l := newLab(t, 0)
	node := l.configured(t, "cp1", emulator.NodeOptions{})

	conn, err := l.withRole(t).Secure(t.Context(), node.Endpoint())
	require.NoError(t, err)

	defer conn.Close()

	_, err = collect(t, conn.WatchStatus(t.Context()))
	require.ErrorIs(t, err, talosapi.ErrNotAllowed)
	require.Equal(t, talosapi.Final, talosapi.Classify(talosapi.OpWatch, err))
}

func TestEventsFollowTheNode(t *testing.T) {
	t.Parallel()

	l := newLab(t, 20)
	node := l.configured(t, "cp1", emulator.NodeOptions{})
	l.await(t, node, "booting")

	conn := l.secure(t, node)
	ctx, stop := context.WithCancel(t.Context())
	updates := conn.Events(ctx, 0)

	past := <-updates
	require.NoError(t, past.Err)
	require.NotEmpty(t, past.Event.ID)

	require.NoError(t, conn.Reboot(t.Context()))

	var seen bool

	for update := range updates {
		if update.Err != nil {
			break
		}

		seen = seen || (update.Event.Sequence == "reboot" && update.Event.Action == "start")
	}

	require.True(t, seen)
	stop()
}

// Why an install failed is known to a node only until it reboots.
func TestLastFailureTellsWhyAnInstallFailed(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		fault emulator.InstallFault
		says  string
	}{
		"no such disk": {emulator.InstallDiskMissing, "no such file or directory"},
		"no image":     {emulator.InstallImagePull, "not found"},
		"bad disk":     {emulator.InstallDiskWrite, "input/output error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 5) // the ten seconds before the node reboots have to be long enough for a read
			node := l.inMaintenance(t, "cp1", emulator.NodeOptions{
				Timing: emulator.Timing{Install: time.Millisecond, Stop: 20 * time.Second}, Faults: emulator.Faults{Install: test.fault},
			})

			_, err := l.maintenance(t, node).Apply(t.Context(), l.config(t, "cp1"), talosapi.ApplyOptions{})
			require.NoError(t, err)

			require.Eventually(t, func() bool {
				conn, err := l.dialer.Secure(t.Context(), node.Endpoint())
				if err != nil {
					return false
				}
				defer conn.Close()

				failure, err := conn.LastFailure(t.Context())
				if err != nil || failure == "" {
					return false
				}

				require.Contains(t, failure, test.says)
				require.NotContains(t, failure, "sequence failed")
				require.NotContains(t, failure, "task 1/1")

				return true
			}, labcluster.Deadline, time.Millisecond)
		})
	}
}

func TestANodeThatNeverFailedHasNoLastFailure(t *testing.T) {
	t.Parallel()

	l := newLab(t, 0)

	failure, err := l.maintenance(t, l.inMaintenance(t, "cp1", emulator.NodeOptions{})).LastFailure(t.Context())
	require.NoError(t, err)
	require.Empty(t, failure)
}

func TestEventsOfUnknownTypesSurvive(t *testing.T) {
	t.Parallel()

	event := talosapi.ReadEvent(&machine.Event{Id: "c1", Data: &anypb.Any{TypeUrl: "talos/runtime/machine.TeleportEvent", Value: []byte{1, 2, 3}}})
	require.Equal(t, talosapi.Event{ID: "c1", Kind: "TeleportEvent"}, event)
}

func TestEventsKeepTheReasonOfAFailure(t *testing.T) {
	t.Parallel()

	pack := func(message proto.Message) *machine.Event {
		value, err := proto.Marshal(message)
		require.NoError(t, err)

		return &machine.Event{Id: "c1", Data: &anypb.Any{TypeUrl: "talos/runtime/" + string(message.ProtoReflect().Descriptor().FullName()), Value: value}}
	}

	for _, test := range []struct {
		name    string
		message proto.Message
		want    talosapi.Event
	}{
		{
			"failed for good", &machine.SequenceEvent{Sequence: "install", Error: &common.Error{
				Code: common.Code_FATAL, Message: "sequence failed: error running phase 2 in install sequence: task 1/1: failed, lstat /dev/nope: no such file or directory",
			}},
			talosapi.Event{Kind: "SequenceEvent", Sequence: "install", Action: "noop", Failure: "lstat /dev/nope: no such file or directory"},
		},
		{
			"locked is no failure", &machine.SequenceEvent{Sequence: "reboot", Error: &common.Error{Code: common.Code_LOCKED, Message: "sequence not started"}},
			talosapi.Event{Kind: "SequenceEvent", Sequence: "reboot", Action: "noop"},
		},
		{"phase", &machine.PhaseEvent{Phase: "kexec", Action: machine.PhaseEvent_STOP}, talosapi.Event{Kind: "PhaseEvent", Phase: "kexec", Action: "stop"}},
		{"task", &machine.TaskEvent{Task: "install", Action: machine.TaskEvent_START}, talosapi.Event{Kind: "TaskEvent", Task: "install", Action: "start"}},
		{
			"service", &machine.ServiceStateEvent{Service: "etcd", Action: machine.ServiceStateEvent_RUNNING},
			talosapi.Event{Kind: "ServiceStateEvent", Service: "etcd", Action: "running"},
		},
		{
			"stage", &machine.MachineStatusEvent{Stage: machine.MachineStatusEvent_SHUTTING_DOWN},
			talosapi.Event{Kind: "MachineStatusEvent", Stage: talosapi.StageShutdown},
		},
		{
			"config that can't be loaded", &machine.ConfigLoadErrorEvent{Error: "cannot construct !!str `hunter2` into bool"},
			talosapi.Event{Kind: "ConfigLoadErrorEvent", Failure: "cannot construct !!str (masked) into bool"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			test.want.ID = "c1"
			require.Equal(t, test.want, talosapi.ReadEvent(pack(test.message)))
		})
	}
}

func TestKernelLogTellsOfFailedTasks(t *testing.T) {
	t.Parallel()

	require.Equal(t, "lstat /dev/nope: no such file or directory",
		talosapi.KernelFailure("user: warning: [2026-01-04T17:40:35Z]: [talos] task install (1/1): failed: lstat /dev/nope: no such file or directory"))
	require.Empty(t, talosapi.KernelFailure("kern:    info: [2026-01-04T17:40:35Z]: task install (1/1): failed: not Talos"))
	require.Empty(t, talosapi.KernelFailure("user: warning: [2026-01-04T17:40:35Z]: [talos] task install (1/1): done, 2.5s"))
}
