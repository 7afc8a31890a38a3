package emulator_test

import (
	"context"
	"encoding/base64"
	"testing"
	"time"

	cosiapi "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/crypto/x509"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	metakeys "github.com/siderolabs/talos/pkg/machinery/meta"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// atOnce114 is an installed machine of Talos 1.14 that was given its config, with changes, and its administrator.
func atOnce114(t *testing.T, change func(*v1alpha1.Config)) (*labcluster.Cluster, *emulator.Node, *client.Client) {
	t.Helper()

	cluster, node := alone(t, labcluster.Options{Edit: func(o *emulator.NodeOptions) {
		o.TalosVersion, o.Installed = talos114, true
	}})

	_, err := apply(t, insecure(t, node), edited(t, cluster, "cp1", change), modeAuto)
	require.NoError(t, err)

	c := secure(t, cluster.Talosconfig(), node)
	eventually(t, func() error { _, err := c.Version(deadline(t)); return err })

	return cluster, node, c
}

func unchanged(*v1alpha1.Config) {}

// storageCall is a call that removes what was made of disks.
type storageCall func(ctx context.Context, c *client.Client) error

func removeVolume(group, volume string) storageCall {
	return func(ctx context.Context, c *client.Client) error {
		_, err := machineapi.NewLVMServiceClient(c.Conn()).LogicalVolumeRemove(ctx,
			&machineapi.LVMServiceLogicalVolumeRemoveRequest{VolumeGroup: group, LogicalVolume: volume})

		return err
	}
}

func removeGroup(group string) storageCall {
	return func(ctx context.Context, c *client.Client) error {
		_, err := machineapi.NewLVMServiceClient(c.Conn()).VolumeGroupRemove(ctx,
			&machineapi.LVMServiceVolumeGroupRemoveRequest{VolumeGroup: group})

		return err
	}
}

func removeDevice(device string) storageCall {
	return func(ctx context.Context, c *client.Client) error {
		_, err := machineapi.NewLVMServiceClient(c.Conn()).PhysicalVolumeRemove(ctx,
			&machineapi.LVMServicePhysicalVolumeRemoveRequest{Device: device})

		return err
	}
}

func destroyArray(device string) storageCall {
	return func(ctx context.Context, c *client.Client) error {
		_, err := machineapi.NewMDServiceClient(c.Conn()).Destroy(ctx, &machineapi.MDDestroyRequest{Device: device})

		return err
	}
}

func TestClaim_12_09_VolumesAndArraysCanBeRemoved(t *testing.T) {
	t.Parallel()

	_, maintenance := alone114(t)
	cluster, node, admin := atOnce114(t, unchanged)
	reader := signed(t, cluster, node, x509.Organization(string(role.Reader)))
	_, older := idle(t)

	const bothNames = "volume_group and logical_volume must be set"

	for name, test := range map[string]struct {
		call storageCall
		code codes.Code
		text string
	}{
		"a volume without a group": {removeVolume("", "data"), codes.InvalidArgument, bothNames},
		"a volume without a name":  {removeVolume("pool", ""), codes.InvalidArgument, bothNames},
		"a volume":                 {removeVolume("pool", "data"), codes.NotFound, "lvm: resource not found"},
		"a group without a name":   {removeGroup(""), codes.InvalidArgument, "volume_group must be set"},
		"a group":                  {removeGroup("pool"), codes.NotFound, "lvm: resource not found"},
		"a device without a name":  {removeDevice(""), codes.InvalidArgument, "device must be set"},
		"a device":                 {removeDevice("/dev/vdb"), codes.NotFound, "lvm: resource not found"},
		"an array without a name":  {destroyArray(""), codes.InvalidArgument, "device must be set"},
		"an array that is no path": {destroyArray("md0"), codes.InvalidArgument, "device must be a full /dev path"},
		"an array":                 {destroyArray("/dev/md0"), codes.NotFound, "md: array not found"},
	} {
		for _, c := range []*client.Client{maintenance, admin} {
			requireStatus(t, test.call(deadline(t), c), test.code, test.text)
		}

		requireStatus(t, test.call(deadline(t), reader), codes.PermissionDenied, "not authorized")

		err := test.call(deadline(t), insecure(t, older))
		require.Equal(t, codes.Unimplemented, client.StatusCode(err), name)
		require.ErrorContains(t, err, "unknown service machine.", name)
	}
}

func TestClaim_12_10_NobodyTearsResourcesDown(t *testing.T) {
	t.Parallel()

	cluster, node, admin := atOnce114(t, unchanged)
	status := runtimeres.NewMachineStatus().Metadata()

	teardown := func(c *client.Client) error {
		_, err := cosiapi.NewStateClient(c.Conn()).Teardown(deadline(t),
			&cosiapi.TeardownRequest{Namespace: status.Namespace(), Type: status.Type(), Id: status.ID()})

		return err
	}

	_, err := cosiapi.NewStateClient(admin.Conn()).TeardownAndDestroy(deadline(t),
		&cosiapi.TeardownAndDestroyRequest{Namespace: status.Namespace(), Type: status.Type(), Id: status.ID()})
	require.ErrorContains(t, err, "write access is not allowed")
	require.ErrorContains(t, teardown(admin), "write access is not allowed")

	_, err = admin.COSI.Teardown(deadline(t), status)
	require.ErrorContains(t, err, "write access is not allowed")
	require.Equal(t, codes.Unknown, client.StatusCode(err), "the state client hides the code")

	requireStatus(t, teardown(signed(t, cluster, node, x509.Organization(string(role.Reader)))), codes.PermissionDenied,
		"not authorized")

	_, older := idle(t)
	requireStatus(t, teardown(insecure(t, older)), codes.Unimplemented,
		"unknown method Teardown for service cosi.resource.State")
}

func TestClaim_12_11_TalosKeepsSomeMetaKeysToItself(t *testing.T) {
	t.Parallel()

	_, _, c := atOnce114(t, unchanged)

	for _, key := range []uint8{0, metakeys.Upgrade, metakeys.StagedUpgradeImageRef, metakeys.StagedUpgradeInstallOptions,
		metakeys.StateEncryptionConfig, metakeys.DiskImageBootloader} {
		for _, err := range []error{c.MetaWrite(deadline(t), key, []byte("x")), c.MetaDelete(deadline(t), key)} {
			requireStatus(t, err, codes.PermissionDenied, "meta key is not writeable via the API")
		}
	}

	for _, key := range []uint8{10, 12, 18} {
		require.NoError(t, c.MetaWrite(deadline(t), key, []byte("x")))
		require.NoError(t, c.MetaDelete(deadline(t), key))
	}

	_, err := c.MachineClient.MetaWrite(deadline(t), &machineapi.MetaWriteRequest{Key: 256})
	requireStatus(t, err, codes.InvalidArgument, "key must be a uint8")

	cluster, node := waiting(t)
	older := secure(t, cluster.Talosconfig(), node)
	require.NoError(t, older.MetaWrite(deadline(t), metakeys.DiskImageBootloader, []byte("x")))
	require.NoError(t, older.MetaDelete(deadline(t), metakeys.DiskImageBootloader))
}

func TestClaim_12_12_ItHasTwoHundredTypesOfResources(t *testing.T) {
	t.Parallel()

	_, c := alone114(t)
	_, older := idle(t)

	definitions := func(c *client.Client) map[string]meta.ResourceDefinitionSpec {
		list, err := safe.StateListAll[*meta.ResourceDefinition](deadline(t), c.COSI)
		require.NoError(t, err)

		specs := map[string]meta.ResourceDefinitionSpec{}
		for definition := range list.All() {
			specs[definition.TypedSpec().Type] = *definition.TypedSpec()
		}

		return specs
	}

	now, before := definitions(c), definitions(insecure(t, older))
	require.Len(t, now, 202, "with those of types and namespaces")
	require.Len(t, before, 167)

	for kind, spec := range before {
		require.Equal(t, spec.Sensitivity, now[kind].Sensitivity, kind)
	}

	for _, kind := range []string{"AuthenticationConfigs.kubernetes.talos.dev", "CustomizationConfigs.cri.talos.dev",
		"EtcdEncryptionConfigs.kubernetes.talos.dev"} {
		require.NotContains(t, before, kind)
		require.Equal(t, meta.Sensitive, now[kind].Sensitivity, kind)
	}

	require.Contains(t, before["LoadedKernelModules.runtime.talos.dev"].AllAliases, "module")
	require.NotContains(t, now["LoadedKernelModules.runtime.talos.dev"].AllAliases, "module")

	_, err := c.COSI.List(deadline(t), kindOf("storage", "LVMVolumeGroupStatuses.storage.talos.dev"))
	require.NoError(t, err)

	_, err = c.COSI.List(deadline(t), kindOf("containers", "ContainerSpecs.containers.talos.dev"))
	require.NoError(t, err)
}

func TestClaim_12_13_EverybodyReadsTheBootsID(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, on114(labcluster.Options{}))

	bootID := func(c *client.Client) (string, error) {
		found, err := safe.StateGetByID[*runtimeres.BootID](deadline(t), c.COSI, runtimeres.BootIDID)
		if err != nil {
			return "", err
		}

		return found.TypedSpec().BootID, nil
	}

	before, err := bootID(insecure(t, node))
	require.NoError(t, err)
	require.NotEmpty(t, before)

	applyOwn(t, cluster, "cp1")
	installed(t, node)

	var after string

	eventually(t, func() error { after, err = bootID(secure(t, cluster.Talosconfig(), node)); return err })
	require.NotEqual(t, before, after)

	_, older := idle(t)
	_, err = bootID(insecure(t, older))
	requireStatus(t, err, codes.PermissionDenied, `resource type "BootIDs.runtime.talos.dev" is not supported`)
}

