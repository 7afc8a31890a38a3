package talos

import (
	"fmt"

	"google.golang.org/grpc/resolver"
)

// plainResolver takes the place of gRPC's DNS resolver in a Conn: the dialer gets the name as it is. A node is then one
// address for gRPC, a proxy gets to resolve names itself, and a name that doesn't resolve ends in an error that says
// so.
type plainResolver struct{}

func (plainResolver) Scheme() string { return "dns" }

func (plainResolver) Build(target resolver.Target, conn resolver.ClientConn,
	_ resolver.BuildOptions) (resolver.Resolver, error) {
	if err := conn.UpdateState(resolver.State{Addresses: []resolver.Address{{Addr: target.Endpoint()}}}); err != nil {
		return nil, fmt.Errorf("pass on address: %w", err)
	}

	return plainResolver{}, nil
}

func (plainResolver) ResolveNow(resolver.ResolveNowOptions) {}

func (plainResolver) Close() {}
