package preflight

import (
	"context"
	"net/netip"
	"net/url"
	"slices"
	"strconv"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// defaultAPIServerPort is where a control plane serves the Kubernetes API unless its machine config says otherwise.
const defaultAPIServerPort = 6443

// checkEndpoint judges the URL through which every node will reach the Kubernetes API.
func checkEndpoint(_ context.Context, w whole) []diagnosis.Finding {
	endpoint := w.cluster.Endpoint
	next := w.regenerate("correct endpoint")

	switch {
	case endpoint == nil || endpoint.Hostname() == "":
		return w.about(nil, diagnosis.EndpointUnusable, diagnosis.Failure, next, "the endpoint has no host")
	case endpoint.Scheme != "https":
		return w.about(nil, diagnosis.EndpointUnusable, diagnosis.Failure, next, "the endpoint %s is not https",
			endpoint.Redacted())
	}

	host := endpoint.Hostname()

	addresses, err := w.names.lookup(host)
	if err != nil {
		return w.unresolved(endpoint, host)
	}

	owner := w.ownerOf(append([]string{host}, texts(addresses)...))

	switch {
	case owner != nil && owner.Role != inventory.ControlPlane:
		return w.about(owner, diagnosis.EndpointUnusable, diagnosis.Failure, next,
			"the endpoint %s leads to a worker: it has no Kubernetes API", endpoint.Redacted())
	case owner != nil:
		return w.portOf(endpoint, "the control plane "+owner.Name)
	case slices.ContainsFunc(addresses, func(address netip.Addr) bool { return slices.Contains(w.vips(), address) }):
		return w.portOf(endpoint, "the VIP")
	default:
		return w.about(nil, diagnosis.EndpointElsewhere, diagnosis.OK, "",
			"the endpoint %s is neither the VIP nor a control plane: it is taken for a balancer, which has to forward to "+
				"port %d of the control planes",
			endpoint.Redacted(), defaultAPIServerPort)
	}
}

// unresolved is a name that leads nowhere. It is not in the files, so a later run may find it.
func (w whole) unresolved(endpoint *url.URL, host string) []diagnosis.Finding {
	finding := w.about(nil, diagnosis.EndpointUnusable, diagnosis.Failure,
		"add a DNS record for "+host+", or "+w.regenerate("correct endpoint"),
		"the endpoint %s: %s does not resolve", endpoint.Redacted(), host)
	finding[0].Exit = diagnosis.ExitPreflight

	return finding
}

// portOf compares the endpoint's port with the one that control planes serve, where no balancer translates it.
func (w whole) portOf(endpoint *url.URL, what string) []diagnosis.Finding {
	serves := defaultAPIServerPort

	for node, config := range w.each() {
		if node.Role == inventory.ControlPlane {
			serves = config.Provider.Cluster().LocalAPIServerPort()

			break
		}
	}

	if port := orElse(endpoint.Port(), "443"); port != strconv.Itoa(serves) {
		return w.about(nil, diagnosis.EndpointUnusable, diagnosis.Failure, w.regenerate("correct the endpoint's port"),
			"the endpoint %s is %s, where the Kubernetes API has port %d, not %s", endpoint.Redacted(), what, serves, port)
	}

	return w.ok(diagnosis.EndpointUnusable, "the endpoint %s is %s", endpoint.Redacted(), what)
}

// ownerOf finds the node that one of these names or addresses belongs to.
func (w whole) ownerOf(hosts []string) *inventory.Node {
	for _, node := range w.cluster.Nodes {
		own := append(texts(addressesOf(node, w.configs[node.Name])), node.Address, node.Hostname)

		if slices.ContainsFunc(hosts, func(host string) bool { return host != "" && slices.Contains(own, host) }) {
			return node
		}
	}

	return nil
}