func TestClaim_12_14_WithoutKubernetesThereIsNoKubeconfig(t *testing.T) {
	t.Parallel()

	_, _, c := atOnce114(t, func(c *v1alpha1.Config) {
		c.ClusterConfig.ClusterCA, c.ClusterConfig.ControlPlane = nil, nil
		c.ClusterConfig.ClusterServiceAccount = nil
	})

	const unnamed = "cluster name and endpoint are not configured (.cluster.controlPlane.endpoint or KubeClusterConfig " +
		"document)"

	_, err := c.Kubeconfig(deadline(t))
	requireStatus(t, err, codes.FailedPrecondition, "k8s API server CA config is not set")

	_, err = c.GenerateClientConfiguration(deadline(t), &machineapi.GenerateClientConfigurationRequest{
		Roles: []string{string(role.Reader)}, CrtTtl: durationpb.New(time.Hour),
	})
	requireStatus(t, err, codes.FailedPrecondition, unnamed)
}

func TestClaim_12_15_AKubeconfigNamesTheIssuingCAFirst(t *testing.T) {
	t.Parallel()

	other := foreignSecrets(t).Certs.K8s.Crt

	cluster, _, c := atOnce114(t, func(c *v1alpha1.Config) {
		c.ClusterConfig.ClusterAcceptedCAs = []*x509.PEMEncodedCertificate{{Crt: other}}
	})

	data, err := c.Kubeconfig(deadline(t))
	require.NoError(t, err)

	issuing := cluster.Generated.Options.Secrets.Certs.K8s.Crt
	require.Contains(t, string(data), base64.StdEncoding.EncodeToString(append(append([]byte(nil), issuing...), other...)))
}

