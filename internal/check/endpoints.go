package check

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Checks of VIPs and the endpoint.
func endpointChecks() []Check {
	return slices.Concat(
		[]Check{
			Whole(diagnosis.VIPsDiffer, Endpoints, diagnosis.NeedsConfig, checkVIPsDiffer),
			EachConfig(diagnosis.VIPOnBareLink, Endpoints, checkBareVIPLink),
			EachConfig(diagnosis.VIPOnWorker, Endpoints, checkWorkerVIP),
			Whole(diagnosis.EndpointWithoutPort, Endpoints, diagnosis.NeedsTalconfig, checkEndpointPort),
			Whole(diagnosis.VIPNotShared, Endpoints, diagnosis.NeedsConfigs, checkVIPShared),
		},
		Several(Endpoints, diagnosis.NeedsTalconfig|diagnosis.NeedsConfig, checkVIP, diagnosis.VIPOutsideSubnet,
			diagnosis.VIPTaken),
		Several(Endpoints, diagnosis.NeedsTalconfig|diagnosis.NeedsNetwork, checkVIPAnswers, diagnosis.VIPForeign),
		Several(Endpoints, diagnosis.NeedsTalconfig, checkEndpoint, diagnosis.EndpointUnusable, diagnosis.EndpointElsewhere),
	)
}

// controlPlaneVIPs goes over the VIPs of all control planes.
func (in *Input) controlPlaneVIPs(visit func(*Rendered, vip)) {
	for _, config := range in.Configs {
		if !isControlPlane(config) {
			continue
		}

		for _, link := range config.links() {
			for _, vip := range link.vips {
				if vip.addr.IsValid() {
					visit(config, vip)
				}
			}
		}
	}
}

// checkVIPsDiffer looks for a second VIP of one family.
func checkVIPsDiffer(r *Report, in *Input) {
	first := map[bool]vip{}
	told := map[netip.Addr]bool{}

	in.controlPlaneVIPs(func(config *Rendered, vip vip) {
		known, declared := first[vip.addr.Is4()]

		switch {
		case !declared:
			first[vip.addr.Is4()] = vip
		case known.addr != vip.addr && !told[vip.addr]:
			told[vip.addr] = true
			r.Config = config
			r.Found(vip.at, "declare one VIP on every control plane", "the VIP %s is not the only one: %s has %s", vip.addr,
				in.Locate(known.at), known.addr)
		}
	})
}

// checkBareVIPLink looks for VIPs on links that are in no network. A document's link without any other document is left
// to DHCP by default. What a cloud's metadata or a router's announcements add can't be seen here.
func checkBareVIPLink(r *Report, config *Rendered) {
	for _, link := range config.links() {
		if len(link.vips) == 0 || link.dhcp || len(link.addresses) > 0 {
			continue
		}

		if link.document && !link.made && config.Provider.RunDefaultDHCPOperators() {
			continue
		}

		if config.addressedElsewhere(link) {
			continue
		}

		for _, vip := range link.vips {
			r.Found(vip.at, "put the VIP on the link with the node's address, or give "+link.label+" one",
				"the VIP %s is on %s, which has neither DHCP nor a static address", vip.text, link.label)
		}
	}
}

// addressedElsewhere reports whether another part of the config gives the link of this name its address.
func (c *Rendered) addressedElsewhere(link *link) bool {
	for _, other := range c.links() {
		if other != link && other.name == link.name && link.name != "" && (other.dhcp || len(other.addresses) > 0) {
			return true
		}
	}

	return false
}

// checkWorkerVIP looks for VIPs of nodes that take no part in the election.
func checkWorkerVIP(r *Report, config *Rendered) {
	if isControlPlane(config) {
		return
	}

	for _, link := range config.links() {
		for _, vip := range link.vips {
			severity := diagnosis.Failure
			if link.document {
				severity = diagnosis.Warning // Talos takes it, and it stays without effect
			}

			r.Add(severity, vip.at, "take the VIP out of the worker's config", "the worker %s declares the VIP %s", config.Name,
				vip.text)
		}
	}
}

// checkEndpointPort looks for an endpoint that leaves its port to the scheme. Where it leads to a control plane,
// preflight's check says more.
func checkEndpointPort(r *Report, in *Input) {
	if endpoint := in.Cluster.Endpoint; endpoint != nil && endpoint.Hostname() != "" && endpoint.Port() == "" &&
		in.Talconfig != nil {
		host := endpoint.Hostname()
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}

		r.Found(in.Talconfig.At("endpoint"), "write https://"+host+":6443", "the endpoint %s has no port: clients use 443",
			endpoint.Redacted())
	}
}

// checkVIPShared looks for control planes that leave the VIP to others.
func checkVIPShared(r *Report, in *Input) {
	holders := map[*Rendered]bool{}

	var shared vip

	in.controlPlaneVIPs(func(config *Rendered, vip vip) {
		holders[config], shared = true, vip
	})

	if len(holders) == 0 {
		return
	}

	for _, config := range in.Configs {
		if isControlPlane(config) && !holders[config] {
			r.Config = config
			r.Found(config.File.At("machine"), "declare the VIP "+shared.text+" on "+config.Name,
				"%s declares no VIP, and others do: %s", config.Name, shared.text)
		}
	}
}
