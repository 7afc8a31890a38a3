package emulator_test

import (
	"context"
	"crypto/tls"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// alone is a cluster of one control plane, in maintenance mode.
func alone(t *testing.T, options labcluster.Options) (*labcluster.Cluster, *emulator.Node) {
	t.Helper()

	options.ControlPlanes, options.Workers = 1, -1
	cluster := newCluster(t, options)
	waitStage(t, cluster.Nodes[0], "maintenance")

	return cluster, cluster.Nodes[0]
}

// handshake connects with TLS and tells whether the node asked for a client certificate.
func handshake(t *testing.T, node *emulator.Node, version uint16) (tls.ConnectionState, bool, error) {
	t.Helper()

	asked := false

	conn, err := tls.Dial("tcp", node.Endpoint(), &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // the test looks at the certificate itself
		NextProtos:         []string{"h2"},
		MaxVersion:         version,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			asked = true

			return &tls.Certificate{}, nil
		},
	})
	if err != nil {
		return tls.ConnectionState{}, asked, err
	}
	defer conn.Close() //nolint:errcheck // the handshake is over

	return conn.ConnectionState(), asked, nil
}

func TestClaim_1_01_MaintenanceAsksForNoClientCertificate(t *testing.T) {
	t.Parallel()

	_, node := alone(t, labcluster.Options{})

	state, asked, err := handshake(t, node, tls.VersionTLS13)
	require.NoError(t, err)
	require.False(t, asked)
	require.Equal(t, "h2", state.NegotiatedProtocol)
	require.Len(t, state.PeerCertificates, 1, "the leaf alone is sent")
	require.Equal(t, "maintenance-service.talos.dev", state.PeerCertificates[0].Subject.CommonName)
	require.NoError(t, state.PeerCertificates[0].VerifyHostname(node.Address().String()))

	_, _, err = handshake(t, node, tls.VersionTLS12)
	require.ErrorContains(t, err, "protocol version")
}

func TestClaim_1_02_FingerprintChangesAtTimeSyncAndAtBoot(t *testing.T) {
	t.Parallel()

	_, node := alone(t, labcluster.Options{})
	seen := map[string]bool{}

	look := func() {
		state, _, err := handshake(t, node, tls.VersionTLS13)
		require.NoError(t, err)

		seen[x509.SPKIFingerprint(state.PeerCertificates[0]).String()] = true
	}

	eventually(t, func() error { return timeSynced(t, node) })
	look()

	node.PowerOff()
	node.PowerOn()
	require.NoError(t, node.WaitFor(deadline(t),
		func(n *emulator.Node) bool { return n.Boots() == 2 && n.Stage() == "maintenance" }))
	eventually(t, func() error { return timeSynced(t, node) })
	look()
	require.Len(t, seen, 2)

	node.Set(func(f *emulator.Faults) { f.TimeUnsynced = true })
	eventually(t, func() error { look(); return until(len(seen) >= 3) })
}

func TestClaim_1_05_UnknownMethodsAreUnimplemented(t *testing.T) {
	t.Parallel()

	_, node := alone(t, labcluster.Options{})

	err := insecure(t, node).Conn().Invoke(deadline(t), "/machine.MachineService/GenerateConfiguration", &emptypb.Empty{},
		&emptypb.Empty{})
	require.Equal(t, codes.Unimplemented, client.StatusCode(err))
	require.ErrorContains(t, err, "unknown method GenerateConfiguration for service machine.MachineService")

	err = insecure(t, node).Conn().Invoke(deadline(t), "/machine.NoService/Version", &emptypb.Empty{}, &emptypb.Empty{})
	require.Equal(t, codes.Unimplemented, client.StatusCode(err))
	require.ErrorContains(t, err, "unknown service machine.NoService")
}

func TestClaim_1_06_ForwardingIsIgnoredInMaintenance(t *testing.T) {
	t.Parallel()

	_, node := alone(t, labcluster.Options{})

	for _, key := range []string{"node", "nodes"} {
		ctx := metadata.AppendToOutgoingContext(deadline(t), key, "no such machine")
		_, err := insecure(t, node).MachineClient.Version(ctx, &emptypb.Empty{})
		require.NoError(t, err)
	}
}

func TestClaim_1_07_VersionTellsNoFeaturesInMaintenance(t *testing.T) {
	t.Parallel()

	_, node := alone(t, labcluster.Options{})

	reply, err := insecure(t, node).Version(deadline(t))
	require.NoError(t, err)
	require.Equal(t, emulator.DefaultTalosVersion, reply.GetMessages()[0].GetVersion().GetTag())
	require.Equal(t, "metal", reply.GetMessages()[0].GetPlatform().GetMode())
	require.Nil(t, reply.GetMessages()[0].GetFeatures())
	require.Nil(t, reply.GetMessages()[0].GetMetadata())
}