func TestClaim_12_16_ANodeForwardsLittleOfACallersMetadata(t *testing.T) {
	t.Parallel()

	for version, want := range map[string][]string{talos114: nil, emulator.DefaultTalosVersion: {"anything"}} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()

			cluster := newCluster(t, labcluster.Options{ControlPlanes: 2, Workers: -1, Edit: func(o *emulator.NodeOptions) {
				o.TalosVersion, o.Installed = version, true
			}})

			for _, node := range cluster.Nodes {
				waitStage(t, node, "maintenance")
				applyOwn(t, cluster, node.Name())
			}

			first, second := cluster.Nodes[0], cluster.Nodes[1]
			c := secure(t, cluster.Talosconfig(), first)
			eventually(t, func() error {
				_, err := c.Version(client.WithNode(deadline(t), second.Address().String()))

				return err
			})

			_, err := c.MachineClient.Hostname(metadata.AppendToOutgoingContext(
				client.WithNode(deadline(t), second.Address().String()), "x-mine", "anything", "context", "lab"), &emptypb.Empty{})
			require.NoError(t, err)

			arrived := callsOf(second, "Hostname")
			require.Len(t, arrived, 1)
			require.Equal(t, []string{"lab"}, arrived[0].Metadata.Get("context"))
			require.Equal(t, want, arrived[0].Metadata.Get("x-mine"))
			require.Equal(t, string(role.Admin), arrived[0].Roles)
		})
	}
}

func TestClaim_12_17_TheHealthChecksOfEtcdAskForTheMachineConfig(t *testing.T) {
	t.Parallel()

	cluster, admin := checkedCluster(t, on114(labcluster.Options{CNI: "custom"}))
	require.NoError(t, cluster.Nodes[1].WaitFor(deadline(t), (*emulator.Node).Ready))

	lines, err := health(t, admin, long, nil)
	require.NoError(t, err)
	require.Contains(t, lines, "waiting for kubelet to be healthy: OK")
	require.Contains(t, lines, "waiting for all k8s nodes to report ready: SKIP", "a custom CNI is somebody else's")

	reader := signed(t, cluster, cluster.Nodes[0], x509.Organization(string(role.Reader)))
	lines = healthUntil(t, reader, nil,
		"waiting for etcd to be healthy: rpc error: code = PermissionDenied desc = not authorized")
	require.Empty(t, ends(lines))
}

func TestClaim_12_18_ADirectoryOfEphemeralIsWipedWithThat(t *testing.T) {
	t.Parallel()

	_, node, c := atOnce114(t, unchanged)

	reset := func(labels ...string) error {
		request := &machineapi.ResetRequest{Reboot: true}
		for _, label := range labels {
			request.SystemPartitionsToWipe = append(request.SystemPartitionsToWipe,
				&machineapi.ResetPartitionSpec{Label: label, Wipe: true})
		}

		return c.ResetGeneric(deadline(t), request)
	}

	for _, label := range []string{"ETCD", "KUBELET", "CRI", "LOG"} {
		err := reset(label)
		require.Equal(t, codes.Unknown, client.StatusCode(err), label)
		require.ErrorContains(t, err, `failed to reset: volume "`+label+`" resides on volume "EPHEMERAL", and therefore "`+
			label+`" cannot be wiped without wiping "EPHEMERAL"`)
	}

	boots := node.Boots()

	require.NoError(t, reset("ETCD", "EPHEMERAL"))
	require.NoError(t, node.WaitFor(deadline(t), func(n *emulator.Node) bool { return n.Boots() > boots }))
}
