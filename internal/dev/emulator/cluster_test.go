package emulator_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

func serviceInfo(t *testing.T, c *client.Client, id string) *machineapi.ServiceInfo {
	t.Helper()

	list, err := c.ServiceList(deadline(t))
	require.NoError(t, err)

	for _, service := range list.GetMessages()[0].GetServices() {
		if service.GetId() == id {
			return service
		}
	}

	return nil
}

func history(service *machineapi.ServiceInfo) []string {
	var texts []string
	for _, event := range service.GetEvents().GetEvents() {
		texts = append(texts, event.GetState()+": "+event.GetMsg())
	}

	return texts
}

func TestClaim_4_01_EtcdWaitsForABootstrapAndItsCallsBlock(t *testing.T) {
	t.Parallel()

	cluster, node := configured(t, labcluster.Options{})
	c := secure(t, cluster.Talosconfig(), node)

	eventually(t, func() error {
		service := serviceInfo(t, c, "etcd")

		return until(service.GetState() == "Preparing" && service.GetHealth().GetUnknown())
	})
	require.Contains(t, history(serviceInfo(t, c, "etcd")), "Starting: Starting service")
	require.Contains(t, history(serviceInfo(t, c, "etcd")), "Preparing: Running pre state")

	for name, call := range map[string]func(context.Context) error{
		"EtcdMemberList": func(ctx context.Context) error {
			_, err := c.EtcdMemberList(ctx, &machineapi.EtcdMemberListRequest{})
			return err
		},
		"EtcdStatus":    func(ctx context.Context) error { _, err := c.EtcdStatus(ctx); return err },
		"EtcdAlarmList": func(ctx context.Context) error { _, err := c.EtcdAlarmList(ctx); return err },
	} {
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		require.Equal(t, codes.DeadlineExceeded, client.StatusCode(call(short)), name)
		cancel()
	}

	eventually(t, func() error {
		status, err := safe.StateGetByID[*runtimeres.MachineStatus](deadline(t), c.COSI, runtimeres.MachineStatusID)
		if err != nil {
			return err
		}

		unmet := status.TypedSpec().Status.UnmetConditions

		return until(status.TypedSpec().Stage == runtimeres.MachineStageBooting && len(unmet) == 2 &&
			unmet[0] == runtimeres.UnmetCondition{Name: "services", Reason: "etcd not running"} &&
			unmet[1] == runtimeres.UnmetCondition{Name: "nodeReady", Reason: `node "cp1" status is not available yet`})
	})

	stream, err := c.LS(deadline(t), &machineapi.ListRequest{Root: "/var/lib/etcd"})
	require.NoError(t, err)

	entry, err := stream.Recv()
	require.NoError(t, err)
	require.Equal(t, ".", entry.GetRelativeName())

	_, err = stream.Recv()
	require.ErrorIs(t, err, io.EOF, "the directory is empty")
}

func TestClaim_4_02_BootstrapMakesAClusterAndASecondOneFindsIt(t *testing.T) {
	t.Parallel()

	cluster, node, c := ready(t, labcluster.Options{})
	waitStage(t, node, "running")

	eventually(t, func() error { return until(serviceInfo(t, c, "etcd").GetHealth().GetHealthy()) })

	texts := history(serviceInfo(t, c, "etcd"))
	require.Equal(t, "Starting: Starting service", texts[0], "the history starts again")
	require.Equal(t, "Running: Health check successful", texts[len(texts)-1])

	err := c.Bootstrap(deadline(t), &machineapi.BootstrapRequest{})
	require.Equal(t, codes.AlreadyExists, client.StatusCode(err))
	require.ErrorContains(t, err, "etcd data directory is not empty")

	status, err := c.EtcdStatus(deadline(t))
	require.NoError(t, err)
	require.Equal(t, node.EtcdMemberID(), status.GetMessages()[0].GetMemberStatus().GetMemberId())
	require.Equal(t, 1, cluster.Lab.EtcdClusters())
}

