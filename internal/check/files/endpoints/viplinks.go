package endpoints

import (
	"net/netip"
	"slices"

	"github.com/talos-mage/talos-mage/internal/check"
)

// checkVIPLinks looks for VIPs that lie in the subnet of another link than their own. What is in no subnet of the node
// is another finding.
func checkVIPLinks(r *check.Report, config *check.Rendered) {
	for _, link := range config.Links() {
		for _, vip := range link.VIPs {
			if !vip.Addr.IsValid() || config.Reaches(link, vip.Addr) {
				continue
			}

			i := slices.IndexFunc(config.Links(), func(other *check.Link) bool {
				return !other.DHCP && other.HasFamily(vip.Addr) && config.Reaches(other, vip.Addr)
			})
			if i < 0 || !hasOwnSubnet(config, link, vip.Addr) {
				continue
			}

			right := config.Links()[i]
			r.Found(vip.At, "declare the VIP on "+right.Label, "the VIP %s is on %s, and its subnet is that of %s (%s)",
				vip.Text, link.Label, right.Label, right.Subnets())
		}
	}
}

// hasOwnSubnet reports whether a link has a static address of a VIP's family.
func hasOwnSubnet(config *check.Rendered, link *check.Link, vip netip.Addr) bool {
	return slices.ContainsFunc(config.Parts(link), func(part *check.Link) bool { return part.HasFamily(vip) })
}

// isOnStaticLink reports whether a link has a VIP, a static address of its family, and no DHCP: whatever other links
// get, the VIP is used beside that address.
func isOnStaticLink(config *check.Rendered, vip netip.Addr) bool {
	return slices.ContainsFunc(config.Links(), func(link *check.Link) bool {
		return slices.ContainsFunc(link.VIPs, func(on check.VIP) bool { return on.Addr == vip }) &&
			hasOwnSubnet(config, link, vip) && !mayAskDHCP(config, link)
	})
}

// mayAskDHCP reports whether a link asks for DHCP, maybe by another name: a link has its alias and its own name, and a
// selector may pick any.
func mayAskDHCP(config *check.Rendered, link *check.Link) bool {
	return slices.ContainsFunc(config.Links(), func(other *check.Link) bool {
		return other.DHCP && (other == link || link.Name != "" && other.Name == link.Name ||
			(other.Name == "") != (link.Name == "") || config.IsAlias(other.Name) != config.IsAlias(link.Name))
	})
}
