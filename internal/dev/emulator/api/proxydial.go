package api

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/machine"
)

// dialNode connects to another node's API as this one, which speaks for the caller.
func (g *gatekeeper) dialNode(ctx context.Context, target string) (*grpc.ClientConn, context.Context, error) {
	address, err := g.resolveTarget(target)
	if err != nil {
		return nil, nil, status.Errorf(codes.Unavailable, "name resolver error: %s", err)
	}

	md := g.forwarded(ctx)
	md.Set(proxyFromKey, g.boot.Node.Address().String())
	md.Set(constants.APIAuthzRoleMetadataKey, rolesOf(ctx).Strings()...)

	certificate := g.api.wish.Certificate

	conn, err := grpc.NewClient("passthrough:///"+netip.AddrPortFrom(address, machine.APIPort).String(),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
			MinVersion:   tls.VersionTLS13,
			RootCAs:      certificate.Roots,
			Certificates: []tls.Certificate{*certificate.Client},
			Time:         g.boot.WallNow,
		})),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(constants.GRPCMaxMessageSize)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return g.boot.Node.NIC.Dial(ctx, netip.AddrPortFrom(address, machine.APIPort))
		}),
	)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to %s: %w", target, err)
	}

	return conn, metadata.NewOutgoingContext(ctx, md), nil
}

// forwarded is what goes along of a caller's metadata.
func (g *gatekeeper) forwarded(ctx context.Context) metadata.MD {
	all, _ := metadata.FromIncomingContext(ctx)
	kept := protocolOf(g.boot).forwarded
	md := metadata.MD{}

	for key, values := range all {
		routing := key == nodeKey || key == nodesKey || key == ":authority"
		if kept == nil && !routing || slices.Contains(kept, key) {
			md.Set(key, values...)
		}
	}

	return md
}

// resolveTarget finds the address of a forwarding target: an address, or a name of the cluster.
func (g *gatekeeper) resolveTarget(target string) (netip.Addr, error) {
	if address, err := netip.ParseAddr(target); err == nil {
		return address, nil
	}

	for _, other := range g.boot.Members.ClusterNodes() {
		if other.Config.Hostname() == target {
			return other.Node.Address(), nil
		}
	}

	return netip.Addr{}, fmt.Errorf("lookup %s: no such host", target)
}

func (g *gatekeeper) invoke(ctx context.Context, target, method string, request, reply any) error {
	conn, ctx, err := g.dialNode(ctx, target)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // the call is over

	return conn.Invoke(ctx, method, request, reply)
}
