package emulator_test

import (
	"crypto/tls"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	timeapi "github.com/siderolabs/talos/pkg/machinery/api/time"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	servicesres "github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// talos112 is the older release that nodes can play.
const talos112 = "v1.12.1"

// alone112 is a control plane of Talos 1.12 in maintenance mode, and its config.
func alone112(t *testing.T, options labcluster.Options) (*labcluster.Cluster, *emulator.Node, []byte) {
	t.Helper()

	options.TalosVersion = talos112
	cluster, node := alone(t, options)

	data, err := cluster.Config("cp1")
	require.NoError(t, err)

	return cluster, node, data
}

func TestClaim_10_01_ThreeLinesOfReleasesCanBePlayed(t *testing.T) {
	t.Parallel()

	lab, err := emulator.NewLab(emulator.LabOptions{TimeScale: labcluster.TestScale})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lab.Close()) })

	for _, version := range []string{"v1.12.0", "v1.12.11", "v1.13.0-beta.1", "v1.13.2", "v1.14.1"} {
		node, err := lab.Start(emulator.NodeOptions{Name: version, TalosVersion: version})
		require.NoError(t, err)
		waitStage(t, node, "maintenance")

		told, err := safe.StateGetByID[*runtimeres.Version](deadline(t), insecure(t, node).COSI, "version")
		require.NoError(t, err)
		require.Equal(t, version, told.TypedSpec().Version)
	}

	for _, version := range []string{"v1.11.6", "v1.15.0", "v1.120.1", "1.13.9", "v1.13", "latest"} {
		_, err := lab.Start(emulator.NodeOptions{Name: "other", TalosVersion: version})
		require.EqualError(t, err,
			`start node other: TalosVersion "`+version+`" can't be played, only v1.14.x, v1.13.x, v1.12.x can`)
	}
}

func TestClaim_10_02_MaintenanceIsAServiceOfItsOwn(t *testing.T) {
	t.Parallel()

	_, node, _ := alone112(t, labcluster.Options{})
	c, ctx := insecure(t, node), deadline(t)
	onlySideroLink := "API is not implemented in maintenance mode"

	for name, test := range map[string]struct {
		call func() error
		want string
	}{
		"Version": {func() error { _, err := c.Version(ctx); return err }, onlySideroLink},
		"Upgrade": {func() error { _, err := c.MachineClient.Upgrade(ctx, &machineapi.UpgradeRequest{}); return err },
			onlySideroLink},
		"Reset":      {func() error { return c.Reset(ctx, true, true) }, onlySideroLink},
		"MetaWrite":  {func() error { return c.MetaWrite(ctx, 0x0a, []byte("x")) }, onlySideroLink},
		"MetaDelete": {func() error { return c.MetaDelete(ctx, 0x0a) }, onlySideroLink},
		"GenerateClientConfiguration": {func() error {
			_, err := c.GenerateClientConfiguration(ctx, &machineapi.GenerateClientConfigurationRequest{})
			return err
		}, "client configuration (talosconfig) can't be generated in the maintenance mode"},

		"ServiceList": {func() error { _, err := c.ServiceList(ctx); return err }, "method ServiceList not implemented"},
		"Dmesg":       {func() error { return firstFrame(c.Dmesg(ctx, false, false)) }, "method Dmesg not implemented"},
		"Events": {func() error {
			return firstFrame(c.MachineClient.Events(ctx, &machineapi.EventsRequest{}))
		}, "method Events not implemented"},
		"Logs": {func() error {
			return firstFrame(c.MachineClient.Logs(ctx, &machineapi.LogsRequest{Id: "apid"}))
		}, "method Logs not implemented"},
		"Bootstrap": {func() error { return c.Bootstrap(ctx, &machineapi.BootstrapRequest{}) },
			"method Bootstrap not implemented"},
		"Reboot": {func() error { return c.Reboot(ctx) }, "method Reboot not implemented"},
		"EtcdMemberList": {func() error {
			_, err := c.EtcdMemberList(ctx, &machineapi.EtcdMemberListRequest{})
			return err
		}, "method EtcdMemberList not implemented"},

		"TimeService": {func() error {
			_, err := c.TimeClient.TimeCheck(ctx, &timeapi.TimeRequest{})
			return err
		}, "unknown service time.TimeService"},
		"ClusterService": {func() error {
			return firstFrame(c.ClusterHealthCheck(ctx, time.Second, nil))
		}, "unknown service cluster.ClusterService"},
		"ImageService": {func() error {
			return firstFrame(c.ImageClient.List(ctx, &machineapi.ImageServiceListRequest{}))
		}, "unknown service machine.ImageService"},
		"LifecycleService": {func() error {
			return firstFrame(c.LifecycleClient.Install(ctx, &machineapi.LifecycleServiceInstallRequest{}))
		}, "unknown service machine.LifecycleService"},
	} {
		err := test.call()
		require.Equal(t, codes.Unimplemented, client.StatusCode(err), "%s: %v", name, err)
		require.ErrorContains(t, err, test.want, name)
	}

	_, err := c.Disks(ctx)
	require.NoError(t, err, "disks are shown in the old way too")
}

