package emulator_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/hashicorp/go-multierror"
	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// routed is a context whose metadata asks for nodes, as pairs of key and value.
func routed(t *testing.T, pairs ...string) context.Context {
	t.Helper()

	return metadata.AppendToOutgoingContext(deadline(t), pairs...)
}

// hostnames are the names in the replies of Hostname, by what the reply is marked with.
func hostnames(t *testing.T, c *client.Client, ctx context.Context) (map[string]string, error) { //nolint:revive // the client comes first as a method's would
	t.Helper()

	reply, err := c.MachineClient.Hostname(ctx, &emptypb.Empty{})
	names := map[string]string{}

	for _, message := range reply.GetMessages() {
		names[message.GetMetadata().GetHostname()] = message.GetHostname()
	}

	return names, err
}

func TestClaim_9_02_TheMetadataDecidesWhoAnswers(t *testing.T) {
	t.Parallel()

	cluster := wholeLab.use(t)
	one, two := cluster.Node("cp1").Address().String(), cluster.Node("cp2").Address().String()
	c := secure(t, cluster.Talosconfig(), cluster.Node("cp1"))

	for name, test := range map[string]struct {
		metadata []string
		want     map[string]string // the names by their marks; replies that were not merged have none
		code     codes.Code
		text     string
	}{
		"nothing":      {nil, map[string]string{"": "cp1"}, codes.OK, ""},
		"node":         {[]string{"node", two}, map[string]string{"": "cp2"}, codes.OK, ""},
		"node by name": {[]string{"node", "cp2"}, map[string]string{"": "cp2"}, codes.OK, ""},
		"nodes are marked as written": {[]string{"nodes", two, "nodes", "cp1"}, map[string]string{two: "cp2", "cp1": "cp1"},
			codes.OK, ""},
		"itself among nodes is marked": {[]string{"nodes", one}, map[string]string{one: "cp1"}, codes.OK, ""},
		"nodes win over node":          {[]string{"node", one, "nodes", two}, map[string]string{two: "cp2"}, codes.OK, ""},
		"a forwarded call stays": {[]string{"proxyfrom", "elsewhere", "node", two}, map[string]string{"": "cp1"},
			codes.OK, ""},
		"several values of node": {[]string{"node", one, "node", two}, nil, codes.InvalidArgument,
			"node metadata must be single-valued"},
		"several values of node first": {[]string{"node", one, "node", two, "nodes", one}, nil, codes.InvalidArgument,
			"node metadata must be single-valued"},
		"a port": {[]string{"node", two + ":50000"}, nil, codes.Internal,
			`invalid target "` + two + `:50000"`},
		"a port among nodes fails all": {[]string{"nodes", two, "nodes", two + ":50000"}, nil, codes.Internal,
			`invalid target "` + two + `:50000"`},
		"an empty target":             {[]string{"node", ""}, nil, codes.Internal, `invalid target ""`},
		"a name that nobody can find": {[]string{"node", "nobody"}, nil, codes.Unavailable, "no such host"},
		"an address that nobody has": {[]string{"node", cluster.Lab.Address(240).String()}, nil, codes.Unavailable,
			":50000: connect: connection refused"},
		"no address at all among nodes": {[]string{"nodes", ""}, nil, codes.Internal, `invalid target ""`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			names, err := hostnames(t, c, routed(t, test.metadata...))
			require.Equal(t, test.code, client.StatusCode(err), "%v", err)

			if test.code != codes.OK {
				require.ErrorContains(t, err, test.text)

				return
			}

			require.Equal(t, test.want, names)
		})
	}
}

func TestClaim_9_03_ErrorsOfSeveralNodesAreMessages(t *testing.T) {
	t.Parallel()

	cluster := wholeLab.use(t)
	two, worker := cluster.Node("cp2").Address().String(), cluster.Node("worker1").Address().String()
	c := secure(t, cluster.Talosconfig(), cluster.Node("cp1"))

	raw, err := c.MachineClient.EtcdMemberList(client.WithNodes(deadline(t), two, worker),
		&machineapi.EtcdMemberListRequest{})
	require.NoError(t, err, "the call itself succeeds")
	require.Len(t, raw.GetMessages(), 2)

	for _, message := range raw.GetMessages() {
		mark := message.GetMetadata()

		if mark.GetHostname() == two {
			require.Empty(t, mark.GetError())
			require.Len(t, message.GetMembers(), 2)

			continue
		}

		require.Equal(t, worker, mark.GetHostname())
		require.Equal(t, "rpc error: code = Unimplemented desc = member list is only available on control plane nodes",
			mark.GetError())
		require.Equal(t, int32(codes.Unimplemented), mark.GetStatus().GetCode())
		require.Empty(t, message.GetMembers())
	}

	// The client's own wrappers take such messages out again.
	filtered, err := c.EtcdMemberList(client.WithNodes(deadline(t), two, worker), &machineapi.EtcdMemberListRequest{})
	require.Len(t, filtered.GetMessages(), 1)

	var failures *multierror.Error

	require.ErrorAs(t, err, &failures)

	var failure *client.NodeError

	require.ErrorAs(t, failures.Errors[0], &failure)
	require.Equal(t, worker, failure.Node)
	require.Equal(t, codes.Unimplemented, client.StatusCode(err))

	filtered, err = c.EtcdMemberList(client.WithNodes(deadline(t), worker), &machineapi.EtcdMemberListRequest{})
	require.Error(t, err)
	require.Nil(t, filtered, "nothing is left when all failed")

	_, err = c.MachineClient.EtcdMemberList(client.WithNode(deadline(t), worker), &machineapi.EtcdMemberListRequest{})
	require.Equal(t, codes.Unimplemented, client.StatusCode(err), "from one node the error is the call's")
}

