package api

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/machine"
)

// Metadata keys of forwarding.
const (
	nodeKey      = "node"
	nodesKey     = "nodes"
	proxyFromKey = "proxyfrom"
)

// fanOutServices are those whose replies can be told apart by node, so that "nodes" works for them.
var fanOutServices = []string{
	"machine.MachineService", "cluster.ClusterService", "inspect.InspectService", "storage.StorageService",
	"time.TimeService",
}

// targets are the nodes that a call's metadata asks for. fan tells whether the answers are to be merged; none means
// this node itself.
func (g *gatekeeper) targets(ctx context.Context, method string) (targets []string, fan bool, err error) {
	md, _ := metadata.FromIncomingContext(ctx)

	// In maintenance mode nothing is forwarded, whatever is asked for.
	if g.api.wish.Kind != machine.SecureAPI || len(md.Get(proxyFromKey)) > 0 {
		return nil, false, nil
	}

	node, nodes := md.Get(nodeKey), md.Get(nodesKey)
	if len(node) > 1 {
		return nil, false, status.Error(codes.InvalidArgument, "node metadata must be single-valued")
	}

	// A worker has no certificate to forward with: it serves itself and refuses the rest.
	forwards := g.api.wish.Certificate.Client != nil
	if !forwards {
		node, nodes = g.othersThan(node), g.othersThan(nodes)
	}

	switch service := strings.Split(strings.TrimPrefix(method, "/"), "/")[0]; {
	case len(nodes) > 0 && !slices.Contains(fanOutServices, service):
		return nil, false, status.Error(codes.InvalidArgument, protocolOf(g.boot).fanOutRefusal(method))
	case len(nodes) > 0:
		targets, fan = nodes, true
	default:
		targets = node
	}

	if len(targets) > 0 && !forwards {
		return nil, false, status.Error(codes.PermissionDenied, "no request forwarding")
	}

	if i := slices.IndexFunc(targets, invalidTarget); i >= 0 {
		return nil, false, status.Errorf(codes.Internal, "invalid target %q", targets[i])
	}

	return targets, fan, nil
}

// othersThan takes the node itself out of a list of targets that holds nothing else.
func (g *gatekeeper) othersThan(targets []string) []string {
	if len(targets) != 1 {
		return targets
	}

	address, err := netip.ParseAddr(targets[0])
	if targets[0] == g.boot.Config.Hostname() || (err == nil && slices.Contains(g.boot.Addresses(), address)) {
		return nil
	}

	return targets
}

// invalidTarget tells of a target that can't be one: the port is always the API's.
func invalidTarget(target string) bool {
	_, _, err := net.SplitHostPort(target)

	return target == "" || err == nil
}

// forwardUnary sends a call on to the nodes that its metadata names.
func (g *gatekeeper) forwardUnary(ctx context.Context, request any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (any, error) {
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

// mergeReply adds a node's messages, marked with the node's name as the caller wrote it; an error becomes a message of
// its own.
func mergeReply(merged protoreflect.Message, from nodeReply) {
	field := merged.Descriptor().Fields().ByName("messages")
	if field == nil || !field.IsList() {
		return
	}

	list := merged.Mutable(field).List()

	if from.err != nil {
		list.Append(protoreflect.ValueOfMessage(
			withMetadata(list.NewElement().Message(), errorMetadata(from.node, from.err))))

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
