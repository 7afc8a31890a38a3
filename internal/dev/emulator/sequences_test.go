package emulator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/syncbuffer"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// leisurely is a time in which a busy machine still reads what a node tells before its API closes, with everything else
// short.
func leisurely(options labcluster.Options) labcluster.Options {
	options.LabOptions.TimeScale = 20
	options.Timing = emulator.Timing{
		Boot: time.Second, Install: 4 * time.Second, Stop: time.Second, Reboot: time.Second, Containers: time.Second,
		Kubelet:   time.Second,
		EtcdStart: 2 * time.Second, EtcdJoin: time.Second, ControlPlane: time.Second, EtcdJoinLimit: 24 * time.Hour,
	}

	return options
}

// told is an event in a few words, and who caused it.
type told struct{ what, actor string }

// following collects what a node tells of its sequences, until its events end.
type following struct{ done chan []told }

func follow(t *testing.T, c *client.Client) *following {
	t.Helper()

	stream, err := c.MachineClient.Events(deadline(t), &machineapi.EventsRequest{})
	require.NoError(t, err)

	_, err = stream.Recv() // hello
	require.NoError(t, err)

	f := &following{make(chan []told, 1)}

	go func() {
		var all []told

		for {
			event, err := stream.Recv()
			if err != nil {
				f.done <- all

				return
			}

			if text := describe(event); text != "" {
				all = append(all, told{text, event.GetActorId()})
			}
		}
	}()

	return f
}

func describe(message *machineapi.Event) string {
	event, err := client.UnmarshalEvent(message)
	if err != nil {
		return ""
	}

	switch payload := event.Payload.(type) {
	case *machineapi.SequenceEvent:
		text := fmt.Sprintf("sequence %s %s", payload.GetSequence(), payload.GetAction())
		if failure := payload.GetError(); failure != nil {
			text += fmt.Sprintf(" %s %s", failure.GetCode(), failure.GetMessage())
		}

		return text
	case *machineapi.PhaseEvent:
		return fmt.Sprintf("phase %s %s", payload.GetPhase(), payload.GetAction())
	case *machineapi.TaskEvent:
		return fmt.Sprintf("task %s %s", payload.GetTask(), payload.GetAction())
	case *machineapi.RestartEvent:
		return fmt.Sprintf("restart %x", payload.GetCmd())
	default:
		return ""
	}
}

// of waits for the end and tells what an actor caused, or with an empty name what nobody did.
func (f *following) of(t *testing.T, actor string) []string {
	t.Helper()

	select {
	case all := <-f.done:
		var texts []string

		for _, one := range all {
			if one.actor == actor {
				texts = append(texts, one.what)
			}
		}

		return texts
	case <-deadline(t).Done():
		require.Fail(t, "the events do not end")

		return nil
	}
}

// phasesIn are the phases that were begun, in order.
func phasesIn(texts []string) []string {
	var phases []string

	for _, text := range texts {
		if name, ok := strings.CutPrefix(text, "phase "); ok && strings.HasSuffix(name, " START") {
			phases = append(phases, strings.TrimSuffix(name, " START"))
		}
	}

	return phases
}

// configuredOnDisk is a control plane that booted with its config, never installed here, and nobody bootstrapped.
func configuredOnDisk(t *testing.T, options labcluster.Options) (*labcluster.Cluster, *emulator.Node, *client.Client) {
	t.Helper()

	options.Edit = func(node *emulator.NodeOptions) { node.Installed = true }
	cluster, node := alone(t, options)
	applyOwn(t, cluster, "cp1")
	waitStage(t, node, "booting")

	c := secure(t, cluster.Talosconfig(), node)
	eventually(t, func() error { _, err := c.Version(deadline(t)); return err })

	return cluster, node, c
}

func rebooted(t *testing.T, node *emulator.Node, boots int) {
	t.Helper()

	require.NoError(t, node.WaitFor(deadline(t),
		func(n *emulator.Node) bool { return n.Boots() == boots && n.Stage() == "booting" }))
}

