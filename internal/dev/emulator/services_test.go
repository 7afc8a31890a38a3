package emulator_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// extensions are a machine's system extensions by name.
func extensions(t *testing.T, c *client.Client) map[string]string {
	t.Helper()

	list, err := safe.StateListAll[*runtimeres.ExtensionStatus](deadline(t), c.COSI)
	require.NoError(t, err)

	found := map[string]string{}
	for extension := range list.All() {
		found[extension.TypedSpec().Metadata.Name] = extension.TypedSpec().Metadata.Version
	}

	return found
}

func TestClaim_1_13_ExtensionsTellTheImagesSchematic(t *testing.T) {
	t.Parallel()

	booted, wanted := strings.Repeat("ab", 32), strings.Repeat("cd", 32)

	cluster, node := alone(t, labcluster.Options{Edit: func(o *emulator.NodeOptions) {
		o.Schematic, o.Extensions = booted, []emulator.Extension{{Name: "iscsi-tools", Version: "v0.2.0"}}
	}})
	require.Equal(t, map[string]string{"iscsi-tools": "v0.2.0", "schematic": booted}, extensions(t, insecure(t, node)))

	data := edited(t, cluster, "cp1", func(c *v1alpha1.Config) {
		c.MachineConfig.MachineInstall.InstallImage = "factory.talos.dev/metal-installer/" + wanted + ":v1.13.9"
	})
	_, err := apply(t, insecure(t, node), data, modeAuto)
	require.NoError(t, err)
	installed(t, node)

	c := secure(t, cluster.Talosconfig(), node)
	eventually(t, func() error { _, err := c.Version(deadline(t)); return err })
	require.Equal(t, wanted, extensions(t, c)["schematic"], "the installed image's")
}

func TestClaim_4_08_ABootstrapCanFailOnItsWay(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		fault emulator.BootstrapFault
		code  codes.Code
		text  string
		// then is the state in which etcd is left.
		then string
	}{
		"type unset": {emulator.BootstrapTypeUnset, codes.Unimplemented, "machine type is not set, cannot use bootstrap API",
			"Preparing"},
		"stuck": {emulator.BootstrapEtcdStuck, codes.Unknown, "failed to stop etcd: ", "Preparing"},
		"start": {emulator.BootstrapEtcdStartFails, codes.Unknown, "error starting etcd in bootstrap mode: ",
			"Finished"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			cluster, node := configured(t,
				labcluster.Options{Edit: func(o *emulator.NodeOptions) { o.Faults.Bootstrap = test.fault }})
			c := secure(t, cluster.Talosconfig(), node)
			eventually(t, func() error { return until(serviceInfo(t, c, "etcd").GetState() == "Preparing") })

			err := c.Bootstrap(deadline(t), &machineapi.BootstrapRequest{})
			require.Equal(t, test.code, client.StatusCode(err))
			require.ErrorContains(t, err, test.text)
			require.Equal(t, test.then, serviceInfo(t, c, "etcd").GetState())
			require.Zero(t, cluster.Lab.EtcdClusters())
		})
	}
}

func TestClaim_4_09_AControlPlaneThatNobodyBootstrapsReboots(t *testing.T) {
	t.Parallel()

	cluster, node := configured(t, labcluster.Options{Timing: emulator.Timing{BootLimit: 100 * time.Second}})
	require.NoError(t, node.WaitFor(deadline(t), func(n *emulator.Node) bool { return n.Boots() >= 4 }))
	require.NotNil(t, node.Config())

	eventually(t, func() error {
		return secure(t, cluster.Talosconfig(), node).Bootstrap(deadline(t), &machineapi.BootstrapRequest{})
	})
	require.NoError(t, node.WaitFor(deadline(t), (*emulator.Node).EtcdVoter))
}

