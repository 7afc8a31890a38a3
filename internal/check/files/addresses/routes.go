package addresses

import (
	"github.com/talos-mage/talos-mage/internal/check"
)

// checkDefaultRoutes looks for two ways out of one metric, on two links. What DHCP brings is not known.
func checkDefaultRoutes(r *check.Report, config *check.Rendered) {
	type way struct {
		ipv4   bool
		metric uint32
	}

	first := map[way]*check.Link{}

	for _, link := range config.Links() {
		for _, route := range link.Routes {
			if !route.IsDefault() || link.Ignored {
				continue
			}

			out := way{route.IsIPv4(), route.Metric}
			if other := first[out]; other == nil {
				first[out] = link
			} else if other.Label != link.Label {
				r.Found(route.At, "keep one of the two, or set a higher metric for one",
					"%s has a default route with metric %d, as %s has", link.Label, route.Metric, other.Label)
			}
		}
	}
}

// checkDefaultGateways looks for default routes that lead to nobody.
func checkDefaultGateways(r *check.Report, config *check.Rendered) {
	for _, link := range config.Links() {
		for _, route := range link.Routes {
			if route.IsDefault() && !route.Gateway.IsValid() && !link.Tunnel && !link.IsLocal() && !link.Ignored {
				r.Found(route.At, "add the router's address as gateway", "the default route of %s has no gateway", link.Label)
			}
		}
	}
}