func TestClaim_10_03_MoreResourcesAreOpenInMaintenance(t *testing.T) {
	t.Parallel()

	_, node, _ := alone112(t, labcluster.Options{})
	c, ctx := insecure(t, node), deadline(t)

	definitions, err := safe.StateListAll[*meta.ResourceDefinition](ctx, c.COSI)
	require.NoError(t, err)

	open := 0

	for definition := range definitions.All() {
		if definition.TypedSpec().Sensitivity != meta.Sensitive {
			open++
		}
	}

	require.Equal(t, 160, definitions.Len())
	require.Equal(t, 131, open)

	get := func(namespace, kind, id string) error {
		_, err := c.COSI.Get(ctx, resource.NewMetadata(namespace, kind, id, resource.VersionUndefined))

		return err
	}

	require.True(t, state.IsNotFoundError(get(k8s.NamespaceName, k8s.KubeletSpecType, k8s.KubeletID)),
		"an administrator's with Talos 1.13")

	for _, closed := range []error{
		get(config.NamespaceName, config.MachineConfigType, config.ActiveID),
		get(runtimeres.NamespaceName, runtimeres.APIServiceConfigType, "any"),
		get("security", runtimeres.MetaKeyType, "any"),
	} {
		require.Equal(t, codes.PermissionDenied, client.StatusCode(closed), "%v", closed)
	}

	err = c.COSI.Create(ctx, runtimeres.NewMetaKey(runtimeres.NamespaceName, "0x0a"))
	require.ErrorContains(t, err, "write access is not allowed")

	services, err := safe.StateListAll[*servicesres.Service](ctx, c.COSI)
	require.NoError(t, err)

	var running []string
	for service := range services.All() {
		running = append(running, service.Metadata().ID())
	}

	require.Contains(t, running, "machined")
	require.NotContains(t, running, "apid", "it starts with the boot sequence")
}

func TestClaim_10_04_TheModeIsLookedAtBeforeTheConfig(t *testing.T) {
	t.Parallel()

	cluster, node, _ := alone112(t, labcluster.Options{})
	c := insecure(t, node)

	for mode, name := range map[machineapi.ApplyConfigurationRequest_Mode]string{modeNoReboot: "no-reboot",
		modeStaged: "staged"} {
		_, err := apply(t, c, []byte("broken: ["), mode)
		require.Equal(t, codes.Unimplemented, client.StatusCode(err))
		require.ErrorContains(t, err, "apply configuration --mode='"+name+"' is not supported in maintenance mode")
	}

	_, err := apply(t, c, []byte("broken: ["), modeAuto)
	require.Equal(t, codes.Unknown, client.StatusCode(err))
	require.ErrorContains(t, err, "failed to parse config: decode error: yaml: ")

	_, err = apply(t, c, edited(t, cluster, "cp1", func(c *v1alpha1.Config) { c.MachineConfig.MachineType = "master" }),
		modeAuto)
	require.Equal(t, codes.InvalidArgument, client.StatusCode(err))
	require.ErrorContains(t, err,
		"configuration validation failed: 1 error occurred:\n\t* v1alpha1.Config: 3 errors occurred:")

	_, err = apply(t, c, edited(t, cluster, "cp1", badSelector), modeAuto)
	require.Equal(t, codes.InvalidArgument, client.StatusCode(err))
	require.ErrorContains(t, err,
		"runtime configuration validation failed: 1 error occurred:\n\t* v1alpha1.Config: 1 error occurred:\n\t* no disks "+
			"matched")
	require.Equal(t, "maintenance", node.Stage())
}

