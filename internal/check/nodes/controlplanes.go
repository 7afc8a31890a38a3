package preflight

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// checkControlPlaneCount warns about numbers of control planes that bear no more losses than one fewer would.
func checkControlPlaneCount(_ context.Context, w whole) []diagnosis.Finding {
	count := len(w.cluster.ControlPlanes())

	switch {
	case count == 0:
		return nil
	case count%2 == 1:
		return w.ok(diagnosis.EvenControlPlanes, "%d control planes bear the loss of %d", count, (count-1)/2)
	}

	return w.about(nil, diagnosis.EvenControlPlanes, diagnosis.Warning,
		"use "+strconv.Itoa(count-1)+" or "+strconv.Itoa(count+1)+" control planes",
		"%d control planes bear the loss of %d, no more than %d do", count, (count-1)/2, count-1)
}

// checkTalosconfigEndpoints finds endpoints of the talosconfig that can't pass calls on. This program asks each node
// directly, other programs don't.
func checkTalosconfigEndpoints(_ context.Context, w whole) []diagnosis.Finding {
	if w.credentials == nil || len(w.credentials.Endpoints()) == 0 {
		return nil
	}

	var findings []diagnosis.Finding

	for _, endpoint := range w.credentials.Endpoints() {
		host := hostOf(endpoint)
		addresses, _ := w.names.lookup(host) // of a name that leads nowhere others tell

		if slices.ContainsFunc(addresses, func(address netip.Addr) bool { return slices.Contains(w.vips(), address) }) {
			findings = append(findings, w.about(nil, diagnosis.TalosconfigEndpoint, diagnosis.Warning,
				w.setEndpoints(), "the talosconfig's endpoint %s is the VIP: it answers only while etcd works", endpoint)...)

			continue
		}

		if owner := w.ownerOf(append([]string{host}, texts(addresses)...)); owner != nil &&
			owner.Role != inventory.ControlPlane {
			findings = append(findings, w.about(owner, diagnosis.TalosconfigEndpoint, diagnosis.Failure,
				w.setEndpoints(), "the talosconfig's endpoint %s is a worker, which passes no calls on", endpoint)...)
		}
	}

	return w.okUnless(findings, diagnosis.TalosconfigEndpoint, "no worker among the talosconfig's endpoints")
}

// setEndpoints is the command that makes the control planes the talosconfig's endpoints.
func (w whole) setEndpoints() string {
	var addresses []string

	for _, node := range w.cluster.ControlPlanes() {
		addresses = append(addresses, node.Address)
	}

	return "`talosctl config endpoint " + strings.Join(addresses, " ") + "`"
}

// hostOf takes the port off an endpoint, if it has one.
func hostOf(endpoint string) string {
	if host, _, err := net.SplitHostPort(endpoint); err == nil {
		return host
	}

	return endpoint
}