func TestClaim_1_09_MissingResourcesAreNotFound(t *testing.T) {
	t.Parallel()

	_, node := alone(t, labcluster.Options{})
	c := insecure(t, node)

	_, err := safe.StateGetByID[*block.SystemDisk](deadline(t), c.COSI, block.SystemDiskID)
	require.True(t, state.IsNotFoundError(err))
	require.Equal(t, codes.Unknown, client.StatusCode(err))

	_, err = safe.StateGetByID[*network.HostnameStatus](deadline(t), c.COSI, network.HostnameID)
	require.True(t, state.IsNotFoundError(err), "no host name before there is a config")
}

func TestClaim_1_10_HardwareIsReadableInMaintenance(t *testing.T) {
	t.Parallel()

	_, node := alone(t, labcluster.Options{Edit: func(o *emulator.NodeOptions) {
		o.UUID = "00000000-1111-4222-8333-444444444444"
		o.SecureBoot = true
		o.Disks = []emulator.Disk{{Name: "nvme0n1", Size: 1 << 40, Model: "Example 970", Transport: "nvme",
			Volumes: []emulator.Volume{{Filesystem: "ntfs", Label: "Data"}}}}
	}})
	c := insecure(t, node)
	ctx := deadline(t)

	system, err := safe.StateGetByID[*hardware.SystemInformation](ctx, c.COSI, hardware.SystemInformationID)
	require.NoError(t, err)
	require.Equal(t, "00000000-1111-4222-8333-444444444444", system.TypedSpec().UUID)

	disk, err := safe.StateGetByID[*block.Disk](ctx, c.COSI, "nvme0n1")
	require.NoError(t, err)
	require.Equal(t, "Example 970", disk.TypedSpec().Model)

	volume, err := safe.StateGetByID[*block.DiscoveredVolume](ctx, c.COSI, "nvme0n1p1")
	require.NoError(t, err)
	require.Equal(t, "ntfs", volume.TypedSpec().Name)

	link, err := safe.StateGetByID[*network.LinkStatus](ctx, c.COSI, "eth0")
	require.NoError(t, err)
	require.True(t, link.TypedSpec().Physical())
	require.NotEmpty(t, link.TypedSpec().PermanentAddr)

	security, err := safe.StateGetByID[*runtimeres.SecurityState](ctx, c.COSI, runtimeres.SecurityStateID)
	require.NoError(t, err)
	require.True(t, security.TypedSpec().SecureBoot)

	version, err := safe.StateGetByID[*runtimeres.Version](ctx, c.COSI, "version")
	require.NoError(t, err)
	require.Equal(t, emulator.DefaultTalosVersion, version.TypedSpec().Version)

	kind, err := safe.StateGetByID[*config.MachineType](ctx, c.COSI, config.MachineTypeID)
	require.NoError(t, err)
	require.Equal(t, "unknown", kind.MachineType().String())
}

func TestClaim_1_11_MaintenanceIsReadyAndHasTheEarlyServices(t *testing.T) {
	t.Parallel()

	_, node := alone(t, labcluster.Options{})
	c := insecure(t, node)

	eventually(t, func() error {
		status, err := safe.StateGetByID[*runtimeres.MachineStatus](deadline(t), c.COSI, runtimeres.MachineStatusID)
		if err != nil {
			return err
		}

		require.Equal(t, runtimeres.MachineStageMaintenance, status.TypedSpec().Stage)

		return until(status.TypedSpec().Status.Ready)
	})

	list, err := c.ServiceList(deadline(t))
	require.NoError(t, err)

	var ids []string
	for _, service := range list.GetMessages()[0].GetServices() {
		ids = append(ids, service.GetId())
	}

	require.Equal(t, []string{"apid", "auditd", "containerd", "dashboard", "machined", "syslogd", "udevd"}, ids)
}

func TestClaim_1_12_AnybodyMayWipeDisksInMaintenance(t *testing.T) {
	t.Parallel()

	_, node := alone(t, labcluster.Options{})
	err := insecure(t, node).BlockDeviceWipe(deadline(t), wipe("vda"))
	require.NoError(t, err)

	err = insecure(t, node).BlockDeviceWipe(deadline(t), wipe("nope"))
	require.Equal(t, codes.NotFound, client.StatusCode(err))
}

func timeSynced(t *testing.T, node *emulator.Node) error {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), labcluster.Deadline)
	defer cancel()

	return synced(ctx, insecure(t, node))
}
