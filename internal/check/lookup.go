package check

import (
	"context"
	"errors"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/fanout"
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

// Lookup gives the addresses of a host of the files: itself when it is one, none when names are not to be looked up.
// The endpoint, the nodes that are declared by name and the talosconfig's endpoints are looked up all at once: where
// DNS is down, each takes its time.
func (in *Input) Lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if address, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{address.Unmap()}, nil
	}

	found := Once(in, func(in *Input) names { return resolveNames(ctx, in) })[host]

	return found.addresses, found.err
}

func resolveNames(ctx context.Context, in *Input) names {
	if in.Options.Checks.LookupHost == nil {
		return nil
	}

	hosts := hostNames(in)

	found := fanout.Collect(ctx, lookupLimit, hosts,
		func(ctx context.Context, host string) resolved {
			addresses, err := in.Options.Checks.LookupHost(ctx, host)
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
func hostNames(in *Input) []string {
	var hosts []string

	if in.Credentials != nil {
		for _, endpoint := range in.Credentials.Endpoints() {
			hosts = append(hosts, EndpointHost(endpoint))
		}
	}

	if in.Cluster.Endpoint != nil {
		hosts = append(hosts, in.Cluster.Endpoint.Hostname())
	}

	for _, node := range in.Cluster.Nodes {
		hosts = append(hosts, node.Address)
	}

	slices.Sort(hosts)

	return slices.DeleteFunc(slices.Compact(hosts), func(host string) bool {
		_, err := netip.ParseAddr(host)

		return host == "" || err == nil
	})
}

// vips are the virtual addresses that the inventory and the machine configs of the control planes declare.
type vips []netip.Addr

// VIPs are the virtual addresses that the inventory and the machine configs of the control planes declare.
func (in *Input) VIPs() []netip.Addr {
	return Once(in, func(in *Input) vips {
		var found vips

		for _, node := range in.Cluster.ControlPlanes() {
			found = append(found, node.VIPs...)

			if config := in.ConfigOf(node); config != nil {
				found = append(found, config.VIPs()...)
			}
		}

		slices.SortFunc(found, netip.Addr.Compare)

		return slices.Compact(found)
	})
}

// IsVIP reports whether an address is one of them.
func (in *Input) IsVIP(addr netip.Addr) bool { return slices.Contains(in.VIPs(), addr) }

// TheVIP stands for a node's name where an address is that of several.
const TheVIP = "VIP"

// owner is whose a name or an address is. It has no node where it is the VIP's, or a machine config's alone.
type owner struct {
	name string
	node *inventory.Node
}

// owners are those of all addresses, hostnames and virtual addresses, in lower case.
type owners map[string]owner

// NodeAt is the name of the node that is called so or is there; empty for none.
func (in *Input) NodeAt(host string) string { return Once(in, findOwners)[strings.ToLower(host)].name }

// OwnerOf finds the node that one of these names or addresses belongs to; nil for none.
func (in *Input) OwnerOf(hosts []string) *inventory.Node {
	for _, host := range hosts {
		if node := Once(in, findOwners)[strings.ToLower(host)].node; node != nil {
			return node
		}
	}

	return nil
}

func findOwners(in *Input) owners {
	owners := owners{}

	for _, config := range in.Configs {
		own := owner{name: config.Name}
		if len(config.Nodes) > 0 {
			own.node = config.Nodes[0]
		}

		for _, addr := range config.Addresses() {
			owners[addr.Addr().Unmap().String()] = own
		}

		for _, vip := range config.VIPs() {
			owners[vip.String()] = owner{name: TheVIP}
		}
	}

	if in.Cluster == nil {
		return owners
	}

	for _, node := range in.Cluster.Nodes {
		own := owner{name: node.Name, node: node}

		for _, addr := range AddressesOf(node, nil) {
			owners[addr.String()] = own
		}

		owners[strings.ToLower(node.Address)] = own

		if node.Hostname != "" && !node.IgnoreHostname {
			owners[strings.ToLower(node.Hostname)] = own
		}
	}

	delete(owners, "")

	return owners
}

// EndpointHost takes the port and the brackets off an endpoint.
func EndpointHost(endpoint string) string {
	if parsed, err := netip.ParseAddrPort(endpoint); err == nil {
		return parsed.Addr().String()
	}

	if _, err := netip.ParseAddr(endpoint); err == nil {
		return endpoint
	}

	if parsed, err := url.Parse("//" + endpoint); err == nil {
		return parsed.Hostname()
	}

	return endpoint
}