func TestClaim_4_10_EtcdIsMaintainedOnControlPlanesThatRunIt(t *testing.T) {
	t.Parallel()

	calls := func(c *client.Client) map[string]func(context.Context) error {
		return map[string]func(context.Context) error{
			"etcd alarm disarm": func(ctx context.Context) error {
				_, err := c.MachineClient.EtcdAlarmDisarm(ctx, &emptypb.Empty{})
				return err
			},
			"etcd defragment": func(ctx context.Context) error {
				_, err := c.MachineClient.EtcdDefragment(ctx, &emptypb.Empty{})
				return err
			},
		}
	}

	cluster, node := configured(t, labcluster.Options{})
	c := secure(t, cluster.Talosconfig(), node)
	eventually(t, func() error { return synced(deadline(t), c) })

	for name, call := range calls(c) {
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		require.Equal(t, codes.DeadlineExceeded, client.StatusCode(call(short)), name)
		cancel()
	}

	eventually(t, func() error { return c.Bootstrap(deadline(t), &machineapi.BootstrapRequest{}) })
	require.NoError(t, node.WaitFor(deadline(t), (*emulator.Node).EtcdVoter))

	for name, call := range calls(c) {
		require.NoError(t, call(deadline(t)), name)
	}

	spare, err := cluster.Lab.Start(emulator.NodeOptions{Name: "spare", Address: cluster.Lab.Address(150)})
	require.NoError(t, err)
	waitStage(t, spare, "maintenance")

	for name, call := range calls(insecure(t, spare)) {
		require.Equal(t, codes.PermissionDenied, client.StatusCode(call(deadline(t))), name)
	}
}

func TestClaim_5_02_AClientConfigurationIsSignedFromTheConfig(t *testing.T) {
	t.Parallel()

	cluster, node := configured(t, labcluster.Options{})
	c := secure(t, cluster.Talosconfig(), node)

	_, err := c.GenerateClientConfiguration(deadline(t),
		&machineapi.GenerateClientConfigurationRequest{Roles: []string{string(role.Reader)}})
	require.Equal(t, codes.InvalidArgument, client.StatusCode(err))
	require.ErrorContains(t, err, "crt_ttl should be positive")

	reply, err := c.GenerateClientConfiguration(deadline(t), &machineapi.GenerateClientConfigurationRequest{
		Roles: []string{string(role.Reader)}, CrtTtl: durationpb.New(time.Hour),
	})
	require.NoError(t, err)

	config, err := clientconfig.FromBytes(reply.GetMessages()[0].GetTalosconfig())
	require.NoError(t, err)
	require.Equal(t, "reader@lab", config.Context)
	require.Empty(t, config.Contexts[config.Context].Endpoints)

	reader, err := client.New(t.Context(), client.WithConfig(config), client.WithEndpoints(node.Endpoint()))
	require.NoError(t, err)

	defer reader.Close() //nolint:errcheck // the test is over

	_, err = reader.Version(deadline(t))
	require.NoError(t, err)

	_, err = reader.Kubeconfig(deadline(t))
	require.Equal(t, codes.PermissionDenied, client.StatusCode(err))

	_, err = reader.GenerateClientConfiguration(deadline(t),
		&machineapi.GenerateClientConfigurationRequest{CrtTtl: durationpb.New(time.Hour)})
	require.Equal(t, codes.PermissionDenied, client.StatusCode(err))
}

func TestClaim_8_03_OnlyKubeletIsRestartedByHand(t *testing.T) {
	t.Parallel()

	_, node, c := ready(t, labcluster.Options{})
	waitStage(t, node, "running")

	for id, text := range map[string]string{
		"etcd": `service "etcd" doesn't support restart operation via API`,
		"apid": `service "apid" doesn't support restart operation via API`,
		"nope": `service "nope" not defined`,
	} {
		_, err := c.ServiceRestart(deadline(t), id)
		require.Equal(t, codes.Unknown, client.StatusCode(err), id)
		require.ErrorContains(t, err, text)
	}

	_, err := c.ServiceStop(deadline(t), "kubelet")
	require.ErrorContains(t, err, `service "kubelet" doesn't support stop operation via API`)

	before := serviceInfo(t, c, "kubelet")

	reply, err := c.ServiceRestart(deadline(t), "kubelet")
	require.NoError(t, err)
	require.Equal(t, `Service "kubelet" restarted`, reply.GetMessages()[0].GetResp())

	eventually(t, func() error {
		after := serviceInfo(t, c, "kubelet")

		return until(len(after.GetEvents().GetEvents()) >= len(before.GetEvents().GetEvents())+7 &&
			after.GetHealth().GetHealthy())
	})

	texts := history(serviceInfo(t, c, "kubelet"))[len(before.GetEvents().GetEvents()):]
	require.Equal(t, []string{"Stopping: Sending SIGTERM to kubelet", "Finished: Service finished successfully",
		"Starting: Starting service"}, texts[:3])
	require.Equal(t, "Running: Health check successful", texts[len(texts)-1])
	require.Equal(t, "running", node.Stage())
}

