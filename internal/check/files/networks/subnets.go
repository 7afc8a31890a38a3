package networks

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// checkClusterSubnets keeps node addresses and VIPs out of the pod and service subnets: Talos would leave such
// addresses out, and etcd would wait for one for ever.
func checkClusterSubnets(r *check.Report, in *check.Input) {
	const next = "set clusterPodNets and clusterSvcNets without "

	for _, node := range in.Cluster.Nodes {
		config := in.ConfigOf(node)

		for _, addr := range check.AddressesOf(node, config) {
			if subnet, ok := containing(subnetsOf(in, config), addr); ok {
				place := in.Entry(node, "ipAddress")
				if set, known := staticPlace(config, addr); known && addr.String() != node.Address {
					place = set
				}

				r.About(node).Found(place, in.Regenerate(next+addr.String()), "address %s lies in %s", addr, subnet)
			}
		}
	}

	r.OfCluster()

	for _, vip := range in.VIPs() {
		if subnet, ok := containing(subnetsOf(in, nil), vip); ok {
			place, _ := in.VIPPlace(nil, vip)
			r.Found(place, in.Regenerate(next+vip.String()), "the VIP %s lies in %s", vip, subnet)
		}
	}

	r.Passed(diagnosis.AddressInClusterSubnet, "all addresses are outside the pod and service subnets")
}

// staticPlace is where a config sets an address; false without a config.
func staticPlace(config *check.Rendered, addr netip.Addr) (check.Place, bool) {
	if config == nil {
		return check.Place{}, false
	}

	return config.AddressPlace(addr)
}

// subnetsOf are the pod and service subnets that the files declare: the inventory's, and a machine config's.
func subnetsOf(in *check.Input, config *check.Rendered) []subnet {
	pods, services := slices.Clone(in.Cluster.PodSubnets), slices.Clone(in.Cluster.ServiceSubnets)

	if config != nil {
		pods, services = append(pods, config.PodSubnets()...), append(services, config.ServiceSubnets()...)
	}

	var list []subnet

	for _, prefix := range pods {
		list = append(list, subnet{Prefix: prefix, what: "pod"})
	}

	for _, prefix := range services {
		list = append(list, subnet{Prefix: prefix, what: "service"})
	}

	return list
}

func containing(subnets []subnet, addr netip.Addr) (subnet, bool) {
	i := slices.IndexFunc(subnets, func(subnet subnet) bool { return subnet.Contains(addr) })
	if i < 0 {
		return subnet{}, false
	}

	return subnets[i], true
}

// checkNodeIPs finds kubelets that are told to use none of their node's addresses. A node whose config has none may be
// declared by an address that a router translates, as in a cloud: then it has others.
func checkNodeIPs(r *check.Report, in *check.Input) {
	r.EachNode(func(node *inventory.Node, config *check.Rendered) {
		valid := config.Node().NodeIP().ValidSubnets()
		addresses := check.AddressesOf(node, config)

		if len(valid) == 0 || len(addresses) == 0 ||
			slices.ContainsFunc(addresses, func(addr netip.Addr) bool { return selects(valid, addr) }) {
			return
		}

		severity, all := diagnosis.Failure, "all that the files give the node"
		if len(config.Addresses()) == 0 {
			severity, all = diagnosis.Warning, "by which the node is declared"
		}

		r.Add(severity, config.At("machine.kubelet.nodeIP.validSubnets"),
			in.Regenerate("put the subnet of "+node.Name+" into kubelet.nodeIP.validSubnets"),
			"kubelet.nodeIP.validSubnets (%s) leaves out %s, %s", strings.Join(valid, ", "), check.Join(addresses), all)
	})
}

// selects applies Talos' subnet filters: one that begins with ! excludes, and if all do, the rest is included.
func selects(filters []string, address netip.Addr) bool {
	included, anyInclude := false, false

	for _, filter := range filters {
		excludes := strings.HasPrefix(filter, "!")

		prefix, err := netip.ParsePrefix(strings.TrimPrefix(filter, "!"))
		if err != nil {
			continue // validation refuses it
		}

		switch {
		case excludes && prefix.Contains(address):
			return false
		case !excludes:
			anyInclude = true
			included = included || prefix.Contains(address)
		}
	}

	return included || !anyInclude
}
