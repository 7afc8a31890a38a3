package emulator

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Metadata keys of forwarding.
const (
	nodeKey      = "node"
	nodesKey     = "nodes"
	proxyFromKey = "proxyfrom"
)

// fanOutServices are those whose replies can be told apart by node, so that "nodes" works for them.
var fanOutServices = []string{
	"machine.MachineService", "cluster.ClusterService", "inspect.InspectService", "storage.StorageService", "time.TimeService",
}

// targets are the nodes that a call's metadata asks for. fan tells whether the answers are to be merged; none means this node itself.
func (g *gatekeeper) targets(ctx context.Context, method string) (targets []string, fan bool, err error) {
	md, _ := metadata.FromIncomingContext(ctx)

	// In maintenance mode nothing is forwarded, whatever is asked for.
	if g.api.wish.kind != apiSecure || len(md.Get(proxyFromKey)) > 0 {
		return nil, false, nil
	}

	if nodes := md.Get(nodesKey); len(nodes) > 0 {
		service := strings.Split(strings.TrimPrefix(method, "/"), "/")[0]
		if !slices.Contains(fanOutServices, service) {
			return nil, false, status.Error(codes.InvalidArgument, g.boot.node.release.fanOutRefusal(method))
		}

		targets, fan = nodes, true
	} else if node := md.Get(nodeKey); len(node) > 0 {
		if len(node) != 1 {
			return nil, false, status.Error(codes.InvalidArgument, "node metadata must be single-valued")
		}

		targets = node
	}

	if len(targets) == 0 || g.api.wish.certificate.client != nil {
		return targets, fan, nil
	}

	// A worker has no certificate to forward with: it serves itself and refuses the rest.
	if len(targets) == 1 && (targets[0] == g.boot.node.Address().String() || targets[0] == g.boot.hostname()) {
		return nil, false, nil
	}

	return nil, false, status.Error(codes.PermissionDenied, "no request forwarding")
}

// forwardUnary sends a call on to the nodes that its metadata names.
func (g *gatekeeper) forwardUnary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	targets, fan, err := g.targets(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}

	if len(targets) == 0 {
		return handler(ctx, request)
	}

	_, output, err := messagesOf(info.FullMethod)
	if err != nil {
		return nil, err
	}

	if !fan {
		reply := output.New().Interface()

		return reply, g.invoke(ctx, targets[0], info.FullMethod, request, reply)
	}

	merged := output.New()
	replies := make(chan nodeReply)

	for _, target := range targets {
		go func() {
			reply := output.New().Interface()
			err := g.invoke(ctx, target, info.FullMethod, request, reply)
			replies <- nodeReply{target, reply, err}
		}()
	}

	for range targets { // in the order in which they come
		mergeReply(merged, <-replies)
	}

	return merged.Interface(), nil
}

// nodeReply is what one node answered to a call for several.
type nodeReply struct {
	node  string
	reply proto.Message
	err   error
}

// mergeReply adds a node's messages, marked with the node's name as the caller wrote it; an error becomes a message of its own.
func mergeReply(merged protoreflect.Message, from nodeReply) {
	field := merged.Descriptor().Fields().ByName("messages")
	if field == nil || !field.IsList() {
		return
	}

	list := merged.Mutable(field).List()

	if from.err != nil {
		list.Append(protoreflect.ValueOfMessage(withMetadata(list.NewElement().Message(), errorMetadata(from.node, from.err))))

		return
	}

	source := from.reply.ProtoReflect().Get(field).List()
	for i := range source.Len() {
		list.Append(protoreflect.ValueOfMessage(withMetadata(source.Get(i).Message(), &common.Metadata{Hostname: from.node})))
	}
}

func errorMetadata(node string, err error) *common.Metadata {
	return &common.Metadata{Hostname: node, Error: err.Error(), Status: status.Convert(err).Proto()}
}

func withMetadata(message protoreflect.Message, mark *common.Metadata) protoreflect.Message {
	if field := message.Descriptor().Fields().ByName("metadata"); field != nil {
		message.Set(field, protoreflect.ValueOfMessage(mark.ProtoReflect()))
	}

	return message
}