func TestClaim_4_03_WorkersRefuseControlPlaneCalls(t *testing.T) {
	t.Parallel()

	cluster := newCluster(t, labcluster.Options{ControlPlanes: 1, Workers: 1, Endpoint: labcluster.FirstControlPlane})
	for _, node := range cluster.Nodes {
		applyOwn(t, cluster, node.Name())
	}

	worker := cluster.Node("worker1")
	waitStage(t, worker, "running")

	c := secure(t, cluster.Talosconfig(), worker)
	eventually(t, func() error { _, err := c.Version(deadline(t)); return err })

	err := c.Bootstrap(deadline(t), &machineapi.BootstrapRequest{})
	require.Equal(t, codes.Unimplemented, client.StatusCode(err))
	require.ErrorContains(t, err, "bootstrap is only available on control plane nodes")

	_, err = c.Kubeconfig(deadline(t))
	require.ErrorContains(t, err, "kubeconfig is only available on control plane nodes")

	_, err = c.MachineClient.Version(client.WithNode(deadline(t), cluster.Node("cp1").Address().String()),
		&emptypb.Empty{})
	require.Equal(t, codes.PermissionDenied, client.StatusCode(err))
	require.ErrorContains(t, err, "no request forwarding")

	_, err = c.MachineClient.Version(client.WithNodes(deadline(t), worker.Address().String()), &emptypb.Empty{})
	require.NoError(t, err, "a worker serves itself")
}

func TestClaim_4_04_NothingStopsASecondCluster(t *testing.T) {
	t.Parallel()

	cluster := newCluster(t, labcluster.Options{ControlPlanes: 2, Workers: -1,
		Edit: func(o *emulator.NodeOptions) { o.Faults.EtcdNever = true }})

	for _, node := range cluster.Nodes {
		applyOwn(t, cluster, node.Name())
		installed(t, node)

		c := secure(t, cluster.Talosconfig(), node)
		eventually(t, func() error { return c.Bootstrap(deadline(t), &machineapi.BootstrapRequest{}) })
		require.NoError(t, node.WaitFor(deadline(t), (*emulator.Node).EtcdVoter))
	}

	require.Equal(t, 2, cluster.Lab.EtcdClusters())
}

func TestClaim_4_05_BootstrapNeedsSyncedTime(t *testing.T) {
	t.Parallel()

	cluster, node := configured(t,
		labcluster.Options{Edit: func(o *emulator.NodeOptions) { o.Faults.TimeUnsynced = true }})
	c := secure(t, cluster.Talosconfig(), node)

	eventually(t, func() error {
		err := c.Bootstrap(deadline(t), &machineapi.BootstrapRequest{})

		return until(client.StatusCode(err) == codes.FailedPrecondition &&
			client.Status(err).Message() == "time is not in sync yet")
	})

	_, err := c.EtcdStatus(deadline(t))
	require.ErrorContains(t, err,
		"failed to create etcd client: error building etcd client TLS config: open /system/secrets/etcd/admin.crt")
	require.Equal(t, codes.Unknown, client.StatusCode(err))
}

func TestClaim_4_06_ASecondBootstrapTooEarlyStopsEtcdUntilAReboot(t *testing.T) {
	t.Parallel()

	cluster, node := configured(t,
		labcluster.Options{LabOptions: emulator.LabOptions{TimeScale: 10}, Timing: emulator.Timing{
			Boot: time.Second, Install: time.Second, Stop: time.Second, Reboot: time.Second, Containers: time.Second,
			Kubelet:  time.Second,
			EtcdData: time.Hour,
		}})
	c := secure(t, cluster.Talosconfig(), node)

	eventually(t, func() error { return c.Bootstrap(deadline(t), &machineapi.BootstrapRequest{}) })
	eventually(t, func() error { return until(serviceInfo(t, c, "etcd").GetState() == "Running") })

	err := c.Bootstrap(deadline(t), &machineapi.BootstrapRequest{})
	require.Equal(t, codes.Unknown, client.StatusCode(err))
	require.ErrorContains(t, err, "etcd data directory is not empty")
	require.Equal(t, "Finished: Bootstrap requested",
		history(serviceInfo(t, c, "etcd"))[len(history(serviceInfo(t, c, "etcd")))-1])
	require.False(t, node.EtcdVoter())

	require.NoError(t, c.Reboot(deadline(t)))
	require.NoError(t, node.WaitFor(deadline(t), (*emulator.Node).EtcdVoter))
	require.Equal(t, 1, cluster.Lab.EtcdClusters())
}

