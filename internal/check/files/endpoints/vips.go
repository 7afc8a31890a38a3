package endpoints

import (
	"context"
	"net/netip"
	"slices"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// checkVIP judges where each VIP lies: within the static subnets of every control plane, and on nobody's address.
// Control planes that get addresses from the network are judged once they answered.
func checkVIP(_ context.Context, r *check.Report, in *check.Input) {
	vips := in.VIPs()
	if len(vips) == 0 {
		return
	}

	for _, vip := range vips {
		checkVIPTaken(r.As(diagnosis.VIPTaken), in, vip)

		for _, node := range in.Cluster.ControlPlanes() {
			config := in.ConfigOf(node)
			if config == nil || CanTake(config, vip, config.Addresses()) || MayGetSubnet(config, vip) {
				continue
			}

			r.As(diagnosis.VIPOutsideSubnet).About(node).Found(vipPlace(in, node, vip),
				in.Regenerate("choose a VIP within the control planes' subnet"), "%s", OutsideSubnets(vip, config.Addresses()))
		}
	}

	r.About(nil).Passed(diagnosis.VIPOutsideSubnet, "the VIP %s lies in the control planes' subnet", check.Join(vips))
}

// CanTake reports whether a node with these addresses can take a VIP over: it lies in a subnet of theirs or of its
// link, or a cloud's API sends it to the node.
func CanTake(config *check.Rendered, vip netip.Addr, addresses []netip.Prefix) bool {
	return check.AnyContains(addresses, vip) || slices.ContainsFunc(config.Links(), func(link *check.Link) bool {
		return slices.ContainsFunc(link.VIPs, func(on check.VIP) bool {
			return on.Addr == vip && (on.ByCloud || config.HasSubnetOf(link, vip))
		})
	})
}

// OutsideSubnets says that a VIP is in no subnet of a node.
func OutsideSubnets(vip netip.Addr, addresses []netip.Prefix) string {
	subnets := make([]netip.Prefix, 0, len(addresses))
	for _, address := range addresses {
		subnets = append(subnets, address.Masked())
	}

	return "the VIP " + vip.String() + " is outside the node's subnets (" + check.Join(subnets) +
		"): it could never take it over"
}

// vipPlace is where a node declares a VIP: in its machine config, or with its interfaces in the inventory.
func vipPlace(in *check.Input, node *inventory.Node, vip netip.Addr) check.Place {
	if config := in.ConfigOf(node); config != nil {
		if place, known := in.VIPPlace(config, vip); known {
			return place
		}
	}

	return in.Entry(node, "networkInterfaces")
}

// checkVIPTaken finds who else has the VIP.
func checkVIPTaken(r *check.Report, in *check.Input, vip netip.Addr) {
	next := in.Regenerate("choose a free address as VIP")

	for _, node := range in.Cluster.Nodes {
		config := in.ConfigOf(node)

		switch {
		case slices.Contains(check.AddressesOf(node, config), vip):
			r.About(node).Found(vipPlace(in, node, vip), next, "the VIP %s is the node's own address", vip)
		case config != nil && slices.Contains(config.Gateways(), vip):
			r.About(node).Found(vipPlace(in, node, vip), next, "the VIP %s is the node's gateway", vip)
		}
	}
}

// MayGetSubnet reports whether a node may still get an address of a VIP's family from the network: by DHCP, or where
// none is static.
func MayGetSubnet(config *check.Rendered, vip netip.Addr) bool {
	static := slices.ContainsFunc(config.Addresses(),
		func(address netip.Prefix) bool { return address.Addr().Is4() == vip.Is4() })

	return !static || config.UsesDHCP() && !isOnStaticLink(config, vip)
}

// checkVIPAnswers asks who answers on each VIP. Nobody should yet, or this cluster's own Kubernetes API.
func checkVIPAnswers(ctx context.Context, r *check.Report, in *check.Input) {
	if in.Options.Checks.VIPAnswers == nil {
		return
	}

	for _, vip := range in.VIPs() {
		place, _ := in.VIPPlace(nil, vip)
		answered, ours, err := in.Options.Checks.VIPAnswers(ctx, vip)
		r.OfCluster()

		switch {
		case err != nil:
			r.Warn(place, "mage preflight", "it could not be found out who answers on the VIP %s: %s", vip, talos.Explain(err))
		case answered && !ours:
			r.Found(place, "free "+vip.String()+", or "+in.Regenerate("choose another VIP"),
				"something answers on the VIP %s, and not with a certificate of this cluster's Kubernetes CA", vip)
		case answered:
			r.Seen("this cluster's Kubernetes API answers on the VIP %s", vip)
		default:
			r.Seen("nobody answers on the VIP %s yet", vip)
		}
	}
}