func badSelector(c *v1alpha1.Config) {
	c.MachineConfig.MachineInstall.InstallDisk = ""
	c.MachineConfig.MachineInstall.InstallDiskSelector = &v1alpha1.InstallDiskSelector{Model: "NOPE*"}
}

func TestClaim_10_05_TheLoaderRefusesMore(t *testing.T) {
	t.Parallel()

	const base = "version: v1alpha1\nmachine:\n  type: worker\ncluster: {}\n---\n"

	_, node, _ := alone112(t, labcluster.Options{})
	c := insecure(t, node)

	for name, test := range map[string]struct{ data, want string }{
		"empty":              {"", "config not found"},
		"separator too many": {base, "recovered: expected a mapping node"},
		"mapping":            {"machine: {a: b\n", "decode error: yaml: "},
		"unknown key":        {"machine:\n    foo: bar\n", "unknown keys found during decoding:\nmachine:\n    foo: bar\n"},
		"unknown kind":       {base + "apiVersion: v1alpha1\nkind: FooConfig\n", `"FooConfig" "v1alpha1": not registered`},
		"later kind": {base + "apiVersion: v1alpha1\nkind: VRFConfig\nname: a\n",
			`"VRFConfig" "v1alpha1": not registered`},
		"later key": {base + "apiVersion: v1alpha1\nkind: VolumeConfig\nname: EPHEMERAL\nmount: {secure: false}\n",
			"config: unknown keys found during decoding:\nmount: {secure: false}\n"},
	} {
		_, err := apply(t, c, []byte(test.data), modeAuto)
		require.Equal(t, codes.Unknown, client.StatusCode(err), name)
		require.ErrorContains(t, err, "failed to parse config: ", name)
		require.ErrorContains(t, err, test.want, name)
	}
}

func TestClaim_10_06_EachReleaseTakesItsOwnVersionsOfKubernetes(t *testing.T) {
	t.Parallel()

	cluster, node, _ := alone112(t, labcluster.Options{})
	c := insecure(t, node)

	kubernetes := func(version string) []byte {
		return edited(t, cluster, "cp1", func(c *v1alpha1.Config) {
			c.MachineConfig.MachineKubelet.KubeletImage = "ghcr.io/siderolabs/kubelet:v" + version
			c.ClusterConfig.APIServerConfig.ContainerImage = "registry.k8s.io/kube-apiserver:v" + version
			c.ClusterConfig.ControllerManagerConfig.ContainerImage = "registry.k8s.io/kube-controller-manager:v" + version
			c.ClusterConfig.SchedulerConfig.ContainerImage = "registry.k8s.io/kube-scheduler:v" + version
		})
	}

	_, err := apply(t, c, kubernetes("1.36.3"), modeAuto)
	require.Equal(t, codes.InvalidArgument, client.StatusCode(err))

	for _, image := range []string{"kubelet", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		require.ErrorContains(t, err,
			"* "+image+" image is not valid: version of Kubernetes 1.36.3 is too new to be used with Talos 1.12.1")
	}

	reply, err := c.ApplyConfiguration(deadline(t),
		&machineapi.ApplyConfigurationRequest{Data: kubernetes("1.30.1"), Mode: modeAuto, DryRun: true})
	require.NoError(t, err, "too old for Talos 1.13 alone")
	require.Len(t, reply.GetMessages(), 1)
}

func TestClaim_10_07_EveryModeInstallsForGoodAndNoneIsTold(t *testing.T) {
	t.Parallel()

	for name, mode := range map[string]machineapi.ApplyConfigurationRequest_Mode{"auto": modeAuto, "reboot": modeReboot,
		"try": modeTry} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, node, data := alone112(t, labcluster.Options{})

			reply, err := apply(t, insecure(t, node), data, mode)
			require.NoError(t, err)
			require.Equal(t, modeReboot, reply.GetMode(), "the zero value")
			require.Empty(t, reply.GetModeDetails())

			installed(t, node)
			require.NotEmpty(t, node.Config())
		})
	}
}

