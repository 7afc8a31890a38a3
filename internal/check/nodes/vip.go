package nodes

import (
	"context"
	"slices"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/files/endpoints"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// checkLiveSubnet judges the VIPs of a control plane that gets addresses from the network by those that it has now.
func checkLiveSubnet(_ context.Context, s subject) {
	if len(s.Facts.Addresses) == 0 {
		return
	}

	config, addresses := check.NewRendered(s.Config), slices.Concat(s.Config.Addresses(), s.Facts.Addresses)

	for _, vip := range s.Config.VIPs() {
		if !endpoints.CanTake(config, vip, addresses) && endpoints.MayGetSubnet(config, vip) {
			s.fail(diagnosis.VIPOutsideSubnet, s.regenerate("choose a VIP within the control planes' subnet"), "%s",
				endpoints.OutsideSubnets(vip, addresses))
			s.report.Last().Exit = diagnosis.ExitPreflight
		}
	}
}
