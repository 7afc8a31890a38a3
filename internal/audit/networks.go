package audit

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/preflight"
)

// Checks of pod, service and node networks.
var networkChecks = []Check{
	eachConfig(diagnosis.SubnetsOverlap, Networks, checkSubnetsOverlap),
	eachConfig(diagnosis.NodeNetworkOverlaps, Networks, checkNodeNetwork),
	eachConfig(diagnosis.EtcdSubnetsSelectNone, Networks, checkEtcdSubnets),
	eachConfig(diagnosis.SubnetFamilies, Networks, checkFamilies),
	eachConfig(diagnosis.ServiceSubnetSize, Networks, checkServiceSize),
	whole(diagnosis.PodSubnetSize, Networks, diagnosis.NeedsConfig, checkPodSize),
	whole(diagnosis.ClusterSubnetsDiffer, Networks, diagnosis.NeedsConfig, checkSubnetsAgree),
	eachConfig(diagnosis.SubnetHasHostBits, Networks, checkHostBits),
}

// subnet is a pod or service subnet with its place.
type subnet struct {
	netip.Prefix
	what string
	at   at
}

func (s subnet) String() string { return fmt.Sprintf("the %s subnet %s", s.what, s.Prefix) }

// subnets are the pod and service subnets of a config, Talos' defaults included.
func (c *Rendered) subnets() []subnet {
	var list []subnet

	for i, prefix := range c.PodSubnets() {
		list = append(list, subnet{prefix, "pod", c.File.at("cluster.network.podSubnets").item(i)})
	}

	for i, prefix := range c.ServiceSubnets() {
		list = append(list, subnet{prefix, "service", c.File.at("cluster.network.serviceSubnets").item(i)})
	}

	return list
}

// checkSubnetsOverlap compares the subnets with each other.
func checkSubnetsOverlap(r *Report, config *Rendered) {
	list := config.subnets()

	for i, one := range list {
		for _, other := range list[i+1:] {
			if one.Overlaps(other.Prefix) {
				r.found(other.at, "choose subnets that don't overlap", "%s overlaps %s", one, other)
			}
		}
	}
}

// checkNodeNetwork compares the networks of the links with the subnets. An address that lies in one is preflight's finding.
func checkNodeNetwork(r *Report, config *Rendered) {
	for _, link := range config.links() {
		for _, address := range link.addresses {
			for _, subnet := range config.subnets() {
				if address.prefix.IsValid() && subnet.Overlaps(address.prefix) && !subnet.Contains(address.prefix.Addr()) {
					r.found(address.at, "choose another "+subnet.what+" subnet, or correct the prefix length",
						"the network %s of %s overlaps %s", address.prefix.Masked(), link.label, subnet)
				}
			}
		}
	}
}

// checkEtcdSubnets looks for filters that leave etcd without an address.
func checkEtcdSubnets(r *Report, config *Rendered) {
	if !isControlPlane(config) {
		return
	}

	etcd := config.Provider.RawV1Alpha1().ClusterConfig.EtcdConfig
	addresses := config.ownAddresses()

	if etcd == nil || len(addresses) == 0 || config.UsesDHCP() {
		return
	}

	for _, list := range []struct {
		path    string
		filters []string
	}{
		{"cluster.etcd.advertisedSubnets", etcd.EtcdAdvertisedSubnets},
		{"cluster.etcd.listenSubnets", etcd.EtcdListenSubnets},
	} {
		if len(list.filters) > 0 && !slices.ContainsFunc(addresses, func(addr netip.Addr) bool { return preflight.Selects(list.filters, addr) }) {
			r.found(config.File.at(list.path), "put the subnet of "+config.Name+" into "+list.path,
				"%s (%s) leaves out %s, all that the node has", list.path, strings.Join(list.filters, ", "), joinAddrs(addresses))
		}
	}
}

// ownAddresses are the static addresses of links that others reach, and the declared ones.
func (c *Rendered) ownAddresses() []netip.Addr {
	var addresses []netip.Addr

	for _, link := range c.links() {
		for _, address := range link.addresses {
			if addr := address.prefix.Addr(); addr.IsValid() && special(addr) == "" {
				addresses = append(addresses, addr)
			}
		}
	}

	for _, node := range c.Nodes {
		addresses = append(addresses, addressesOf(node, nil)...)
	}

	slices.SortFunc(addresses, netip.Addr.Compare)

	return slices.Compact(addresses)
}

func joinAddrs(addresses []netip.Addr) string {
	texts := make([]string, 0, len(addresses))
	for _, addr := range addresses {
		texts = append(texts, addr.String())
	}

	return strings.Join(texts, ", ")
}

// families are those of IP that something has.
type families struct{ four, six bool }

func (f families) String() string {
	switch f {
	case families{true, true}:
		return "IPv4 and IPv6"
	case families{true, false}:
		return "IPv4"
	case families{false, true}:
		return "IPv6"
	default:
		return "no"
	}
}

