package emulator_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	machineryapi "github.com/siderolabs/talos/pkg/machinery/api"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// methodsFor are the methods that callers with other roles than os:admin may call, by those roles. An administrator may
// call all.
var methodsFor = []struct {
	roles   []role.Role
	service string
	methods []string
}{
	{
		[]role.Role{role.Operator, role.Reader}, "machine.MachineService", []string{
			"CPUFreqStats", "CPUInfo", "Containers", "DiskStats", "DiskUsage", "Dmesg", "Events", "Hostname", "ImageList",
			"List", "LoadAvg", "Logs",
			"LogsContainers", "Memory", "Mounts", "Netstat", "NetworkDeviceStats", "Processes", "ServiceList", "Stats",
			"SystemStat", "Version",
		},
	},
	{[]role.Role{role.Operator, role.Reader}, "cluster.ClusterService", []string{"HealthCheck"}},
	{[]role.Role{role.Operator, role.Reader}, "inspect.InspectService", []string{"ControllerRuntimeDependencies"}},
	{[]role.Role{role.Operator, role.Reader}, "storage.StorageService", []string{"Disks"}},
	{[]role.Role{role.Operator, role.Reader}, "time.TimeService", []string{"Time", "TimeCheck"}},
	{[]role.Role{role.Operator, role.Reader}, "machine.ImageService", []string{"List"}},
	{[]role.Role{role.Operator, role.Reader, role.ImageVerifier}, "machine.ImageService", []string{"Verify"}},
	{[]role.Role{role.Operator}, "machine.ImageService", []string{"Pull"}},
	{[]role.Role{role.Operator, role.Reader}, "cosi.resource.State", []string{"Get", "List", "Watch"}},
	{
		[]role.Role{role.Operator, role.Reader, role.EtcdBackup}, "machine.MachineService",
		[]string{"EtcdAlarmList", "EtcdMemberList", "EtcdStatus"},
	},
	{[]role.Role{role.Operator, role.EtcdBackup}, "machine.MachineService", []string{"EtcdSnapshot"}},
	{
		[]role.Role{role.Operator}, "machine.MachineService", []string{
			"EtcdAlarmDisarm", "EtcdDefragment", "ImagePull", "PacketCapture", "Reboot", "Restart", "ServiceRestart",
			"ServiceStart", "ServiceStop", "Shutdown",
		},
	},
	{[]role.Role{role.MetaWriter}, "machine.MachineService", []string{"MetaDelete", "MetaWrite"}},
}

// openInMaintenance are the methods that readers may call in maintenance mode alone.
var openInMaintenance = []string{"/machine.MachineService/ApplyConfiguration",
	"/storage.StorageService/BlockDeviceWipe"}

// rolesFor are the roles besides os:admin that may call a method.
func rolesFor(method string) []role.Role {
	for _, row := range methodsFor {
		for _, name := range row.methods {
			if "/"+row.service+"/"+name == method {
				return row.roles
			}
		}
	}

	return nil
}

// newIn114 reports whether Talos has a method since 1.14.
func newIn114(method string) bool {
	return strings.HasPrefix(method, "/machine.LVMService/") || strings.HasPrefix(method, "/machine.MDService/") ||
		strings.HasPrefix(method, "/cosi.resource.State/Teardown")
}

// allMethods are the full names of all methods of a node's API in Talos 1.13. Shutdown comes last: it ends whatever the
// machine does.
func allMethods() []string {
	const last = "/machine.MachineService/Shutdown"

	var methods []string

	for _, file := range machineryapi.TalosAPIdAllAPIs() {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				methods = append(methods, "/"+string(service.FullName())+"/"+string(service.Methods().Get(j).Name()))
			}
		}
	}

	methods = slices.DeleteFunc(methods, func(method string) bool { return method == last || newIn114(method) })

	return append(methods, last)
}

// knock calls a method with an empty request, and looks no further than its first reply.
func knock(t *testing.T, c *client.Client, ctx context.Context, method string) error { //nolint:revive // the client comes first as a method's would
	t.Helper()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	stream, err := c.Conn().NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}

	if err := stream.SendMsg(&emptypb.Empty{}); err != nil && !errors.Is(err, io.EOF) {
		return err
	}

	if err := stream.CloseSend(); err != nil {
		return err
	}

	if err := stream.RecvMsg(&emptypb.Empty{}); !errors.Is(err, io.EOF) {
		return err
	}

	return nil
}

// requireAdmitted calls a method, and expects it to be let in, or not.
func requireAdmitted(t *testing.T, c *client.Client, method string, admitted bool) {
	t.Helper()

	if !admitted {
		err := knock(t, c, deadline(t), method)
		require.Equal(t, codes.PermissionDenied, client.StatusCode(err), "%s: %v", method, err)
		require.ErrorContains(t, err, "not authorized", method)

		return
	}

	// What is let in may take its time; nothing but a refusal counts.
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()

	err := knock(t, c, short, method)
	require.NotEqual(t, "not authorized", client.Status(err).Message(), method)
}

func TestClaim_1_03_EverybodyIsAReaderInMaintenance(t *testing.T) {
	t.Parallel()

	_, node := idle(t)
	c := insecure(t, node)

	for _, method := range allMethods() {
		t.Run(method, func(t *testing.T) {
			t.Parallel()

			requireAdmitted(t, c, method, slices.Contains(rolesFor(method), role.Reader) ||
				slices.Contains(openInMaintenance, method))
		})
	}
}

func TestClaim_3_03_RolesAreTheCertificatesOrganizations(t *testing.T) {
	t.Parallel()

	// A machine that installs for ever: hardly a call can disturb it.
	cluster, node, _ := stillInstalling(t, labcluster.Options{})

	for _, caller := range []role.Role{role.Reader, role.EtcdBackup, role.MetaWriter, role.ImageVerifier, role.Operator,
		role.Admin, ""} {
		c := signed(t, cluster, node, x509.Organization(string(caller)))

		for _, method := range allMethods() {
			if method == "/machine.MachineService/Shutdown" && caller != role.Reader {
				continue // the next callers need the machine
			}

			requireAdmitted(t, c, method, caller == role.Admin || slices.Contains(rolesFor(method), caller))
		}
	}

	requireAdmitted(t, signed(t, cluster, node, x509.Organization(string(role.Operator))),
		"/machine.MachineService/Shutdown", true)
}

func TestClaim_3_10_OnlyNodesSpeakForOthers(t *testing.T) {
	t.Parallel()

	cluster, node := waiting(t)
	as := func(wanted role.Role) context.Context {
		return metadata.AppendToOutgoingContext(deadline(t), constants.APIAuthzRoleMetadataKey, string(wanted))
	}

	_, maintenance := idle(t)
	require.Equal(t, codes.PermissionDenied,
		client.StatusCode(knock(t, insecure(t, maintenance), as(role.Admin), "/machine.MachineService/Kubeconfig")))

	reader := signed(t, cluster, node, x509.Organization(string(role.Reader)))
	require.Equal(t, codes.PermissionDenied,
		client.StatusCode(knock(t, reader, as(role.Admin), "/machine.MachineService/Kubeconfig")))

	other := signed(t, cluster, node, x509.Organization(string(role.Impersonator)))
	require.NoError(t, knock(t, other, as(role.Admin), "/machine.MachineService/Kubeconfig"))
	require.Equal(t, codes.PermissionDenied,
		client.StatusCode(knock(t, other, as(role.Reader), "/machine.MachineService/Kubeconfig")))
	require.Equal(t, codes.PermissionDenied,
		client.StatusCode(knock(t, other, deadline(t), "/machine.MachineService/Version")), "for nobody")
}