func TestClaim_4_07_EtcdNeedsItsQuorum(t *testing.T) {
	t.Parallel()

	cluster := newCluster(t, labcluster.Options{ControlPlanes: 3, Workers: -1})
	for _, node := range cluster.Nodes {
		applyOwn(t, cluster, node.Name())
	}

	first := cluster.Node("cp1")
	installed(t, first)

	c := secure(t, cluster.Talosconfig(), first)
	eventually(t, func() error { return c.Bootstrap(deadline(t), &machineapi.BootstrapRequest{}) })

	for _, node := range cluster.Nodes {
		require.NoError(t, node.WaitFor(deadline(t), (*emulator.Node).EtcdVoter))
	}

	cluster.Node("cp2").PowerOff()
	eventually(t, func() error { return until(first.EtcdVoter()) })

	cluster.Node("cp3").PowerOff()
	eventually(t, func() error {
		service := serviceInfo(t, c, "etcd")

		return until(service.GetState() == "Running" && !service.GetHealth().GetHealthy() &&
			!service.GetHealth().GetUnknown())
	})

	cluster.Node("cp2").PowerOn()
	require.NoError(t, cluster.Node("cp2").WaitFor(deadline(t), (*emulator.Node).EtcdVoter))
	eventually(t, func() error { return until(serviceInfo(t, c, "etcd").GetHealth().GetHealthy()) })
}

func TestClaim_5_01_TheKubeconfigComesFromTheConfigInAnUnfinishedArchive(t *testing.T) {
	t.Parallel()

	cluster, node := configured(t, labcluster.Options{})
	c := secure(t, cluster.Talosconfig(), node)

	stream, err := c.MachineClient.Kubeconfig(deadline(t), &emptypb.Empty{})
	require.NoError(t, err)

	frame, err := stream.Recv()
	require.NoError(t, err)

	unzipped, err := gzip.NewReader(bytes.NewReader(frame.GetBytes()))
	require.NoError(t, err)

	archive := tar.NewReader(unzipped)
	header, err := archive.Next()
	require.NoError(t, err)
	require.Equal(t, "kubeconfig", header.Name)
	require.EqualValues(t, 0o600, header.Mode)

	file, err := io.ReadAll(archive)
	require.NoError(t, err)
	require.Contains(t, string(file), "server: https://"+cluster.VIP.String()+":6443")
	require.Contains(t, string(file), "current-context: admin@lab")
	require.Zero(t, cluster.Lab.EtcdClusters(), "no cluster is needed")
}

func TestClaim_7_01_EventsBeginWithAHelloAndTellTheHistory(t *testing.T) {
	t.Parallel()

	_, node := alone(t, labcluster.Options{})

	stream, err := insecure(t, node).MachineClient.Events(deadline(t), &machineapi.EventsRequest{TailEvents: -1})
	require.NoError(t, err)

	hello, err := stream.Recv()
	require.NoError(t, err)
	require.Empty(t, hello.GetData().GetTypeUrl())
	require.Len(t, hello.GetId(), 20)
	require.Nil(t, hello.GetMetadata())

	first, err := stream.Recv()
	require.NoError(t, err)
	require.Equal(t, "talos/runtime/machine.MachineStatusEvent", first.GetData().GetTypeUrl())
	require.Len(t, first.GetId(), 20)

	both, err := insecure(t, node).MachineClient.Events(deadline(t),
		&machineapi.EventsRequest{TailEvents: 1, TailSeconds: 5})
	require.NoError(t, err)
	_, err = both.Recv()
	require.NoError(t, err)
	_, err = both.Recv()
	require.Error(t, err, "only one way to tail")
}