// lacks tells whether there is a family that the other has not.
func (f families) lacks(other families) bool { return f.four && !other.four || f.six && !other.six }

func familiesOf(prefixes []netip.Prefix) families {
	var found families

	for _, prefix := range prefixes {
		if prefix.Addr().Is4() {
			found.four = true
		} else {
			found.six = true
		}
	}

	return found
}

// checkFamilies compares the families of services, pods and the node.
func checkFamilies(r *Report, config *Rendered) {
	pods, services := familiesOf(config.PodSubnets()), familiesOf(config.ServiceSubnets())

	if services.lacks(pods) || pods.lacks(services) {
		r.found(config.File.at("cluster.network"), "declare pod and service subnets of the same families",
			"the service subnets are %s, the pod subnets %s", services, pods)

		return
	}

	own := families{}
	for _, addr := range config.ownAddresses() {
		own.four, own.six = own.four || addr.Is4(), own.six || addr.Is6()
	}

	if own != (families{}) && !config.UsesDHCP() && services.lacks(own) {
		r.found(config.File.at("cluster.network"), "declare subnets of the nodes' families, or give "+config.Name+" an address of each",
			"the service subnets are %s, and all addresses of %s are %s", services, config.Name, own)
	}
}

// maxServiceBits is how many host bits the API server takes for services.
const maxServiceBits = 20

// checkServiceSize looks for service subnets that the API server refuses.
func checkServiceSize(r *Report, config *Rendered) {
	for _, subnet := range config.subnets() {
		if largest := subnet.Addr().BitLen() - maxServiceBits; subnet.what == "service" && subnet.Bits() < largest {
			r.found(subnet.at, fmt.Sprintf("use a /%d or smaller", largest), "%s is larger than /%d", subnet, largest)
		}
	}
}

// checkPodSize looks for pod subnets that the nodes' parts don't fit into.
func checkPodSize(r *Report, in *Input) {
	config := in.Configs[0]
	nodes := 0

	for _, one := range in.Configs {
		nodes += max(1, len(one.Nodes))

		if isControlPlane(one) && !isControlPlane(config) {
			config = one // it runs the controller manager
		}
	}

	r.config = config

	for _, subnet := range config.subnets() {
		if subnet.what != "pod" {
			continue
		}

		part := config.nodeMask(subnet.Addr().Is4())

		switch bits := part - subnet.Bits(); {
		case bits < 0:
			r.found(subnet.at, fmt.Sprintf("use a subnet larger than /%d", part), "%s is smaller than a node's part of it, /%d", subnet, part)
		case bits < 31 && nodes > 1<<bits:
			r.found(subnet.at, "use a larger pod subnet", "%s has room for %d nodes, at /%d each, and there are %d", subnet, 1<<bits, part, nodes)
		}
	}
}

// nodeMask is the prefix length of a node's part of the pod subnet.
func (c *Rendered) nodeMask(four bool) int {
	part, names := 64, []string{"node-cidr-mask-size-ipv6", "node-cidr-mask-size"}
	if four {
		part, names = 24, []string{"node-cidr-mask-size-ipv4", "node-cidr-mask-size"}
	}

	manager := c.Provider.RawV1Alpha1().ClusterConfig.ControllerManagerConfig
	if manager == nil {
		return part
	}

	arguments := c.Provider.Cluster().ControllerManager().ExtraArgs()

	for _, name := range names {
		if values := arguments[name]; len(values) > 0 {
			if set, err := strconv.Atoi(values[0]); err == nil {
				return set
			}
		}
	}

	return part
}

// checkSubnetsAgree compares the subnets of all configs with those of most.
func checkSubnetsAgree(r *Report, in *Input) {
	votes := map[string]int{}
	common := ""

	key := func(config *Rendered) string {
		texts := make([]string, 0, 2)
		for _, subnet := range config.subnets() {
			texts = append(texts, subnet.what+" "+subnet.Prefix.String())
		}

		return strings.Join(texts, ", ")
	}

	for _, config := range in.Configs {
		mine := key(config)
		votes[mine]++

		if votes[mine] > votes[common] {
			common = mine
		}
	}

	for _, config := range in.Configs {
		if mine := key(config); mine != common {
			r.config = config
			r.found(config.File.at("cluster.network"), "generate the machine configs again: `task talos:generate-config`",
				"%s has %s, and most others have %s", config.Name, mine, common)
		}
	}
}

// checkHostBits looks for subnets that are written as an address.
func checkHostBits(r *Report, config *Rendered) {
	for _, subnet := range config.subnets() {
		if subnet.Prefix != subnet.Masked() {
			r.found(subnet.at, "write "+subnet.Masked().String(), "%s is an address in %s", subnet, subnet.Masked())
		}
	}
}
