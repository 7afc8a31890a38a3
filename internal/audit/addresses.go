package audit

import (
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Checks of addresses.
var addressChecks = []Check{
	eachConfig(diagnosis.GatewayOutside, Addresses, checkGateways),
}

// checkGateways looks for next hops that no address of the link reaches.
func checkGateways(r *Report, config *Rendered) {
	for _, link := range config.links() {
		for _, route := range link.routes {
			if !route.gateway.IsValid() || link.dhcp || route.gateway.IsLinkLocalUnicast() || !link.hasFamily(route.gateway) || link.reaches(route.gateway) {
				continue
			}

			r.found(route.at, "correct the gateway, or the address's prefix length",
				"the gateway %s is in no subnet of %s (%s): the route can't be set", route.gateway, link.label, link.subnets())
		}
	}
}