func TestClaim_8_05_ARebootGoesThroughItsPhasesInTheNameOfItsActor(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		mode   machineapi.RebootRequest_Mode
		phases []string
	}{
		{machineapi.RebootRequest_DEFAULT, []string{
			"cleanup", "dbus", "stopServices", "umount", "unmountBind", "unmountSystem", "volumeFinalize", "kexec",
			"stopEverything",
		}},
		{machineapi.RebootRequest_POWERCYCLE, []string{
			"cleanup", "dbus", "stopServices", "umount", "unmountBind", "unmountSystem", "volumeFinalize", "kexec",
			"stopEverything",
		}},
		{machineapi.RebootRequest_FORCE, []string{"reboot"}},
	} {
		t.Run(test.mode.String(), func(t *testing.T) {
			t.Parallel()

			_, node, c := configuredOnDisk(t, leisurely(labcluster.Options{}))
			events := follow(t, c)

			reply, err := c.RebootWithResponse(deadline(t), client.WithRebootMode(test.mode))
			require.NoError(t, err)

			actor := reply.GetMessages()[0].GetActorId()
			require.Regexp(t, `^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`, actor)

			texts := events.of(t, actor)
			require.NotEmpty(t, texts)
			require.Equal(t, "sequence reboot START", texts[0])
			require.Equal(t, test.phases, phasesIn(texts))

			if test.mode == machineapi.RebootRequest_FORCE {
				require.Equal(t, []string{
					"sequence reboot START", "phase reboot START", "task reboot START", "restart 1234567", "task reboot STOP",
					"phase reboot STOP",
					"sequence reboot STOP", "sequence reboot NOOP FATAL sequence failed: error running phase 1 in reboot sequence: " +
						"task 1/1: failed, unix.Reboot(1234567)",
				}, texts)
			} else {
				require.Contains(t, texts, "task stopAllServices START")
			}

			rebooted(t, node, 2)
		})
	}
}

func TestClaim_8_06_OneSequenceRunsAndFewTakeOver(t *testing.T) {
	t.Parallel()

	options := leisurely(labcluster.Options{})
	options.Timing.Pods = time.Hour

	_, node, c := configuredOnDisk(t, options)

	// The boot sequence waits for a Bootstrap; a reset takes over from it, and then waits for the pods.
	eventually(t, func() error { return until(serviceInfo(t, c, "kubelet").GetHealth().GetHealthy()) })

	events := follow(t, c)

	require.NoError(t, c.ResetGeneric(deadline(t),
		&machineapi.ResetRequest{Reboot: true, SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{
			{Label: constants.EphemeralPartitionLabel, Wipe: true},
		}}))
	waitStage(t, node, "resetting")

	upgrade, err := c.UpgradeWithOptions(deadline(t), client.WithUpgradeImage("ghcr.io/siderolabs/installer:v1.13.9"), client.WithUpgradeForce(true)) //nolint:staticcheck // what old clients call
	require.NoError(t, err, "the answer comes before the lock is asked for")
	eventually(t, func() error {
		return until(strings.Contains(strings.Join(node.Console(), "\n"), "upgrade failed: locked"))
	})

	// A reboot takes over from a reset, and from a reboot.
	require.NoError(t, c.Reboot(deadline(t)))
	waitStage(t, node, "rebooting")

	reply, err := c.RebootWithResponse(deadline(t), client.WithRebootMode(machineapi.RebootRequest_FORCE))
	require.NoError(t, err)
	rebooted(t, node, 2)

	select {
	case all := <-events.done:
		require.Contains(t, all, told{"sequence boot NOOP CANCELED sequence failed: error running phase 9 in boot " +
			"sequence: task 1/1: failed, context canceled", ""})
		require.Contains(t, all, told{"sequence upgrade NOOP LOCKED sequence not started: locked", ""},
			"a sequence that does not start has no actor")
		require.NotContains(t, all, told{"sequence upgrade START", upgrade.GetMessages()[0].GetActorId()})
		require.Contains(t, all, told{"sequence reboot START", reply.GetMessages()[0].GetActorId()})
		require.True(t, slices.ContainsFunc(all,
			func(one told) bool { return strings.HasPrefix(one.what, "sequence reset NOOP CANCELED") }))
	case <-deadline(t).Done():
		require.Fail(t, "the events do not end")
	}
}