func TestClaim_8_04_FilesAreCopiedAndMeasured(t *testing.T) {
	t.Parallel()

	_, node, c := ready(t, labcluster.Options{})

	copied, err := c.Copy(deadline(t), "/proc/cmdline")
	require.NoError(t, err)

	defer copied.Close() //nolint:errcheck // read to its end

	data, err := io.ReadAll(copied)
	require.NoError(t, err)

	unzipped, err := gzip.NewReader(bytes.NewReader(data))
	require.NoError(t, err)

	archive := tar.NewReader(unzipped)
	header, err := archive.Next()
	require.NoError(t, err)
	require.Equal(t, "cmdline", header.Name)

	content, err := io.ReadAll(archive)
	require.NoError(t, err)
	require.Equal(t, node.Options().Cmdline+"\n", string(content))

	missing, err := c.MachineClient.Copy(deadline(t), &machineapi.CopyRequest{RootPath: "/nowhere"})
	require.ErrorContains(t, firstFrame(missing, err), "lstat /nowhere: no such file or directory")

	usage, err := c.MachineClient.DiskUsage(deadline(t),
		&machineapi.DiskUsageRequest{Paths: []string{"/var/lib/etcd", "/nowhere"}, RecursionDepth: 1})
	require.NoError(t, err)

	sizes, failures := map[string]int64{}, map[string]string{}

	for {
		info, err := usage.Recv()
		if err == io.EOF { //nolint:errorlint // the end of a stream is not wrapped
			break
		}

		require.NoError(t, err)

		sizes[info.GetName()], failures[info.GetName()] = info.GetSize(), info.GetError()
	}

	require.Positive(t, sizes["/var/lib/etcd"])
	require.Empty(t, failures["/var/lib/etcd"])
	require.Contains(t, failures["/nowhere"], "no such file or directory")
}

func TestClaim_7_04_ABootBeginsInAnUnknownStageAndReady(t *testing.T) {
	t.Parallel()

	_, node := alone(t, labcluster.Options{})
	c := insecure(t, node)

	stream, err := c.MachineClient.Events(deadline(t), &machineapi.EventsRequest{TailEvents: -1})
	require.NoError(t, err)

	var first machineapi.MachineStatusEvent

	for first.GetStatus() == nil {
		event, err := stream.Recv()
		require.NoError(t, err)

		if strings.HasSuffix(event.GetData().GetTypeUrl(), "machine.MachineStatusEvent") {
			require.NoError(t, proto.Unmarshal(event.GetData().GetValue(), &first))
		}
	}

	require.Equal(t, machineapi.MachineStatusEvent_UNKNOWN, first.GetStage())
	require.True(t, first.GetStatus().GetReady())

	require.Equal(t, 1, serviceInfo(t, c, "dashboard").GetHealth().GetLastChange().AsTime().Year(),
		"a service without a check has never changed")
}

func TestClaim_8_23_UnknownLogsAreRefusedByNamespace(t *testing.T) {
	t.Parallel()

	cluster, node := waiting(t)
	api := secure(t, cluster.Talosconfig(), node).MachineClient

	for namespace, text := range map[string]string{
		"":       "namespace can't be empty",
		"system": `log "nope" was not registered`,
		"k8s.io": `container "nope" not found`,
	} {
		require.ErrorContains(t, firstFrame(api.Logs(deadline(t),
			&machineapi.LogsRequest{Namespace: namespace, Id: "nope"})), text)
	}
}
