package api

import (
	"context"
	"strings"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/faults"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/machine"
)

// errNotAuthorized is the one answer to a caller without the role that a method needs.
var errNotAuthorized = status.Error(codes.PermissionDenied, "not authorized")

// Who may call a method; those that no list holds are for administrators.
var (
	readers   = role.MakeSet(role.Admin, role.Operator, role.Reader)
	operators = role.MakeSet(role.Admin, role.Operator)
	admins    = role.MakeSet(role.Admin)
)

// rules are the roles that may call each method.
var rules = map[string]role.Set{}

func init() { //nolint:gochecknoinits // a table that is easier to read as lists
	allow := func(roles role.Set, service string, methods ...string) {
		for _, method := range methods {
			rules["/"+service+"/"+method] = roles
		}
	}

	allow(readers, "machine.MachineService",
		// In maintenance mode everybody is a reader; the handler demands an administrator once the node is configured.
		"ApplyConfiguration",
		"CPUFreqStats", "CPUInfo", "Containers", "DiskStats", "DiskUsage", "Dmesg", "Events", "Hostname", "ImageList", "List",
		"LoadAvg", "Logs",
		"LogsContainers", "Memory", "Mounts", "Netstat", "NetworkDeviceStats", "Processes", "ServiceList", "Stats",
		"SystemStat", "Version")
	allow(operators, "machine.MachineService",
		"EtcdAlarmDisarm", "EtcdDefragment", "ImagePull", "PacketCapture", "Reboot", "Restart", "ServiceRestart",
		"ServiceStart", "ServiceStop", "Shutdown")
	allow(role.MakeSet(role.Admin, role.Operator, role.Reader, role.EtcdBackup), "machine.MachineService",
		"EtcdAlarmList", "EtcdMemberList", "EtcdStatus")
	allow(role.MakeSet(role.Admin, role.Operator, role.EtcdBackup), "machine.MachineService", "EtcdSnapshot")
	allow(role.MakeSet(role.Admin, role.MetaWriter), "machine.MachineService", "MetaDelete", "MetaWrite")

	allow(readers, "cluster.ClusterService", "HealthCheck")
	allow(readers, "inspect.InspectService", "ControllerRuntimeDependencies")
	allow(readers, "machine.ImageService", "List")
	allow(operators, "machine.ImageService", "Pull")
	allow(role.MakeSet(role.Admin, role.Operator, role.Reader, role.ImageVerifier), "machine.ImageService", "Verify")
	allow(readers, "storage.StorageService", "BlockDeviceWipe", "Disks")
	// Like BlockDeviceWipe these are for everybody in maintenance mode alone, which the handlers see to.
	allow(readers, "machine.LVMService", "LogicalVolumeRemove", "PhysicalVolumeRemove", "VolumeGroupRemove")
	allow(readers, "machine.MDService", "Destroy")
	allow(readers, "time.TimeService", "Time", "TimeCheck")
	allow(readers, "cosi.resource.State", "Get", "List", "Watch")
}

type rolesKey struct{}

// rolesOf are the caller's roles.
func rolesOf(ctx context.Context) role.Set {
	roles, ok := ctx.Value(rolesKey{}).(role.Set)
	if !ok {
		return role.Zero
	}

	return roles
}

// rolesText are the caller's roles as calls are recorded with.
func rolesText(ctx context.Context) string { return strings.Join(rolesOf(ctx).Strings(), ",") }

// gatekeeper stands before every call: it finds the caller's roles, records the call, lets faults act on it and checks
// the rules.
type gatekeeper struct {
	boot *machine.Boot
	api  *server
}

// identify finds the caller's roles: everyone reads in maintenance mode; otherwise they are in the client certificate.
func (g *gatekeeper) identify(ctx context.Context) context.Context {
	return context.WithValue(ctx, rolesKey{}, g.roles(ctx))
}

func (g *gatekeeper) roles(ctx context.Context) role.Set {
	if g.api.wish.Kind == machine.MaintenanceAPI {
		return role.MakeSet(role.Reader)
	}

	p, ok := peer.FromContext(ctx)
	if !ok {
		return role.Zero
	}

	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return role.Zero
	}

	roles, _ := role.Parse(info.State.PeerCertificates[0].Subject.Organization)

	// Another node that forwards a call says whose it is.
	if roles.Includes(role.Impersonator) {
		md, _ := metadata.FromIncomingContext(ctx)
		roles, _ = role.Parse(md.Get(constants.APIAuthzRoleMetadataKey))
	}

	return roles
}