func TestClaim_8_07_AShutdownTakesOverFromAnInstall(t *testing.T) {
	t.Parallel()

	options := leisurely(labcluster.Options{})
	options.Timing.Install = time.Hour

	cluster, node := alone(t, options)
	applyOwn(t, cluster, "cp1")
	waitStage(t, node, "installing")

	c := secure(t, cluster.Talosconfig(), node)
	eventually(t, func() error { return c.Shutdown(deadline(t)) })
	waitStage(t, node, "off")
	require.False(t, node.Installed())

	node.PowerOn()
	waitStage(t, node, "maintenance")
}

func TestClaim_8_08_AShutdownLeavesKubernetesInOrderUnlessForced(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		name    string
		force   bool
		reached bool // Kubernetes
		drained bool
	}{
		{"in order", false, true, true},
		{"forced", true, true, false},
		{"in order without Kubernetes", false, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			options := leisurely(labcluster.Options{CNI: "flannel"})
			options.LabOptions.TimeScale = 50

			_, node, c := ready(t, options)
			require.NoError(t, node.WaitFor(deadline(t), (*emulator.Node).Ready))

			if !test.reached {
				node.Set(func(f *emulator.Faults) { f.KubernetesDown = true })
				require.NoError(t, node.WaitFor(deadline(t), func(n *emulator.Node) bool { return !n.Ready() }))
			}

			events := follow(t, c)

			reply, err := c.ShutdownWithResponse(deadline(t), client.WithShutdownForce(test.force))
			require.NoError(t, err)

			texts := events.of(t, reply.GetMessages()[0].GetActorId())
			require.Equal(t, !test.force, slices.Contains(phasesIn(texts), "drain"))
			require.Equal(t, test.reached, slices.Contains(phasesIn(texts), "cleanup"))

			if !test.reached {
				require.Contains(t, texts,
					"sequence shutdown NOOP FATAL sequence failed: error running phase 2 in shutdown sequence: task 1/1: failed, "+
						"context deadline exceeded")
			}

			waitStage(t, node, "off")
		})
	}
}

func TestClaim_8_09_AFailedSequenceStopsEverythingAndCountsDown(t *testing.T) {
	t.Parallel()

	printed := &syncbuffer.Buffer{}

	options := leisurely(labcluster.Options{})
	options.LabOptions.Logger = zerolog.New(printed)
	options.Edit = func(node *emulator.NodeOptions) {
		node.Faults.Install, node.Faults.InstallStall = emulator.InstallDiskWrite, 1000*time.Hour
	}

	cluster, node := alone(t, options)
	applyOwn(t, cluster, "cp1")

	c := secure(t, cluster.Talosconfig(), node)
	eventually(t, func() error { _, err := c.Version(deadline(t)); return err })

	events := follow(t, c)
	node.Set(func(f *emulator.Faults) { f.InstallStall = 0 })

	texts := events.of(t, "")
	failure := "sequence install NOOP FATAL sequence failed: error running phase 2 in install sequence: task 1/1: failed, "
	require.True(t, strings.HasPrefix(texts[len(texts)-1], failure), "the events end with it: %s", texts)

	require.NoError(t, node.WaitFor(deadline(t),
		func(n *emulator.Node) bool { return n.Boots() == 2 && n.Stage() == "maintenance" }))

	for _, line := range []string{
		"[talos] task install (1/1): failed: ", "[talos] phase install (2/8): failed", "[talos] install sequence: failed",
		"[talos] running emergency volume cleanup",
		"[talos] rebooting in 10 seconds", "[talos] rebooting in 0 seconds",
	} {
		require.Contains(t, printed.String(), line)
	}
}
