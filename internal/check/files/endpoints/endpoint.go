package endpoints

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// defaultAPIServerPort is where a control plane serves the Kubernetes API unless its machine config says otherwise.
const defaultAPIServerPort = 6443

// httpsPort is what clients use for a URL without a port.
const httpsPort = 443

// aboutEndpoint are the rows about the URL of the Kubernetes API.
func aboutEndpoint() []check.Check {
	rows := check.Several(check.Endpoints, diagnosis.NeedsTalconfig, checkEndpoint, diagnosis.EndpointUnusable,
		diagnosis.EndpointElsewhere)

	for i := range rows {
		rows[i] = rows[i].IdleIf(func(in *check.Input) string {
			if in.Cluster.Endpoint == nil {
				return "the inventory has no endpoint that can be read"
			}

			return ""
		})
	}

	return rows
}

// checkEndpoint judges the URL through which every node will reach the Kubernetes API.
func checkEndpoint(ctx context.Context, r *check.Report, in *check.Input) {
	r.As(diagnosis.EndpointUnusable)

	endpoint, place, next := in.Cluster.Endpoint, in.Declared("endpoint"), in.Regenerate("correct endpoint")

	switch {
	case endpoint == nil:
		return // whoever reads the file says why
	case endpoint.Hostname() == "":
		r.Found(place, next, "the endpoint has no host")

		return
	case endpoint.Scheme != "https":
		r.Found(place, next, "the endpoint %s is not https", endpoint.Redacted())

		return
	}

	host := endpoint.Hostname()

	addresses, err := in.Lookup(ctx, host)
	if err != nil {
		r.Found(place, "add a DNS record for "+host+", or "+next, "the endpoint %s: %s does not resolve",
			endpoint.Redacted(), host)
		r.Last().Exit = diagnosis.ExitPreflight // it is not in the files, so a later run may find it

		return
	}

	owner := in.OwnerOf(append([]string{host}, check.Texts(addresses)...))

	switch {
	case owner != nil && owner.Role != inventory.ControlPlane:
		r.About(owner).Found(place, next, "the endpoint %s leads to a worker: it has no Kubernetes API", endpoint.Redacted())
	case owner != nil:
		checkPort(r, in, "the control plane "+owner.Name)
	case slices.ContainsFunc(addresses, in.IsVIP):
		checkPort(r, in, "the VIP")
	default:
		serves, _ := servedPort(in)
		r.As(diagnosis.EndpointElsewhere).Seen(
			"the endpoint %s is neither the VIP nor a control plane: it is taken for a balancer, which has to forward to "+
				"port %d of the control planes", endpoint.Redacted(), serves)
	}
}

// servedPort is where the control planes serve the Kubernetes API; false if none of their machine configs is known.
func servedPort(in *check.Input) (int, bool) {
	for _, node := range in.Cluster.ControlPlanes() {
		if config := in.ConfigOf(node); config != nil {
			return config.APIServer().APIPort(), true
		}
	}

	return defaultAPIServerPort, false
}

// checkPort compares the endpoint's port with the one that control planes serve, where no balancer translates it.
func checkPort(r *check.Report, in *check.Input, what string) {
	endpoint := in.Cluster.Endpoint
	serves, known := servedPort(in)

	if port := cmp.Or(endpoint.Port(), strconv.Itoa(httpsPort)); known && port != strconv.Itoa(serves) {
		r.Found(in.Declared("endpoint"), in.Regenerate("correct the endpoint's port"),
			"the endpoint %s is %s, where the Kubernetes API has port %d, not %s", endpoint.Redacted(), what, serves, port)

		return
	}

	r.Seen("the endpoint %s is %s", endpoint.Redacted(), what)
}