func (g *gatekeeper) identifyUnary(ctx context.Context, request any, _ *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (any, error) {
	return handler(g.identify(ctx), request)
}

func (g *gatekeeper) identifyStream(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo,
	handler grpc.StreamHandler) error {
	return handler(service, &contextStream{ServerStream: stream, ctx: g.identify(stream.Context())})
}

// admitUnary records the call and lets it through if the caller may make it.
func (g *gatekeeper) admitUnary(ctx context.Context, request any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (reply any, err error) {
	call := g.boot.Node.Arrive(ctx, info.FullMethod, request, rolesText(ctx))
	defer func() { g.boot.Node.Recorder.End(call, err) }()

	if err = g.mishap(ctx, call, faults.BeforeEffect); err != nil {
		return nil, err
	}

	if err = g.authorize(ctx, info.FullMethod); err != nil {
		return nil, err
	}

	reply, err = g.answer(ctx, call, request, handler)

	if fault := g.mishap(ctx, call, faults.AfterEffect); fault != nil {
		// The call's own result stays in the record: it took effect.
		return nil, g.lose(call, err, fault)
	}

	return reply, err
}

// answer runs a call's handler, counted so that a listener that closes lets the answer out.
func (g *gatekeeper) answer(ctx context.Context, call *faults.Call, request any,
	handler grpc.UnaryHandler) (any, error) {
	defer g.boot.Node.Recorder.Begin(call)()

	g.api.replies.Add(1)

	defer func() {
		g.api.lastReply.Store(time.Now().UnixNano())
		g.api.replies.Add(-1)
	}()

	return handler(ctx, request)
}

// lose notes what really became of a call whose reply is lost.
func (g *gatekeeper) lose(call *faults.Call, result, fault error) error {
	g.boot.Node.Recorder.End(call, result)
	g.boot.Node.Recorder.Keep(call)

	return fault
}

func (g *gatekeeper) admitStream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler) (err error) {
	ctx := stream.Context()

	call := g.boot.Node.Arrive(ctx, info.FullMethod, nil, rolesText(ctx))
	defer func() { g.boot.Node.Recorder.End(call, err) }()

	if err = g.authorize(ctx, info.FullMethod); err != nil {
		return err
	}

	// What a stream asks for comes as its first message.
	request := &requestStream{ServerStream: stream, arrived: func(request any) error {
		g.boot.Node.Recorder.Asks(call, request)

		return g.mishap(ctx, call, faults.BeforeEffect)
	}}

	if err = handler(service, request); err != nil {
		return err
	}

	return g.mishap(ctx, call, faults.AfterEffect)
}

// requestStream tells when the first message of a stream has arrived.
type requestStream struct {
	grpc.ServerStream

	arrived func(request any) error
	begun   bool
}

// RecvMsg implements grpc.ServerStream.
func (s *requestStream) RecvMsg(message any) error {
	if err := s.ServerStream.RecvMsg(message); err != nil || s.begun {
		return err
	}

	s.begun = true

	return s.arrived(message)
}

// authorize looks the caller's roles up in the table, where there is one.
func (g *gatekeeper) authorize(ctx context.Context, method string) error {
	if g.api.door().unguarded {
		return nil
	}

	allowed, known := rules[method]
	if !known {
		allowed = admins
	}

	if !rolesOf(ctx).IncludesAny(allowed) {
		return errNotAuthorized
	}

	return nil
}

// mishap lets a fault act on a call.
func (g *gatekeeper) mishap(ctx context.Context, call *faults.Call, when faults.When) error {
	fault, found := g.boot.Node.TakeFault(call, when)
	if !found {
		return nil
	}

	line := g.api.port.Find(call.Peer)

	switch fault.Do {
	case faults.Hang:
		return hang(ctx)
	case faults.Fail:
		return status.Error(fault.Code, fault.Text)
	case faults.Freeze:
		if line != nil {
			line.Freeze()
			g.boot.Node.NIC.Hold(line)
		}

		return hang(ctx)
	default:
		if line != nil {
			line.Cut()
		}

		return errGone
	}
}

// accessPolicy decides who reads which resource, in four steps.
func accessPolicy(ctx context.Context, own state.State, access state.Access) error {
	if !access.Verb.Readonly() {
		return status.Error(codes.PermissionDenied, "write access is not allowed")
	}

	definition, err := safe.StateGet[*meta.ResourceDefinition](ctx, own,
		resource.NewMetadata(meta.NamespaceName, meta.ResourceDefinitionType, strings.ToLower(access.ResourceType),
			resource.VersionUndefined))
	if state.IsNotFoundError(err) {
		return status.Errorf(codes.PermissionDenied, "resource type %q is not supported", access.ResourceType)
	} else if err != nil {
		return err
	}

	if definition.TypedSpec().Sensitivity == meta.Sensitive && !rolesOf(ctx).Includes(role.Admin) {
		return errNotAuthorized
	}

	_, err = safe.StateGet[*meta.Namespace](ctx, own,
		resource.NewMetadata(meta.NamespaceName, meta.NamespaceType, access.ResourceNamespace, resource.VersionUndefined))
	if state.IsNotFoundError(err) {
		return status.Errorf(codes.PermissionDenied, "namespace %q is not supported", access.ResourceNamespace)
	}

	return err
}

// contextStream is a stream with another context.
type contextStream struct {
	grpc.ServerStream

	ctx context.Context //nolint:containedctx // that is what it is for
}

// Context implements grpc.ServerStream.
func (s *contextStream) Context() context.Context { return s.ctx }