// forwardStream is forwardUnary for streams: frames are marked, errors are frames.
func (g *gatekeeper) forwardStream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	targets, fan, err := g.targets(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}

	if len(targets) == 0 {
		return handler(service, stream)
	}

	input, output, err := messagesOf(info.FullMethod)
	if err != nil {
		return err
	}

	if info.IsClientStream {
		return status.Errorf(codes.Unimplemented, "forwarding is not supported for method %s", info.FullMethod)
	}

	request := input.New().Interface()
	if err := stream.RecvMsg(request); err != nil {
		return err
	}

	if !fan {
		return g.pump(stream.Context(), targets[0], info.FullMethod, request, output, stream.SendMsg)
	}

	frames := make(chan proto.Message)
	done := make(chan struct{})

	for _, target := range targets {
		go func() {
			defer func() { done <- struct{}{} }()

			err := g.pump(stream.Context(), target, info.FullMethod, request, output, func(frame any) error {
				if message, ok := frame.(proto.Message); ok {
					withMetadata(message.ProtoReflect(), &common.Metadata{Hostname: target})
					frames <- message
				}

				return nil
			})
			if err != nil {
				frames <- withMetadata(output.New(), errorMetadata(target, err)).Interface()
			}
		}()
	}

	var lost error

	for running := len(targets); running > 0; {
		select {
		case frame := <-frames:
			if lost == nil {
				lost = stream.SendMsg(frame)
			}
		case <-done:
			running--
		}
	}

	return lost
}

// messagesOf finds the request and reply types of a method.
func messagesOf(method string) (input, output protoreflect.MessageType, err error) {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", "."))

	found, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		return nil, nil, status.Errorf(codes.Unimplemented, "unknown method %s", method)
	}

	descriptor, ok := found.(protoreflect.MethodDescriptor)
	if !ok {
		return nil, nil, status.Errorf(codes.Unimplemented, "unknown method %s", method)
	}

	if input, err = protoregistry.GlobalTypes.FindMessageByName(descriptor.Input().FullName()); err != nil {
		return nil, nil, fmt.Errorf("find request type: %w", err)
	}

	if output, err = protoregistry.GlobalTypes.FindMessageByName(descriptor.Output().FullName()); err != nil {
		return nil, nil, fmt.Errorf("find reply type: %w", err)
	}

	return input, output, nil
}

// dialNode connects to another node's API as this one, which speaks for the caller.
func (g *gatekeeper) dialNode(ctx context.Context, target string) (*grpc.ClientConn, context.Context, error) {
	address, err := g.boot.resolveTarget(target)
	if err != nil {
		return nil, nil, status.Errorf(codes.Internal, "invalid target %q", target)
	}

	md, _ := metadata.FromIncomingContext(ctx)
	md = md.Copy()

	for _, key := range []string{nodeKey, nodesKey, ":authority"} {
		delete(md, key)
	}

	md.Set(proxyFromKey, g.boot.node.Address().String())
	md.Set(constants.APIAuthzRoleMetadataKey, rolesOf(ctx).Strings()...)

	certificate := g.api.wish.certificate

	conn, err := grpc.NewClient("passthrough:///"+netip.AddrPortFrom(address, APIPort).String(),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
			MinVersion:   tls.VersionTLS13,
			RootCAs:      certificate.roots,
			Certificates: []tls.Certificate{*certificate.client},
			Time:         g.boot.wallNow,
		})),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(constants.GRPCMaxMessageSize)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return g.boot.node.nic.dial(ctx, netip.AddrPortFrom(address, APIPort))
		}),
	)
	if err != nil {
		return nil, nil, status.Errorf(codes.Internal, "invalid target %q", target)
	}

	return conn, metadata.NewOutgoingContext(ctx, md), nil
}

// resolveTarget finds the address of a forwarding target: an address, or a name of the cluster.
func (b *boot) resolveTarget(target string) (netip.Addr, error) {
	if address, err := netip.ParseAddr(target); err == nil {
		return address, nil
	}

	for _, other := range b.clusterNodes() {
		if target != "" && other.hostname() == target {
			return other.node.Address(), nil
		}
	}

	return netip.Addr{}, errors.New("no such node")
}

func (g *gatekeeper) invoke(ctx context.Context, target, method string, request, reply any) error {
	conn, ctx, err := g.dialNode(ctx, target)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // the call is over

	return conn.Invoke(ctx, method, request, reply)
}

// pump hands every frame of another node's stream on.
func (g *gatekeeper) pump(ctx context.Context, target, method string, request proto.Message, output protoreflect.MessageType, send func(any) error) error {
	conn, ctx, err := g.dialNode(ctx, target)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // the call is over

	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return err
	}

	if err := stream.SendMsg(request); err != nil && !errors.Is(err, io.EOF) {
		return err
	}

	if err := stream.CloseSend(); err != nil {
		return err
	}

	for {
		frame := output.New().Interface()

		if err := stream.RecvMsg(frame); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}

		if err := send(frame); err != nil {
			return err
		}
	}
}
