// Package api answers the calls of a Talos node's API, as the stage and the release of its machine would.
package api

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/state"
	cosiserver "github.com/cosi-project/runtime/pkg/state/protobuf/server"
	clusterapi "github.com/siderolabs/talos/pkg/machinery/api/cluster"
	inspectapi "github.com/siderolabs/talos/pkg/machinery/api/inspect"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	storageapi "github.com/siderolabs/talos/pkg/machinery/api/storage"
	timeapi "github.com/siderolabs/talos/pkg/machinery/api/time"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/faults"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/machine"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/network"
)

// server is one listener on the API port, from open to drained.
type server struct {
	boot *machine.Boot
	wish machine.Wish
	port *network.Port
	grpc *grpc.Server // nil for an impostor

	// replies counts the unary calls that are being answered right now.
	replies atomic.Int64
	// lastReply is when the last of them was made, in nanoseconds since 1970.
	lastReply atomic.Int64
}

// Serve serves the API of a boot at an open port, or something else in its place.
func Serve(b *machine.Boot, wish machine.Wish, port *network.Port) machine.APIHandler {
	server := &server{boot: b, wish: wish, port: port}

	if wish.Kind == machine.ImpostorAPI {
		b.Tasks.Go(func() { serveImpostor(port, wish.Impostor) })
	} else {
		server.grpc = server.newGRPCServer()
		b.Tasks.Go(func() { server.grpc.Serve(port) }) //nolint:errcheck // ends when the listener closes
	}

	return server
}

// Drain implements apiHandler.
func (s *server) Drain() {
	s.port.Close() //nolint:errcheck // never fails

	if s.grpc == nil {
		s.port.Reset()

		return
	}

	drained := make(chan struct{})

	go func() {
		defer close(drained)

		s.grpc.GracefulStop()
	}()

	limit, cancel := s.boot.Node.Lab.Clock().WithTimeout(s.boot.Context, s.door().drain)
	defer cancel()

	select {
	case <-drained:
		return
	case <-limit.Done():
	}

	// In scaled time the limit can be shorter than an answer takes on its way to the client, which on a node it never is.
	patience := time.Now().Add(replyPatience)

	s.port.DropHandshakes()

	for s.answering() && time.Now().Before(patience) {
		select {
		case <-drained:
			return
		case <-time.After(replyPoll):
		}
	}

	s.port.LetGo()
	s.grpc.Stop()
	<-drained
}

// Of the wall clock: how long a drain at its limit still waits for answers that are being made, how long an answer may
// take to be written out, and how often both are looked at.
const (
	replyPatience = 2 * time.Second
	replyFlush    = 300 * time.Millisecond
	replyPoll     = 5 * time.Millisecond
)

// answering reports whether a call is being answered, or may still be on its way to the client.
func (s *server) answering() bool {
	return s.replies.Load() > 0 || time.Since(time.Unix(0, s.lastReply.Load())) < replyFlush
}

// Abort implements apiHandler.
func (s *server) Abort() {
	s.port.Abandon()

	if s.grpc != nil {
		s.grpc.Stop()
	}
}

// door is how the release that the node runs serves this API.
func (s *server) door() door {
	if s.wish.Kind == machine.MaintenanceAPI {
		return protocolOf(s.boot).maintenance
	}

	return protocolOf(s.boot).configured
}

// newGRPCServer registers the services that the node has behind this door.
func (s *server) newGRPCServer() *grpc.Server {
	config := s.boot.Certificates.MaintenanceTLS()
	if s.wish.Kind == machine.SecureAPI {
		config = s.wish.Certificate.TLSConfig(s.boot.Release.OldestTLS, s.boot.WallNow)
	}

	guard := &gatekeeper{boot: s.boot, api: s}

	server := grpc.NewServer(
		grpc.Creds(&doorman{TransportCredentials: credentials.NewTLS(config), node: s.boot.Node}),
		grpc.MaxRecvMsgSize(s.door().messageLimit),
		grpc.ChainUnaryInterceptor(guard.identifyUnary, guard.forwardUnary, guard.admitUnary),
		grpc.ChainStreamInterceptor(guard.identifyStream, guard.forwardStream, guard.admitStream),
	)

	s.door().services(s, server)

	return server
}

// serveEverything registers all services of a node.
func (s *server) serveEverything(server *grpc.Server) {
	machineapi.RegisterMachineServiceServer(server, newMachineService(s.boot))
	machineapi.RegisterImageServiceServer(server, &imageService{boot: s.boot})
	machineapi.RegisterLifecycleServiceServer(server, &lifecycleService{boot: s.boot})
	machineapi.RegisterDebugServiceServer(server, &machineapi.UnimplementedDebugServiceServer{})
	s.serveCluster(server)
	s.serveMachine(server)
}

// serveCluster registers what needs a machine config to make sense, serveMachine what does not.
func (s *server) serveCluster(server *grpc.Server) {
	clusterapi.RegisterClusterServiceServer(server, &clusterService{boot: s.boot})
	inspectapi.RegisterInspectServiceServer(server, &inspectService{})
	timeapi.RegisterTimeServiceServer(server, &timeService{boot: s.boot})
}

func (s *server) serveMachine(server *grpc.Server) {
	storageapi.RegisterStorageServiceServer(server, &storageService{boot: s.boot})
	server.RegisterService(s.stateService(),
		cosiserver.NewState(state.WrapCore(state.Filter(s.boot.Resources.State,
			func(ctx context.Context, access state.Access) error {
				return accessPolicy(ctx, s.boot.Resources.Own, access)
			}))))
}

// stateService is the API of resources with the calls that the release has.
func (s *server) stateService() *grpc.ServiceDesc {
	description := v1alpha1.State_ServiceDesc

	if !protocolOf(s.boot).tearsDown {
		description.Methods = slices.DeleteFunc(slices.Clone(description.Methods),
			func(method grpc.MethodDesc) bool { return strings.HasPrefix(method.MethodName, "Teardown") })
	}

	return &description
}

// serveImpostor plays something that is not Talos, until its listener closes.
func serveImpostor(listener net.Listener, kind faults.Impostor) {
	switch kind {
	case faults.HTTPSImpostor:
		serveHTTPS(listener)
	case faults.PlainHTTPImpostor:
		serveHTTP(listener)
	default:
		serveText(listener, kind)
	}
}

// errGone is returned to a call whose connection was cut under it.
var errGone = status.Error(codes.Unavailable, "connection cut")

// hang waits until the caller gives up, or the connection ends: at the latest with the boot, whose API closes then.
func hang(ctx context.Context) error {
	<-ctx.Done()

	return status.FromContextError(ctx.Err()).Err()
}

// doorman notes which connections are in their TLS handshake, and how the node treats those that it refuses.
type doorman struct {
	credentials.TransportCredentials

	node *machine.Node
}

// ServerHandshake implements credentials.TransportCredentials.
func (d *doorman) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if line, ok := raw.(*network.Wire); ok {
		line.Shake(d.node.Faults().ResetRefused)
		defer line.Shaken()
	}

	return d.TransportCredentials.ServerHandshake(raw)
}

// Clone implements credentials.TransportCredentials.
func (d *doorman) Clone() credentials.TransportCredentials {
	return &doorman{TransportCredentials: d.TransportCredentials.Clone(), node: d.node}
}