func TestClaim_9_04_RepliesComeInTheOrderOfTheirEnd(t *testing.T) {
	t.Parallel()

	cluster := newCluster(t, labcluster.Options{ControlPlanes: 2, Workers: -1})
	bringUp(t, cluster)

	slow, quick := cluster.Node("cp2"), cluster.Node("cp1")
	c := secure(t, cluster.Talosconfig(), quick)

	data, err := cluster.Config("cp1")
	require.NoError(t, err)

	// Which of two replies the endpoint gets first is not quite certain, when one of them was on its way already. In the
	// order of the request they never come.
	eventually(t, func() error {
		names := orderOfReplies(t, c, data, slow, quick)
		require.ElementsMatch(t, []string{slow.Address().String(), quick.Address().String()}, names)

		return until(names[0] == quick.Address().String())
	})
}

// orderOfReplies has a machine keep an apply waiting until the other has answered, and gives the order in which their
// replies came.
func orderOfReplies(t *testing.T, c *client.Client, data []byte, slow, quick *emulator.Node) []string {
	t.Helper()

	const method = "ApplyConfiguration"

	// An apply waits for the META volume, as long as it takes.
	slow.Set(func(f *emulator.Faults) { f.MetaNotReady = true })

	before, slowBefore := ended(quick, method), ended(slow, method)
	replies := make(chan *machineapi.ApplyConfigurationResponse, 1)
	failures := make(chan error, 1)

	go func() {
		reply, err := c.MachineClient.ApplyConfiguration(
			client.WithNodes(deadline(t), slow.Address().String(), quick.Address().String()),
			&machineapi.ApplyConfigurationRequest{Data: data, Mode: modeAuto, DryRun: true})
		replies <- reply
		failures <- err
	}()

	eventually(t, func() error { return until(ended(quick, method) == before+1) })
	require.Equal(t, slowBefore, ended(slow, method))
	require.Empty(t, replies, "the slowest node delays all")
	slow.Set(func(f *emulator.Faults) { f.MetaNotReady = false })

	reply := next(t, replies)
	require.NoError(t, next(t, failures))

	var names []string
	for _, message := range reply.GetMessages() {
		names = append(names, message.GetMetadata().GetHostname())
	}

	return names
}

// ended counts the calls of a method that a machine has answered.
func ended(node *emulator.Node, method string) int {
	count := 0

	for _, call := range node.Calls() {
		if call.Name() == method && call.Done {
			count++
		}
	}

	return count
}

func TestClaim_9_05_OnlyServicesWithMarksAreForSeveralNodes(t *testing.T) {
	t.Parallel()

	cluster := wholeLab.use(t)
	c := secure(t, cluster.Talosconfig(), cluster.Node("cp1"))
	two := cluster.Node("cp2").Address().String()

	for _, method := range []string{
		"/cosi.resource.State/Get", "/cosi.resource.State/List", "/cosi.resource.State/Watch", "/machine.ImageService/List",
		"/machine.ImageService/Verify",
		"/machine.LifecycleService/Install", "/machine.LifecycleService/Upgrade", "/machine.DebugService/ContainerRun",
	} {
		err := knock(t, c, routed(t, "nodes", two), method)
		require.Equal(t, codes.InvalidArgument, client.StatusCode(err), method)
		require.ErrorContains(t, err, "one-2-many proxying is not supported for method "+method)
	}

	for _, method := range []string{
		"/machine.MachineService/Version", "/inspect.InspectService/ControllerRuntimeDependencies",
		"/storage.StorageService/Disks", "/time.TimeService/Time",
	} {
		require.NoError(t, knock(t, c, routed(t, "nodes", two), method), method)
	}

	_, err := safe.StateGetByID[*runtimeres.MachineStatus](client.WithNode(deadline(t), two), c.COSI,
		runtimeres.MachineStatusID)
	require.NoError(t, err, "one node can be asked for its resources")
}

