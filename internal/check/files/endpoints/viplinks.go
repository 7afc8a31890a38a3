package endpoints

import (
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
			if i < 0 || !hasOwnSubnet(config, link, vip) {
				continue
			}

			right := config.Links()[i]
			r.Found(vip.At, "declare the VIP on "+right.Label, "the VIP %s is on %s, and its subnet is that of %s (%s)",
				vip.Text, link.Label, right.Label, right.Subnets())
		}
	}
}

// hasOwnSubnet reports whether a link, in whichever style it is written, has a static address of a VIP's family.
func hasOwnSubnet(config *check.Rendered, link *check.Link, vip check.VIP) bool {
	return slices.ContainsFunc(config.Links(), func(other *check.Link) bool {
		return (other == link || other.Name == link.Name && link.Name != "") && other.HasFamily(vip.Addr)
	})
}
