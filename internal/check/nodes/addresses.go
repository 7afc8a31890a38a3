package preflight

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// checkClusterSubnets keeps node addresses and VIPs out of the pod and service subnets: Talos would leave such
// addresses out, and etcd would wait for one for ever.
func checkClusterSubnets(_ context.Context, w whole) []diagnosis.Finding {
	var findings []diagnosis.Finding

	for _, node := range w.cluster.Nodes {
		for _, address := range addressesOf(node, w.configs[node.Name]) {
			if subnet, ok := containing(w.subnets(node), address); ok {
				findings = append(findings, w.about(node, diagnosis.AddressInClusterSubnet, diagnosis.Failure,
					w.regenerate("set clusterPodNets and clusterSvcNets without "+address.String()),
					"address %s lies in %s", address, subnet)...)
			}
		}
	}

	for _, vip := range w.vips() {
		if subnet, ok := containing(w.subnets(nil), vip); ok {
			findings = append(findings, w.about(nil, diagnosis.AddressInClusterSubnet, diagnosis.Failure,
				w.regenerate("set clusterPodNets and clusterSvcNets without "+vip.String()),
				"the VIP %s lies in %s", vip, subnet)...)
		}
	}

	return w.okUnless(findings, diagnosis.AddressInClusterSubnet, "all addresses are outside the pod and service subnets")
}

// namedSubnet is a subnet with the words that people know it by.
type namedSubnet struct {
	prefix netip.Prefix
	what   string
}

func (n namedSubnet) String() string { return fmt.Sprintf("the %s subnet %s", n.what, n.prefix) }

// subnets are the pod and service subnets that the files declare: the inventory's, and the node's machine config's.
func (w whole) subnets(node *inventory.Node) []namedSubnet {
	pods, services := slices.Clone(w.cluster.PodSubnets), slices.Clone(w.cluster.ServiceSubnets)

	if node != nil && w.configs[node.Name] != nil {
		pods = append(pods, w.configs[node.Name].PodSubnets()...)
		services = append(services, w.configs[node.Name].ServiceSubnets()...)
	}

	var named []namedSubnet

	for _, prefix := range pods {
		named = append(named, namedSubnet{prefix, "pod"})
	}

	for _, prefix := range services {
		named = append(named, namedSubnet{prefix, "service"})
	}

	return named
}

func containing(subnets []namedSubnet, address netip.Addr) (namedSubnet, bool) {
	for _, subnet := range subnets {
		if subnet.prefix.Contains(address) {
			return subnet, true
		}
	}

	return namedSubnet{}, false
}

// addressesOf are the addresses that the files give a node: the declared one, unless it is a name, and the static ones.
func addressesOf(node *inventory.Node, config *machineconfig.Config) []netip.Addr {
	var addresses []netip.Addr

	if declared, err := netip.ParseAddr(node.Address); err == nil {
		addresses = append(addresses, declared.Unmap())
	}

	if config != nil {
		for _, prefix := range config.Addresses() {
			if !slices.Contains(addresses, prefix.Addr()) {
				addresses = append(addresses, prefix.Addr())
			}
		}
	}

	return addresses
}

// checkNodeIPs finds kubelets that are told to use none of their node's addresses.
func checkNodeIPs(_ context.Context, w whole) []diagnosis.Finding {
	var findings []diagnosis.Finding

	for node, config := range w.each() {
		valid := config.Provider.Machine().Kubelet().NodeIP().ValidSubnets()
		addresses := addressesOf(node, config)

		if len(valid) == 0 || len(addresses) == 0 ||
			slices.ContainsFunc(addresses, func(address netip.Addr) bool { return Selects(valid, address) }) {
			continue
		}

		findings = append(findings, w.about(node, diagnosis.NodeIPExcluded, diagnosis.Failure,
			w.regenerate("put the subnet of "+node.Name+" into kubelet.nodeIP.validSubnets"),
			"kubelet.nodeIP.validSubnets (%s) leaves out %s, all that the node has", strings.Join(valid, ", "),
			join(addresses))...)
	}

	return findings
}

// Selects applies Talos' subnet filters: one that begins with ! excludes, and if all do, the rest is included.
func Selects(filters []string, address netip.Addr) bool {
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

func join[T fmt.Stringer](values []T) string { return strings.Join(texts(values), ", ") }

func texts[T fmt.Stringer](values []T) []string {
	texts := make([]string, 0, len(values))
	for _, value := range values {
		texts = append(texts, value.String())
	}

	return texts
}