func TestClaim_9_06_StreamsOfSeveralNodesHaveMarkedFrames(t *testing.T) {
	t.Parallel()

	cluster := wholeLab.use(t)
	two, worker, gone := cluster.Node("cp2").Address().String(), cluster.Node("worker1").Address().String(),
		cluster.Lab.Address(240).String()
	c := secure(t, cluster.Talosconfig(), cluster.Node("cp1"))

	stream, err := c.MachineClient.Dmesg(client.WithNodes(deadline(t), two, worker, gone), &machineapi.DmesgRequest{})
	require.NoError(t, err)

	frames := map[string]int{}

	for {
		frame, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}

		require.NoError(t, err, "an error of one node is a frame")

		frames[frame.GetMetadata().GetHostname()]++

		if frame.GetMetadata().GetHostname() == gone {
			require.Equal(t, int32(codes.Unavailable), frame.GetMetadata().GetStatus().GetCode())
			require.Contains(t, frame.GetMetadata().GetError(), gone+":50000: connect: connection refused")
		}
	}

	require.Greater(t, frames[two], 1)
	require.Greater(t, frames[worker], 1)
	require.Equal(t, 1, frames[gone])

	single, err := c.MachineClient.Dmesg(client.WithNode(deadline(t), two), &machineapi.DmesgRequest{})
	require.NoError(t, err)

	frame, err := single.Recv()
	require.NoError(t, err)
	require.Nil(t, frame.GetMetadata(), "those of one node have no mark")
}

func TestClaim_9_07_WorkersForwardNothing(t *testing.T) {
	t.Parallel()

	cluster := wholeLab.use(t)
	worker := cluster.Node("worker1")
	c := secure(t, cluster.Talosconfig(), worker)
	one := cluster.Node("cp1").Address().String()

	for name, pairs := range map[string][]string{
		"itself": {"node", worker.Address().String()}, "its name": {"node", "worker1"},
		"itself alone among nodes": {"nodes", worker.Address().String()}, "its name among nodes": {"nodes", "worker1"},
		"a forwarded call": {"proxyfrom", "elsewhere", "node", one},
	} {
		names, err := hostnames(t, c, routed(t, pairs...))
		require.NoError(t, err, name)
		require.Equal(t, map[string]string{"": "worker1"}, names, name)
	}

	for name, pairs := range map[string][]string{
		"another": {"node", one}, "others": {"nodes", one},
		"itself and another": {"nodes", worker.Address().String(), "nodes", one},
		"itself twice":       {"nodes", "worker1", "nodes", "worker1"},
	} {
		_, err := hostnames(t, c, routed(t, pairs...))
		require.Equal(t, codes.PermissionDenied, client.StatusCode(err), name)
		require.ErrorContains(t, err, "no request forwarding", name)
	}

	require.Equal(t, codes.InvalidArgument,
		client.StatusCode(knock(t, c, routed(t, "nodes", one), "/cosi.resource.State/Get")), "looked at first")
}

func TestClaim_9_08_AForwardedCallKeepsItsCallersRoles(t *testing.T) {
	t.Parallel()

	cluster := wholeLab.use(t)
	two := cluster.Node("cp2").Address().String()
	reader := signed(t, cluster, cluster.Node("cp1"), x509.Organization(string(role.Reader)))

	_, err := reader.MachineClient.Version(client.WithNode(deadline(t), two), &emptypb.Empty{})
	require.NoError(t, err)

	_, err = reader.MachineClient.Reboot(client.WithNode(deadline(t), two), &machineapi.RebootRequest{})
	require.Equal(t, codes.PermissionDenied, client.StatusCode(err))
	require.ErrorContains(t, err, "not authorized")
}

func TestClaim_9_09_WhatACallerStreamsIsForwardedToo(t *testing.T) {
	t.Parallel()

	cluster := wholeLab.use(t)
	two, worker := cluster.Node("cp2").Address().String(), cluster.Node("worker1").Address().String()
	c := secure(t, cluster.Talosconfig(), cluster.Node("cp1"))

	send := func(ctx context.Context) (*machineapi.EtcdRecoverResponse, error) {
		stream, err := c.MachineClient.EtcdRecover(ctx)
		require.NoError(t, err)

		for range 3 {
			if err := stream.Send(&common.Data{Bytes: make([]byte, 4096)}); err != nil {
				break // the answer tells why
			}
		}

		return stream.CloseAndRecv()
	}

	reply, err := send(client.WithNode(deadline(t), two))
	require.NoError(t, err)
	require.Nil(t, reply.GetMessages()[0].GetMetadata())

	reply, err = send(client.WithNodes(deadline(t), two, worker))
	require.NoError(t, err)
	require.Len(t, reply.GetMessages(), 2)

	for _, message := range reply.GetMessages() {
		if message.GetMetadata().GetHostname() == worker {
			require.Contains(t, message.GetMetadata().GetError(), "etcd recover is only available on control plane nodes")
		} else {
			require.Equal(t, two, message.GetMetadata().GetHostname())
			require.Empty(t, message.GetMetadata().GetError())
		}
	}
}
