// Package endpoints holds the checks of VIPs and of the endpoint.
package endpoints

import (
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Checks are its rows of the table.
func Checks() []check.Check {
	return slices.Concat(
		[]check.Check{
			check.Whole(diagnosis.VIPsDiffer, check.Endpoints, diagnosis.NeedsConfig, checkVIPsDiffer),
			check.EachConfig(diagnosis.VIPOnBareLink, check.Endpoints, checkBareVIPLink),
			check.EachConfig(diagnosis.VIPOnWorker, check.Endpoints, checkWorkerVIP),
			check.EachConfig(diagnosis.VIPOffLink, check.Endpoints, checkVIPLinks),
			check.Whole(diagnosis.EndpointWithoutPort, check.Endpoints, diagnosis.NeedsTalconfig|diagnosis.NeedsConfig,
				checkEndpointPort),
			check.Whole(diagnosis.VIPNotShared, check.Endpoints, diagnosis.NeedsConfigs, checkVIPShared),
		},
		check.Several(check.Endpoints, diagnosis.NeedsTalconfig|diagnosis.NeedsConfig, checkVIP, diagnosis.VIPOutsideSubnet,
			diagnosis.VIPTaken),
		check.Several(check.Endpoints, diagnosis.NeedsTalconfig|diagnosis.NeedsNetwork|diagnosis.NeedsOwnSecrets,
			checkVIPAnswers, diagnosis.VIPForeign),
		aboutEndpoint(),
	)
}

// controlPlaneVIPs goes over the VIPs of all control planes.
func controlPlaneVIPs(in *check.Input, visit func(*check.Rendered, check.VIP)) {
	for _, config := range in.Configs {
		if !check.IsControlPlane(config) {
			continue
		}

		for _, link := range config.Links() {
			for _, vip := range link.VIPs {
				if vip.Addr.IsValid() {
					visit(config, vip)
				}
			}
		}
	}
}

// checkVIPsDiffer looks for a second VIP of one family.
func checkVIPsDiffer(r *check.Report, in *check.Input) {
	first := map[bool]check.VIP{}
	told := map[netip.Addr]bool{}

	controlPlaneVIPs(in, func(config *check.Rendered, vip check.VIP) {
		known, declared := first[vip.Addr.Is4()]

		switch {
		case !declared:
			first[vip.Addr.Is4()] = vip
		case known.Addr != vip.Addr && !told[vip.Addr]:
			told[vip.Addr] = true
			r.Config = config
			r.Found(vip.At, "declare one VIP on every control plane", "the VIP %s is not the only one: %s has %s", vip.Addr,
				in.Locate(known.At), known.Addr)
		}
	})
}

// checkBareVIPLink looks for VIPs on links that are in no network. A document's link without any other document is left
// to DHCP by default. What a cloud's metadata or a router's announcements add can't be seen here.
func checkBareVIPLink(r *check.Report, config *check.Rendered) {
	for _, link := range config.Links() {
		if len(link.VIPs) == 0 || isAddressed(config, link) {
			continue
		}

		if link.Document && !link.Made && config.Provider.RunDefaultDHCPOperators() {
			continue
		}

		for _, vip := range link.VIPs {
			r.Found(vip.At, "put the VIP on the link with the node's address, or give "+link.Label+" one",
				"the VIP %s is on %s, which has neither DHCP nor a static address", vip.Text, link.Label)
		}
	}
}

// isAddressed reports whether a link gets an address by DHCP, or has a static one.
func isAddressed(config *check.Rendered, link *check.Link) bool {
	return slices.ContainsFunc(config.Parts(link),
		func(part *check.Link) bool { return part.DHCP || len(part.Addresses) > 0 })
}

// checkWorkerVIP looks for VIPs of nodes that take no part in the election.
func checkWorkerVIP(r *check.Report, config *check.Rendered) {
	if check.IsControlPlane(config) {
		return
	}

	for _, link := range config.Links() {
		for _, vip := range link.VIPs {
			severity := diagnosis.Failure
			if link.Document {
				severity = diagnosis.Warning // Talos takes it, and it stays without effect
			}

			r.Add(severity, vip.At, "take the VIP out of the worker's config", "the worker %s declares the VIP %s", config.Name,
				vip.Text)
		}
	}
}

// checkEndpointPort looks for an endpoint that leaves its port to the scheme. Where it leads to a control plane,
// checkEndpoint says more.
func checkEndpointPort(r *check.Report, in *check.Input) {
	endpoint := in.Cluster.Endpoint
	serves, known := servedPort(in)

	if endpoint != nil && endpoint.Hostname() != "" && endpoint.Port() == "" && in.Talconfig != nil &&
		known && serves != httpsPort {
		r.Found(in.Talconfig.At("endpoint"), "write https://"+net.JoinHostPort(endpoint.Hostname(), strconv.Itoa(serves)),
			"the endpoint %s has no port: clients use 443", endpoint.Redacted())
	}
}

// checkVIPShared looks for control planes that leave the VIP to others.
func checkVIPShared(r *check.Report, in *check.Input) {
	holders := map[*check.Rendered]bool{}

	var shared check.VIP

	controlPlaneVIPs(in, func(config *check.Rendered, vip check.VIP) {
		holders[config], shared = true, vip
	})

	if len(holders) == 0 {
		return
	}

	for _, config := range in.Configs {
		if check.IsControlPlane(config) && !holders[config] {
			r.Config = config
			r.Found(config.At("machine"), "declare the VIP "+shared.Text+" on "+config.Name,
				"%s declares no VIP, and others do: %s", config.Name, shared.Text)
		}
	}
}
