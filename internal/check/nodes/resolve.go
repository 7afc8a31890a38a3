package preflight

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/fanout"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// lookupLimit bounds how many names are looked up at once.
const lookupLimit = 32

var errNoAddress = errors.New("the name has no address")

// resolved is what a name leads to.
type resolved struct {
	addresses []netip.Addr
	err       error
}

// names are the DNS names of a cluster's files, looked up once.
type names map[string]resolved

// resolveNames looks up the endpoint, the nodes that are declared by name and the talosconfig's endpoints, all at once:
// where DNS is down, each takes its time.
func resolveNames(ctx context.Context, cluster *inventory.Cluster, credentials *talos.Credentials,
	options Options) names {
	if options.LookupHost == nil {
		return nil
	}

	hosts := hostNames(cluster, credentials)

	found := fanout.Collect(ctx, lookupLimit, hosts,
		func(ctx context.Context, host string) resolved {
			addresses, err := options.LookupHost(ctx, host)
			if err == nil && len(addresses) == 0 {
				err = errNoAddress
			}

			for i := range addresses {
				addresses[i] = addresses[i].Unmap()
			}

			return resolved{addresses: addresses, err: err}
		},
		func(_ string, err error) resolved { return resolved{err: err} })

	byHost := make(names, len(hosts))

	for i, host := range hosts {
		byHost[host] = found[i]
	}

	return byHost
}

// hostNames are the names, not addresses, by which the inventory calls the endpoint and its nodes, and the talosconfig
// its endpoints.
func hostNames(cluster *inventory.Cluster, credentials *talos.Credentials) []string {
	var hosts []string

	if credentials != nil {
		for _, endpoint := range credentials.Endpoints() {
			hosts = append(hosts, hostOf(endpoint))
		}
	}

	if cluster.Endpoint != nil {
		hosts = append(hosts, cluster.Endpoint.Hostname())
	}

	for _, node := range cluster.Nodes {
		hosts = append(hosts, node.Address)
	}

	slices.Sort(hosts)

	return slices.DeleteFunc(slices.Compact(hosts), func(host string) bool {
		_, err := netip.ParseAddr(host)

		return host == "" || err == nil
	})
}

// lookup gives the addresses of a host: itself when it is one, none when names were not to be looked up.
func (n names) lookup(host string) ([]netip.Addr, error) {
	if address, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{address.Unmap()}, nil
	}

	found := n[host]

	return found.addresses, found.err
}
