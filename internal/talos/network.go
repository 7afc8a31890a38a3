package talos

import (
	"context"
	"errors"
	"fmt"

	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"go.yaml.in/yaml/v4"
)

// HostDNS is how a node's DNS cache runs.
type HostDNS struct{ Enabled, ForKubernetes, ResolvesMembers bool }

// HostDNS reads how the DNS cache runs; off where the node has none.
func (c *Conn) HostDNS(ctx context.Context) (HostDNS, error) {
	found, err := get[*network.HostDNSConfig](ctx, c, network.NewHostDNSConfig(network.HostDNSConfigID).Metadata())

	switch {
	case errors.Is(err, ErrNotFound):
		return HostDNS{}, nil
	case err != nil:
		return HostDNS{}, err
	}

	spec := found.TypedSpec()

	return HostDNS{Enabled: spec.Enabled, ForKubernetes: spec.ServiceHostDNSAddress.IsValid(),
		ResolvesMembers: spec.ResolveMemberNames}, nil
}

// Resolvers reads the name servers that the node asks.
func (c *Conn) Resolvers(ctx context.Context) ([]string, error) {
	found, err := get[*network.ResolverStatus](ctx, c,
		network.NewResolverStatus(network.NamespaceName, network.ResolverID).Metadata())
	if err != nil {
		return nil, err
	}

	// Releases before Talos 1.14 have no other list.
	listed := found.TypedSpec().DNSServers //nolint:staticcheck // as above

	servers := make([]string, 0, len(listed))
	for _, server := range listed {
		servers = append(servers, server.String())
	}

	return servers, nil
}

// TimeServers reads the time servers that the node asks.
func (c *Conn) TimeServers(ctx context.Context) ([]string, error) {
	found, err := get[*network.TimeServerStatus](ctx, c,
		network.NewTimeServerStatus(network.NamespaceName, network.TimeServerID).Metadata())
	if err != nil {
		return nil, err
	}

	return found.TypedSpec().NTPServers, nil
}

// Upstream is a name server that the node's DNS cache asks.
type Upstream struct {
	Address string
	Healthy bool
}

// Upstreams reads whom the DNS cache asks, and who of them answers it. They can be read as YAML alone.
func (c *Conn) Upstreams(ctx context.Context) ([]Upstream, error) {
	var upstreams []Upstream

	err := c.read(ctx, OpRead, func(ctx context.Context) error {
		found, err := safe.StateList[*protobuf.Resource](ctx, c.api.COSI, network.NewDNSUpstream("").Metadata(),
			state.WithListUnmarshalOptions(state.WithSkipProtobufUnmarshal()))
		if err != nil {
			return err
		}

		for shown := range found.All() {
			upstream, err := upstreamOf(shown)
			if err != nil {
				return err
			}

			upstreams = append(upstreams, upstream)
		}

		return nil
	})

	return upstreams, err
}

func upstreamOf(shown *protobuf.Resource) (Upstream, error) {
	text, err := yaml.Marshal(shown.Spec())
	if err != nil {
		return Upstream{}, fmt.Errorf("read DNS upstream: %w", err)
	}

	var spec struct {
		Healthy string `yaml:"healthy"`
		Addr    string `yaml:"addr"`
	}

	if err := yaml.Unmarshal(text, &spec); err != nil {
		return Upstream{}, fmt.Errorf("read DNS upstream: %w", err)
	}

	return Upstream{Address: spec.Addr, Healthy: spec.Healthy == "true"}, nil
}
