package machine

import (
	"net/netip"
	"time"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
)

// showNetworkServices shows whom the node asks for names and for the time, and how its DNS cache runs. Source: Talos
// internal/app/machined/pkg/controllers/network, resolver_spec.go, timeserver_config.go, hostdns_config.go and
// dns_upstream.go.
func (r *resources) showNetworkServices(settings talosconfig.Provider) {
	resolvers := network.NewResolverStatus(network.NamespaceName, network.ResolverID)
	resolvers.TypedSpec().DNSServers = nameServers(settings)
	r.put(resolvers)

	servers := network.NewTimeServerStatus(network.NamespaceName, network.TimeServerID)
	servers.TypedSpec().NTPServers = timeServers(settings)
	r.put(servers)

	cache := network.NewHostDNSConfig(network.HostDNSConfigID)
	spec := cache.TypedSpec()

	if declared := settings.NetworkHostDNSConfig(); declared != nil {
		spec.Enabled, spec.ResolveMemberNames = declared.HostDNSEnabled(), declared.ResolveMemberNames()

		if declared.ForwardKubeDNSToHost() {
			spec.ServiceHostDNSAddress = netip.MustParseAddr(constants.HostDNSAddress)
		}
	}

	r.put(cache)

	for _, server := range nameServers(settings) {
		upstream := network.NewDNSUpstream(server.String())
		if !spec.Enabled {
			r.remove(upstream)
			continue
		}

		upstream.TypedSpec().Value.Conn = network.NewDNSConn(asked{server, r.boot.Node})
		r.put(upstream)
	}
}

// nameServers are those that are declared, or Talos' own choice.
func nameServers(settings talosconfig.Provider) []netip.Addr {
	var servers []netip.Addr

	if declared := settings.NetworkResolverConfig(); declared != nil {
		for _, server := range declared.Resolvers() {
			servers = append(servers, server.Addr)
		}
	}

	if len(servers) > 0 {
		return servers
	}

	return []netip.Addr{netip.MustParseAddr(constants.DefaultPrimaryResolver),
		netip.MustParseAddr(constants.DefaultSecondaryResolver)}
}

// timeServers are those that are declared, or Talos' own choice.
func timeServers(settings talosconfig.Provider) []string {
	if declared := settings.NetworkTimeSyncConfig(); declared != nil && len(declared.Servers()) > 0 {
		return declared.Servers()
	}

	return []string{constants.DefaultNTPServer}
}

// asked is a name server that a machine asks.
type asked struct {
	server netip.Addr
	by     *Node
}

// Addr implements network.Proxy.
func (a asked) Addr() string { return netip.AddrPortFrom(a.server, 53).String() }

// Fails implements network.Proxy.
func (a asked) Fails() uint32 {
	if a.by.Faults().NameServersDown {
		return 1
	}

	return 0
}

// Healthcheck implements network.Proxy.
func (asked) Healthcheck() {}

// Close implements network.Proxy.
func (asked) Close() {}

// Start implements network.Proxy.
func (asked) Start(time.Duration) {}
