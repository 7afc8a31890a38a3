package preflight

import (
	"context"
	"net/netip"
	"slices"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// vips are the virtual addresses that the inventory and the machine configs of the control planes declare.
func (w whole) vips() []netip.Addr {
	var vips []netip.Addr

	for _, node := range w.cluster.ControlPlanes() {
		vips = append(vips, node.VIPs...)

		if config := w.configs[node.Name]; config != nil {
			vips = append(vips, config.VIPs()...)
		}
	}

	slices.SortFunc(vips, netip.Addr.Compare)

	return slices.Compact(vips)
}

// checkVIP judges where each VIP lies: within the static subnets of every control plane, and on nobody's address.
// Control planes that get addresses from the network are judged once they answered.
func checkVIP(_ context.Context, w whole) []diagnosis.Finding {
	vips := w.vips()
	if len(vips) == 0 {
		return nil
	}

	var findings []diagnosis.Finding

	for _, vip := range vips {
		findings = append(findings, w.vipTaken(vip)...)

		for _, node := range w.cluster.ControlPlanes() {
			config := w.configs[node.Name]
			if config == nil || anyContains(config.Addresses(), vip) || mayGetSubnet(config, vip) {
				continue
			}

			findings = append(findings, w.about(node, diagnosis.VIPOutsideSubnet, diagnosis.Failure,
				w.regenerate("choose a VIP within the control planes' subnet"),
				"the VIP %s is outside the node's subnets (%s): it could never take it over", vip,
				join(subnetsOf(config.Addresses())))...)
		}
	}

	return w.okUnless(findings, diagnosis.VIPOutsideSubnet, "the VIP %s lies in the control planes' subnet", join(vips))
}

// vipTaken finds who else has the VIP.
func (w whole) vipTaken(vip netip.Addr) []diagnosis.Finding {
	var findings []diagnosis.Finding

	next := w.regenerate("choose a free address as VIP")

	for _, node := range w.cluster.Nodes {
		config := w.configs[node.Name]

		switch {
		case slices.Contains(addressesOf(node, config), vip):
			findings = append(findings,
				w.about(node, diagnosis.VIPTaken, diagnosis.Failure, next, "the VIP %s is the node's own address", vip)...)
		case config != nil && slices.Contains(config.Gateways(), vip):
			findings = append(findings,
				w.about(node, diagnosis.VIPTaken, diagnosis.Failure, next, "the VIP %s is the node's gateway", vip)...)
		}
	}

	return findings
}

// mayGetSubnet reports whether a node may still get an address of a VIP's family from the network: by DHCP, or where
// none is static.
func mayGetSubnet(config *machineconfig.Config, vip netip.Addr) bool {
	static := slices.ContainsFunc(config.Addresses(),
		func(address netip.Prefix) bool { return address.Addr().Is4() == vip.Is4() })

	return !static || config.UsesDHCP() && !config.VIPOnStaticInterface(vip)
}

// checkLiveSubnet judges the VIPs of a control plane that gets addresses from the network by those that it has now.
func checkLiveSubnet(_ context.Context, s subject) []diagnosis.Finding {
	if s.config == nil || len(s.facts.Addresses) == 0 {
		return nil
	}

	var findings []diagnosis.Finding

	addresses := slices.Concat(s.config.Addresses(), s.facts.Addresses)

	for _, vip := range s.config.VIPs() {
		if anyContains(addresses, vip) || !mayGetSubnet(s.config, vip) {
			continue
		}

		finding := s.fail(diagnosis.VIPOutsideSubnet, s.regenerate("choose a VIP within the control planes' subnet"),
			"the VIP %s is outside the node's subnets (%s): it could never take it over", vip, join(subnetsOf(addresses)))
		finding[0].Exit = diagnosis.ExitPreflight
		findings = append(findings, finding...)
	}

	return findings
}

// checkVIPAnswers asks who answers on each VIP. Nobody should yet, or this cluster's own Kubernetes API.
func checkVIPAnswers(ctx context.Context, w whole) []diagnosis.Finding {
	if w.options.VIPAnswers == nil {
		return nil
	}

	var findings []diagnosis.Finding

	for _, vip := range w.vips() {
		switch answered, ours, err := w.options.VIPAnswers(ctx, vip); {
		case err != nil:
			findings = append(findings, w.about(nil, diagnosis.VIPForeign, diagnosis.Warning, "mage preflight",
				"it could not be found out who answers on the VIP %s: %s", vip, talos.Explain(err))...)
		case answered && !ours:
			findings = append(findings, w.about(nil, diagnosis.VIPForeign, diagnosis.Failure,
				"free "+vip.String()+", or "+w.regenerate("choose another VIP"),
				"something answers on the VIP %s, and not with a certificate of this cluster's Kubernetes CA", vip)...)
		case answered:
			findings = append(findings,
				w.ok(diagnosis.VIPForeign, "this cluster's Kubernetes API answers on the VIP %s", vip)...)
		default:
			findings = append(findings, w.ok(diagnosis.VIPForeign, "nobody answers on the VIP %s yet", vip)...)
		}
	}

	return findings
}

func anyContains(prefixes []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(prefix netip.Prefix) bool { return prefix.Masked().Contains(address) })
}

func subnetsOf(addresses []netip.Prefix) []netip.Prefix {
	subnets := make([]netip.Prefix, 0, len(addresses))
	for _, address := range addresses {
		subnets = append(subnets, address.Masked())
	}

	return subnets
}
