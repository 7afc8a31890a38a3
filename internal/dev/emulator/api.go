package emulator

import (
	"context"
	"net"
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

	"github.com/talos-mage/talos-mage/internal/dev/emulator/certs"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/network"
)

// apiKind is how the API port is served.
type apiKind int

const (
	apiClosed apiKind = iota
	apiMaintenance
	apiSecure
	apiImpostor
)

// apiWish is what the API port should be; the server follows it.
type apiWish struct {
	kind        apiKind
	certificate *certs.API
	impostor    Impostor
}

// apiServer is one listener on the API port, from open to drained.
type apiServer struct {
	boot *boot
	wish apiWish
	port *network.Port
	grpc *grpc.Server
	gone chan struct{} // closed when every call has ended

	// replies counts the unary calls that are being answered right now.
	replies atomic.Int64
	// lastReply is when the last of them was made, in nanoseconds since 1970.
	lastReply atomic.Int64
}

// apiPort is the port that the API of a boot listens on. Guarded by boot.mu.
type apiPort struct {
	boot *boot

	ready    bool       // the API of configured nodes can be served
	current  *apiServer // the one that listens
	draining *apiServer // the one that waits for its open calls to end
}

// serve keeps the API port the way the boot wants it. Between two ways the port is closed, for as long as open calls
// take to end.
func (a *apiPort) serve() {
	a.boot.certificates.renewMaintenance()

	a.boot.tasks.Go(a.boot.certificates.keep)

	for {
		changed, nodeChanged := a.boot.changed.Wait(), a.boot.node.changed.Wait()

		a.boot.mu.Lock()
		current := a.current
		a.boot.mu.Unlock()

		want := a.wish()

		if current != nil && current.wish != want {
			a.boot.mu.Lock()
			a.current, a.draining = nil, current
			a.boot.mu.Unlock()

			current.drain()

			a.boot.mu.Lock()
			a.draining = nil
			a.boot.mu.Unlock()

			a.boot.status.refresh()

			continue
		}

		if current == nil && want.kind != apiClosed && a.boot.ctx.Err() == nil {
			a.listen(want)

			continue
		}

		select {
		case <-a.boot.ctx.Done():
			if current != nil {
				current.abort()
			}

			return
		case <-changed:
		case <-nodeChanged:
		}
	}
}

// wish is what the API port should be now.
func (a *apiPort) wish() apiWish {
	faults := a.boot.node.Faults()
	config := a.boot.config.active()

	a.boot.mu.Lock()
	defer a.boot.mu.Unlock()

	switch {
	case a.boot.phases.stopping || !a.boot.addressed || a.boot.config.withdrawn != nil:
		return apiWish{}
	case faults.Impostor != NoImpostor:
		return apiWish{kind: apiImpostor, impostor: faults.Impostor}
	case config == nil:
		return apiWish{kind: apiMaintenance}
	case a.boot.certificates.own != nil && a.ready:
		return apiWish{kind: apiSecure, certificate: a.boot.certificates.own}
	default:
		return apiWish{}
	}
}

// listen listens.
func (a *apiPort) listen(wish apiWish) {
	listener, err := a.boot.node.nic.Listen(APIPort)
	if err != nil {
		a.boot.log("failed to listen: %s", err)

		if a.boot.sleep(a.boot.ctx, time.Second) == nil {
			a.boot.status.notify()
		}

		return
	}

	server := &apiServer{boot: a.boot, wish: wish, gone: make(chan struct{})}
	server.port, _ = listener.(*network.Port)

	if wish.kind == apiImpostor {
		a.boot.tasks.Go(func() { serveImpostor(listener, wish.impostor) })
	} else {
		server.grpc = a.newGRPCServer(server)
		a.boot.tasks.Go(func() { server.grpc.Serve(listener) }) //nolint:errcheck // ends when the listener closes
	}

	a.boot.mu.Lock()
	a.current = server
	a.boot.mu.Unlock()

	a.boot.status.refresh()
}

// drain closes the port at once, waits for open calls as long as a node does, and cuts the rest.
func (s *apiServer) drain() {
	defer close(s.gone)

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

	limit, cancel := s.boot.node.lab.clock.WithTimeout(s.boot.ctx, s.door().drain)
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

	s.port.Release()
	s.port.DropHandshakes()
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
func (s *apiServer) answering() bool {
	return s.replies.Load() > 0 || time.Since(time.Unix(0, s.lastReply.Load())) < replyFlush
}

// abort ends everything without a farewell.
func (s *apiServer) abort() {
	defer close(s.gone)

	s.port.Abandon()

	if s.grpc != nil {
		s.grpc.Stop()
	}
}

// door is how the release that the node runs serves this API.
func (s *apiServer) door() door {
	if s.wish.kind == apiMaintenance {
		return s.boot.release.maintenance
	}

	return s.boot.release.configured
}

// newGRPCServer registers the services that the node has behind this door.
func (a *apiPort) newGRPCServer(api *apiServer) *grpc.Server {
	config := a.boot.certificates.maintenanceTLS()
	if api.wish.kind == apiSecure {
		config = api.wish.certificate.TLSConfig(a.boot.release.oldestTLS, a.boot.wallNow)
	}

	guard := &gatekeeper{boot: a.boot, api: api}

	server := grpc.NewServer(
		grpc.Creds(&doorman{TransportCredentials: credentials.NewTLS(config), node: a.boot.node}),
		grpc.MaxRecvMsgSize(api.door().messageLimit),
		grpc.ChainUnaryInterceptor(guard.identifyUnary, guard.forwardUnary, guard.admitUnary),
		grpc.ChainStreamInterceptor(guard.identifyStream, guard.forwardStream, guard.admitStream),
	)

	api.door().services(api, server)

	return server
}

// serveEverything registers all services of a node.
func (s *apiServer) serveEverything(server *grpc.Server) {
	machineapi.RegisterMachineServiceServer(server, newMachineService(s.boot))
	machineapi.RegisterImageServiceServer(server, &imageService{boot: s.boot})
	machineapi.RegisterLifecycleServiceServer(server, &lifecycleService{boot: s.boot})
	machineapi.RegisterDebugServiceServer(server, &machineapi.UnimplementedDebugServiceServer{})
	s.serveCluster(server)
	s.serveMachine(server)
}

// serveCluster registers what needs a machine config to make sense, serveMachine what does not.
func (s *apiServer) serveCluster(server *grpc.Server) {
	clusterapi.RegisterClusterServiceServer(server, &clusterService{boot: s.boot})
	inspectapi.RegisterInspectServiceServer(server, &inspectService{})
	timeapi.RegisterTimeServiceServer(server, &timeService{boot: s.boot})
}

func (s *apiServer) serveMachine(server *grpc.Server) {
	storageapi.RegisterStorageServiceServer(server, &storageService{boot: s.boot})
	v1alpha1.RegisterStateServer(server,
		cosiserver.NewState(state.WrapCore(state.Filter(s.boot.resources.state, s.boot.resources.accessPolicy))))
}

// serveImpostor plays something that is not Talos, until its listener closes.
func serveImpostor(listener net.Listener, kind Impostor) {
	switch kind {
	case HTTPSImpostor:
		serveHTTPS(listener)
	case PlainHTTPImpostor:
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

	node *Node
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