func TestClaim_10_08_ADryRunInMaintenanceKeepsItsWarningsAndShowsNoDifference(t *testing.T) {
	t.Parallel()

	cluster, node, _ := alone112(t, labcluster.Options{})

	reply, err := insecure(t, node).ApplyConfiguration(deadline(t), &machineapi.ApplyConfigurationRequest{
		Data: edited(t, cluster, "cp1", func(c *v1alpha1.Config) {
			c.MachineConfig.MachineInstall.InstallExtensions = []v1alpha1.InstallExtensionConfig{{ExtensionImage: "ghcr.io/example/extension:v1"}} //nolint:staticcheck // it warns
		}),
		Mode: modeAuto, DryRun: true,
	})
	require.NoError(t, err)
	require.Equal(t, "Dry run summary:\nNode is running in maintenance mode and does not have a config yet.",
		reply.GetMessages()[0].GetModeDetails())
	require.NotEmpty(t, reply.GetMessages()[0].GetWarnings())
	require.Equal(t, "maintenance", node.Stage())
	require.Empty(t, node.MutatingCalls())
}

func TestClaim_10_09_APartialConfigHasNoEffect(t *testing.T) {
	t.Parallel()

	_, node, data := alone112(t, labcluster.Options{})
	c := insecure(t, node)

	_, err := apply(t, c, []byte("apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: early\n"), modeAuto)
	require.NoError(t, err)

	_, err = c.COSI.Get(deadline(t),
		resource.NewMetadata("network", "HostnameStatuses.net.talos.dev", "hostname", resource.VersionUndefined))
	require.True(t, state.IsNotFoundError(err))

	_, err = apply(t, c, data, modeAuto)
	require.NoError(t, err, "the machine still waits for a config")
}

func TestClaim_10_10_AfterACompleteConfigOthersHangUntilTheAPICloses(t *testing.T) {
	t.Parallel()

	cluster, node, data := alone112(t, labcluster.Options{Edit: func(o *emulator.NodeOptions) {
		o.Faults.Lingers, o.Faults.InstallStall = 24*time.Hour, 24*time.Hour
	}})
	other := edited(t, cluster, "cp1", func(c *v1alpha1.Config) { c.ConfigDebug = new(true) }) //nolint:staticcheck // any difference does

	_, err := apply(t, insecure(t, node), data, modeAuto)
	require.NoError(t, err)

	second := make(chan error, 1)

	go func() {
		_, err := insecure(t, node).ApplyConfiguration(deadline(t),
			&machineapi.ApplyConfigurationRequest{Data: other, Mode: modeAuto})
		second <- err
	}()

	eventually(t, func() error { return until(len(node.MutatingCalls()) == 2) })
	node.Set(func(f *emulator.Faults) { f.Lingers = 0 })

	err = next(t, second)
	require.Equal(t, codes.Unavailable, client.StatusCode(err))
	require.ErrorContains(t, err, "graceful_stop")

	_, _, err = handshake(t, node, 0)
	require.ErrorContains(t, err, "connection refused")
	require.Equal(t, string(data), string(node.Config()))
}

func TestClaim_10_11_AMachineHasNoAPIWhileItInstalls(t *testing.T) {
	t.Parallel()

	cluster, node, data := alone112(t,
		labcluster.Options{Edit: func(o *emulator.NodeOptions) { o.Faults.InstallStall = 24 * time.Hour }})
	require.Contains(t, string(data), "hostname: cp1", "with this Talos 1.13 has an API during the install")

	_, err := apply(t, insecure(t, node), data, modeAuto)
	require.NoError(t, err)
	waitStage(t, node, "installing")

	_, _, err = handshake(t, node, 0)
	require.ErrorContains(t, err, "connection refused")

	node.Set(func(f *emulator.Faults) { f.InstallStall = 0 })
	installed(t, node)
	eventually(t, func() error { _, err := secure(t, cluster.Talosconfig(), node).Version(deadline(t)); return err })
	require.Equal(t, 2, node.Boots())
}

