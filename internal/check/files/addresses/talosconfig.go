package addresses

import (
	"context"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// checkTalosconfigEndpoints finds endpoints of the talosconfig that can't pass calls on. This program asks each node
// directly, other programs don't.
func checkTalosconfigEndpoints(ctx context.Context, r *check.Report, in *check.Input) {
	if len(in.Credentials.Endpoints()) == 0 {
		return
	}

	for _, endpoint := range in.Credentials.Endpoints() {
		host := check.EndpointHost(endpoint)
		addresses, _ := in.Lookup(ctx, host) // of a name that leads nowhere others tell
		place := in.TalosconfigEndpoint(endpoint)

		if slices.ContainsFunc(addresses, in.IsVIP) {
			r.About(nil).Warn(place, setEndpoints(in),
				"the talosconfig's endpoint %s is the VIP: it answers only while etcd works", endpoint)

			continue
		}

		if owner := in.OwnerOf(append([]string{host}, check.Texts(addresses)...)); owner != nil &&
			owner.Role != inventory.ControlPlane {
			r.About(owner).Found(place, setEndpoints(in),
				"the talosconfig's endpoint %s is a worker, which passes no calls on", endpoint)
		}
	}

	r.About(nil).Passed(diagnosis.TalosconfigEndpoint, "no worker among the talosconfig's endpoints")
}

// setEndpoints is the command that makes the control planes the talosconfig's endpoints.
func setEndpoints(in *check.Input) string {
	words := []string{"talosctl", "config", "endpoint"}
	for _, node := range in.Cluster.ControlPlanes() {
		words = append(words, node.Address)
	}

	return "`" + strings.Join(words, " ") + "`"
}