func TestClaim_7_02_AHeldWatchSeesTheStagesAndEndsWithTheMode(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, labcluster.Options{LabOptions: emulator.LabOptions{TimeScale: 50}})
	c := insecure(t, node)

	events := make(chan safe.WrappedStateEvent[*runtimeres.MachineStatus])
	require.NoError(t, safe.StateWatch(deadline(t), c.COSI, runtimeres.NewMachineStatus().Metadata(), events))

	first := next(t, events)
	require.Equal(t, state.Created, first.Type())

	applyOwn(t, cluster, "cp1")

	second := next(t, events)
	resource, err := second.Resource()
	require.NoError(t, err)
	require.Equal(t, runtimeres.MachineStageInstalling, resource.TypedSpec().Stage)

	installed(t, node)
}

func TestClaim_7_03_BookmarksOfAnotherBootAreRefused(t *testing.T) {
	t.Parallel()

	cluster, node, c := ready(t, labcluster.Options{})
	events := make(chan state.Event, 16)

	short, cancel := context.WithCancel(t.Context())
	require.NoError(t, c.COSI.Watch(short, runtimeres.NewMachineStatus().Metadata(), events))
	next(t, events)

	require.NoError(t, c.Reboot(deadline(t)))

	last := next(t, events)
	require.Equal(t, state.Updated, last.Type)

	bookmark := last.Bookmark
	require.NotEmpty(t, bookmark)

	cancel()
	require.NoError(t, node.WaitFor(deadline(t),
		func(n *emulator.Node) bool { return n.Boots() == 3 && n.Stage() == "running" }))

	again := secure(t, cluster.Talosconfig(), node)
	err := again.COSI.Watch(deadline(t), runtimeres.NewMachineStatus().Metadata(), make(chan state.Event),
		state.WithStartFromBookmark(bookmark))
	require.ErrorContains(t, err, "invalid watch bookmark")
}

func TestClaim_8_01_ResettingStateAndEphemeralReturnsToMaintenance(t *testing.T) {
	t.Parallel()

	_, node, c := ready(t, labcluster.Options{})
	require.NoError(t, c.ResetGeneric(deadline(t),
		&machineapi.ResetRequest{Reboot: true, SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{
			{Label: constants.StatePartitionLabel, Wipe: true}, {Label: constants.EphemeralPartitionLabel, Wipe: true},
		}}))

	require.NoError(t, node.WaitFor(deadline(t),
		func(n *emulator.Node) bool { return n.Boots() == 3 && n.Stage() == "maintenance" }))
	require.True(t, node.Installed())
	require.Zero(t, node.EtcdClusterID())
}

func TestClaim_8_02_TheBootIDTellsBootsApart(t *testing.T) {
	t.Parallel()

	cluster, node, c := ready(t, labcluster.Options{})

	read := func(c *client.Client) string {
		reader, err := c.Read(deadline(t), "/proc/sys/kernel/random/boot_id")
		require.NoError(t, err)

		defer reader.Close() //nolint:errcheck // read to its end

		id, err := io.ReadAll(reader)
		require.NoError(t, err)

		return string(id)
	}

	before := read(c)
	require.Equal(t, before, read(c))
	require.NoError(t, c.Reboot(deadline(t)))
	require.NoError(t, node.WaitFor(deadline(t),
		func(n *emulator.Node) bool { return n.Boots() == 3 && n.Stage() == "running" }))
	require.NotEqual(t, before, read(secure(t, cluster.Talosconfig(), node)))
}