func TestClaim_10_12_AHeldWatchHoldsTheInstallUp(t *testing.T) {
	t.Parallel()

	cluster, node, data := alone112(t, labcluster.Options{})
	clock := cluster.Lab.Clock()
	events := make(chan safe.WrappedStateEvent[*runtimeres.MachineStatus])

	require.NoError(t, safe.StateWatch(deadline(t), insecure(t, node).COSI, runtimeres.NewMachineStatus().Metadata(),
		events))

	first := next(t, events)
	require.NoError(t, first.Error())

	applied := clock.Now()

	_, err := apply(t, insecure(t, node), data, modeAuto)
	require.NoError(t, err)

	var seen []string

	for event := range events {
		if err = event.Error(); err != nil {
			break
		}

		status, err := event.Resource()
		require.NoError(t, err)

		seen = append(seen, status.TypedSpec().Stage.String())
	}

	require.ErrorContains(t, err, "graceful_stop")
	require.Empty(t, slices.DeleteFunc(seen, func(stage string) bool { return stage == "maintenance" }))

	installed(t, node)
	require.GreaterOrEqual(t, clock.Now().Sub(applied), 5*time.Second)
}

func TestClaim_10_13_AFailedInstallLeavesNoTraceForAnybody(t *testing.T) {
	t.Parallel()

	_, node, data := alone112(t, labcluster.Options{Edit: func(o *emulator.NodeOptions) {
		o.Faults.Install, o.Faults.InstallTimes, o.Faults.InstallStall = emulator.InstallImagePull, 1, 24*time.Hour
	}})

	before, _, err := handshake(t, node, 0)
	require.NoError(t, err)

	_, err = apply(t, insecure(t, node), data, modeAuto)
	require.NoError(t, err)
	waitStage(t, node, "installing")

	_, _, err = handshake(t, node, 0)
	require.ErrorContains(t, err, "connection refused")
	node.Set(func(f *emulator.Faults) { f.InstallStall = 0 })

	require.NoError(t, node.WaitFor(deadline(t),
		func(n *emulator.Node) bool { return n.Boots() == 2 && n.Stage() == "maintenance" }))
	require.Nil(t, node.Config())

	after, _, err := handshake(t, node, 0)
	require.NoError(t, err)
	require.NotEqual(t, before.PeerCertificates[0].Raw, after.PeerCertificates[0].Raw)
}

func TestClaim_10_14_TheAPISpeaksTLS12Too(t *testing.T) {
	t.Parallel()

	cluster, node, data := alone112(t, labcluster.Options{})

	_, asked, err := handshake(t, node, tls.VersionTLS12)
	require.NoError(t, err)
	require.False(t, asked)

	_, err = apply(t, insecure(t, node), data, modeAuto)
	require.NoError(t, err)
	installed(t, node)
	eventually(t, func() error { _, err := secure(t, cluster.Talosconfig(), node).Version(deadline(t)); return err })

	_, asked, err = handshake(t, node, tls.VersionTLS12)
	require.True(t, asked)
	require.ErrorContains(t, err, "remote error: tls:", "so old, a refusal comes within the handshake")
}

func TestClaim_10_15_MessagesAreShorterInMaintenance(t *testing.T) {
	t.Parallel()

	_, node, _ := alone112(t, labcluster.Options{})
	_, err := apply(t, insecure(t, node), largeConfig(5<<20), modeAuto)
	require.Equal(t, codes.ResourceExhausted, client.StatusCode(err))

	_, newer := alone(t, labcluster.Options{})
	_, err = apply(t, insecure(t, newer), largeConfig(5<<20), modeAuto)
	require.Equal(t, codes.InvalidArgument, client.StatusCode(err), "read as a whole, and refused for what it says")
}

func largeConfig(size int) []byte { return []byte("foo: " + strings.Repeat("x", size)) }

