package emulator

import (
	"context"

	"google.golang.org/grpc"
)

// forwardUnary sends a call on to the nodes that its metadata names.
func (g *gatekeeper) forwardUnary(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	return handler(ctx, request)
}

func (g *gatekeeper) forwardStream(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return handler(service, stream)
}
