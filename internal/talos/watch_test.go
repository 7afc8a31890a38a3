package talos_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// collect reads a watch to its end.
func collect(t *testing.T, updates <-chan talos.StatusUpdate) (stages []string, last error) {
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
	require.Equal(t, talos.StageBooting, first.Status.Stage, "the present status comes first")

	require.NoError(t, conn.Reboot(t.Context()))

	stages, err := collect(t, updates)
	require.NoError(t, err)
	require.Equal(t, talos.StageRebooting, stages[len(stages)-1])
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
			require.Equal(t, talos.StageMaintenance, (<-updates).Status.Stage)

			test.happens(node)

			_, err = collect(t, updates)
			require.Error(t, err, "a watch never goes silent")
			require.Equal(t, talos.Retry, talos.Classify(talos.OpWatch, err), "%v", err)
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
	require.ErrorIs(t, err, talos.ErrNotAllowed)
	require.Equal(t, talos.Final, talos.Classify(talos.OpWatch, err))
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

func TestANodeThatTellsNoEventsInTimeIsAnError(t *testing.T) {
	t.Parallel()

	l := newLab(t, 0)
	node := l.configured(t, "cp1", emulator.NodeOptions{})

	impatient := *l.dialer
	impatient.Timeout = 250 * time.Millisecond

	conn, err := impatient.Secure(t.Context(), node.Endpoint())
	require.NoError(t, err)

	defer conn.Close()

	node.Set(func(f *emulator.Faults) { f.Calls = []emulator.CallFault{{Method: "Events", Do: emulator.Hang}} })

	events, err := conn.PastEvents(t.Context(), 100)
	require.ErrorContains(t, err, "no answer")
	require.Equal(t, talos.Retry, talos.Classify(talos.OpWatch, err))
	require.Empty(t, events)
}

// Why an install failed is known to a node until its API closes, which is at once.
func TestInstallFailureTellsWhyAnInstallFailed(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		fault emulator.InstallFault
		says  string
	}{
		"no such disk": {emulator.InstallDiskMissing, "no such file or directory"},
		"no image":     {emulator.InstallImagePull, "not found"},
		"bad disk":     {emulator.InstallDiskWrite, "input/output error"},
		"no failure":   {emulator.InstallWorks, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 0)
			node := l.inMaintenance(t, "cp1",
				emulator.NodeOptions{Faults: emulator.Faults{Install: test.fault, InstallStall: 1000 * time.Hour}})

			_, err := l.maintenance(t, node).Apply(t.Context(), l.config(t, "cp1"), talos.ApplyOptions{})
			require.NoError(t, err)

			l.await(t, node, "installing")
			require.Eventually(t, func() bool { return l.dialer.Probe(t.Context(), node.Endpoint()).State == talos.Ours },
				labcluster.Deadline, 5*time.Millisecond)

			conn := l.secure(t, node)

			go func() {
				// The install goes on once somebody listens.
				for !slices.ContainsFunc(node.Calls(), func(call emulator.Call) bool { return call.Name() == "Events" }) &&
					t.Context().Err() == nil {
					time.Sleep(time.Millisecond)
				}

				node.Set(func(f *emulator.Faults) { f.InstallStall = 0 })
			}()

			failure, err := conn.InstallFailure(t.Context())
			require.NoError(t, err)
			require.NotContains(t, failure, "task 1/1")

			if test.says == "" {
				require.Empty(t, failure)
			} else {
				require.Contains(t, failure, test.says)
			}
		})
	}
}

func TestEventsOfUnknownTypesSurvive(t *testing.T) {
	t.Parallel()

	event := talos.ReadEvent(&machine.Event{Id: "c1",
		Data: &anypb.Any{TypeUrl: "talos/runtime/machine.TeleportEvent", Value: []byte{1, 2, 3}}})
	require.Equal(t, talos.Event{ID: "c1", Kind: "TeleportEvent"}, event)
}

func TestEventsKeepTheReasonOfAFailure(t *testing.T) {
	t.Parallel()

	pack := func(message proto.Message) *machine.Event {
		value, err := proto.Marshal(message)
		require.NoError(t, err)

		return &machine.Event{Id: "c1",
			Data: &anypb.Any{TypeUrl: "talos/runtime/" + string(message.ProtoReflect().Descriptor().FullName()), Value: value}}
	}

	for _, test := range []struct {
		name    string
		message proto.Message
		want    talos.Event
	}{
		{
			"failed for good", &machine.SequenceEvent{Sequence: "install", Error: &common.Error{
				Code: common.Code_FATAL, Message: "sequence failed: error running phase 2 in install sequence: task 1/1: " +
					"failed, lstat /dev/nope: no such file or directory",
			}},
			talos.Event{Kind: "SequenceEvent", Sequence: "install", Action: "noop",
				Failure: "lstat /dev/nope: no such file or directory"},
		},
		{
			"locked is no failure", &machine.SequenceEvent{Sequence: "reboot",
				Error: &common.Error{Code: common.Code_LOCKED, Message: "sequence not started"}},
			talos.Event{Kind: "SequenceEvent", Sequence: "reboot", Action: "noop"},
		},
		{"phase", &machine.PhaseEvent{Phase: "kexec", Action: machine.PhaseEvent_STOP},
			talos.Event{Kind: "PhaseEvent", Phase: "kexec", Action: "stop"}},
		{"task", &machine.TaskEvent{Task: "install", Action: machine.TaskEvent_START},
			talos.Event{Kind: "TaskEvent", Task: "install", Action: "start"}},
		{
			"service", &machine.ServiceStateEvent{Service: "etcd", Action: machine.ServiceStateEvent_RUNNING},
			talos.Event{Kind: "ServiceStateEvent", Service: "etcd", Action: "running"},
		},
		{
			"stage", &machine.MachineStatusEvent{Stage: machine.MachineStatusEvent_SHUTTING_DOWN},
			talos.Event{Kind: "MachineStatusEvent", Stage: talos.StageShutdown},
		},
		{
			"config that can't be loaded", &machine.ConfigLoadErrorEvent{Error: "cannot construct !!str `hunter2` into bool"},
			talos.Event{Kind: "ConfigLoadErrorEvent", Failure: "cannot construct !!str (masked) into bool"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			test.want.ID = "c1"
			require.Equal(t, test.want, talos.ReadEvent(pack(test.message)))
		})
	}
}