func TestClaim_10_16_AnInstalledMachineInMaintenanceIsAskedForAnInstallAllTheSame(t *testing.T) {
	t.Parallel()

	cluster, node, data := alone112(t, labcluster.Options{Edit: func(o *emulator.NodeOptions) { o.Installed = true }})
	c := insecure(t, node)

	for want, change := range map[string]func(*v1alpha1.Config){
		`install instructions are required in "metal" mode`: func(c *v1alpha1.Config) { c.MachineConfig.MachineInstall = nil },
		"no disks matched the expression":                   badSelector,
		"install.extraKernelArgs and install.grubUseUKICmdline can't be used together": func(c *v1alpha1.Config) {
			c.MachineConfig.MachineInstall.InstallExtraKernelArgs = []string{"console=ttyS0"}
			c.MachineConfig.MachineInstall.InstallGrubUseUKICmdline = new(true)
		},
	} {
		wanting := edited(t, cluster, "cp1", change)

		_, err := apply(t, c, wanting, modeAuto)
		require.Equal(t, codes.InvalidArgument, client.StatusCode(err), want)
		require.ErrorContains(t, err, want)
	}

	_, err := apply(t, c, data, modeAuto)
	require.NoError(t, err)

	admin := secure(t, cluster.Talosconfig(), node)
	eventually(t, func() error { _, err := admin.Version(deadline(t)); return err })
	require.Equal(t, 1, node.Boots(), "neither an install nor a reboot")

	_, err = admin.ApplyConfiguration(deadline(t), &machineapi.ApplyConfigurationRequest{
		Data: edited(t, cluster, "cp1", badSelector), Mode: modeAuto, DryRun: true,
	})
	require.NoError(t, err, "a configured node does not care")
}

// generateRequest encodes a GenerateConfigurationRequest, which machinery has no type for any more.
func generateRequest(t *testing.T, cluster *machineapi.ClusterConfig,
	machine *machineapi.MachineConfig) *emptypb.Empty {
	t.Helper()

	raw := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "v1alpha1")

	for number, message := range map[protowire.Number]proto.Message{2: cluster, 3: machine} {
		encoded, err := proto.Marshal(message)
		require.NoError(t, err)

		raw = protowire.AppendBytes(protowire.AppendTag(raw, number, protowire.BytesType), encoded)
	}

	request := new(emptypb.Empty)
	request.ProtoReflect().SetUnknown(raw)

	return request
}

func TestClaim_10_17_MachineConfigsAreGeneratedOnRequest(t *testing.T) {
	t.Parallel()

	const method = "/machine.MachineService/GenerateConfiguration"

	cluster, node, data := alone112(t, labcluster.Options{})
	_, newer := alone(t, labcluster.Options{})
	wanted := &machineapi.ClusterConfig{Name: "made",
		ControlPlane: &machineapi.ControlPlaneConfig{Endpoint: "https://192.0.2.10:6443"}}

	generate := func(c *client.Client, kind machineapi.MachineConfig_MachineType) (string, error) {
		reply := new(emptypb.Empty)
		request := generateRequest(t, wanted, &machineapi.MachineConfig{Type: kind, KubernetesVersion: "1.35.0"})
		err := c.Conn().Invoke(deadline(t), method, request, reply)

		return string(reply.ProtoReflect().GetUnknown()), err
	}

	_, err := generate(insecure(t, newer), machineapi.MachineConfig_TYPE_CONTROL_PLANE)
	require.Equal(t, codes.Unimplemented, client.StatusCode(err))
	require.ErrorContains(t, err, "unknown method GenerateConfiguration for service machine.MachineService")

	_, err = generate(insecure(t, node), machineapi.MachineConfig_TYPE_WORKER)
	require.ErrorContains(t, err, "join config can't be generated in the maintenance mode")

	_, err = apply(t, insecure(t, node), data, modeAuto)
	require.NoError(t, err)
	installed(t, node)

	var made string

	eventually(t, func() error {
		made, err = generate(secure(t, cluster.Talosconfig(), node), machineapi.MachineConfig_TYPE_WORKER)

		return err
	})
	require.Contains(t, made, "type: worker")
	require.Contains(t, made, "clusterName: made")
	require.Contains(t, made, "context: made")
	require.Contains(t, made, "token: "+cluster.Generated.Options.Secrets.TrustdInfo.Token, "of the node's own cluster")
}