func TestClaim_9_01_ControlPlanesForwardToNodes(t *testing.T) {
	t.Parallel()

	cluster := newCluster(t, labcluster.Options{ControlPlanes: 2, Workers: -1})
	for _, node := range cluster.Nodes {
		applyOwn(t, cluster, node.Name())
	}

	for _, node := range cluster.Nodes {
		installed(t, node)
		eventually(t, func() error { _, _, err := handshake(t, node, 0); return err })
	}

	one, two := cluster.Node("cp1").Address().String(), cluster.Node("cp2").Address().String()
	gone := cluster.Lab.Address(240).String()
	c := secure(t, cluster.Talosconfig(), cluster.Node("cp1"))

	name, err := c.MachineClient.Hostname(client.WithNode(deadline(t), two), &emptypb.Empty{})
	require.NoError(t, err)
	require.Equal(t, "cp2", name.GetMessages()[0].GetHostname())
	require.Nil(t, name.GetMessages()[0].GetMetadata())

	names, err := c.MachineClient.Hostname(client.WithNodes(deadline(t), one, two, gone), &emptypb.Empty{})
	require.NoError(t, err)
	require.Len(t, names.GetMessages(), 3)

	failed := 0

	for _, message := range names.GetMessages() {
		if message.GetMetadata().GetError() != "" {
			failed++

			require.Equal(t, gone, message.GetMetadata().GetHostname())
			require.Contains(t, message.GetMetadata().GetError(), "connection refused")
		}
	}

	require.Equal(t, 1, failed)

	_, err = safe.StateGetByID[*runtimeres.MachineStatus](client.WithNode(deadline(t), two), c.COSI,
		runtimeres.MachineStatusID)
	require.NoError(t, err)

	_, err = safe.StateGetByID[*runtimeres.MachineStatus](client.WithNodes(deadline(t), two), c.COSI,
		runtimeres.MachineStatusID)
	require.ErrorContains(t, err, "one-2-many proxying is not supported for method /cosi.resource.State/Get")

	stream, err := c.MachineClient.Dmesg(client.WithNodes(deadline(t), two), &machineapi.DmesgRequest{})
	require.NoError(t, err)

	line, err := stream.Recv()
	require.NoError(t, err)
	require.Equal(t, two, line.GetMetadata().GetHostname())
}

func TestFaultsOfCallsLoseRequestsAndReplies(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		fault    emulator.CallFault
		code     codes.Code
		happened bool
	}{
		"cut before": {emulator.CallFault{Method: "ApplyConfiguration", When: emulator.BeforeEffect, Do: emulator.Cut,
			Times: 1}, codes.Unavailable, false},
		"cut after": {emulator.CallFault{Method: "ApplyConfiguration", When: emulator.AfterEffect, Do: emulator.Cut,
			Times: 1}, codes.Unavailable, true},
		"hang": {emulator.CallFault{Method: "ApplyConfiguration", When: emulator.BeforeEffect, Do: emulator.Hang,
			Times: 1}, codes.DeadlineExceeded, false},
		"fail": {emulator.CallFault{Method: "ApplyConfiguration", Do: emulator.Fail, Code: codes.ResourceExhausted,
			Text: "busy", Times: 1},
			codes.ResourceExhausted, false},
		"freeze": {emulator.CallFault{Method: "ApplyConfiguration", When: emulator.AfterEffect, Do: emulator.Freeze,
			Times: 1}, codes.DeadlineExceeded, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			cluster, node := alone(t,
				labcluster.Options{Edit: func(o *emulator.NodeOptions) { o.Faults.Calls = []emulator.CallFault{test.fault} }})
			data, err := cluster.Config("cp1")
			require.NoError(t, err)

			// Long enough for a call that is answered, however busy the machine.
			wait := labcluster.Deadline
			if test.code == codes.DeadlineExceeded {
				wait = 3 * time.Second
			}

			short, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()

			_, err = insecure(t, node).ApplyConfiguration(short,
				&machineapi.ApplyConfigurationRequest{Data: data, Mode: modeAuto})
			require.Equal(t, test.code, client.StatusCode(err), "%v", err)

			if test.happened {
				installed(t, node)
				require.True(t, node.MutatingCalls()[0].Succeeded())

				return
			}

			require.Nil(t, node.Config())
			eventually(t, func() error { return until(node.MutatingCalls()[0].Done) })
			require.False(t, node.MutatingCalls()[0].Succeeded())
		})
	}
}
