// Package networks holds the checks of pod, service and node networks.
package networks

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/files/versions"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Checks are its rows of the table.
func Checks() []check.Check {
	return []check.Check{
		check.EachConfig(diagnosis.SubnetsOverlap, check.Networks, checkSubnetsOverlap),
		check.EachConfig(diagnosis.NodeNetworkOverlaps, check.Networks, checkNodeNetwork),
		check.EachConfig(diagnosis.EtcdSubnetsSelectNone, check.Networks, checkEtcdSubnets),
		check.EachConfig(diagnosis.SubnetFamilies, check.Networks, checkFamilies),
		check.EachConfig(diagnosis.ServiceSubnetSize, check.Networks, checkServiceSize),
		check.Whole(diagnosis.PodSubnetSize, check.Networks, diagnosis.NeedsConfig, checkPodSize),
		check.Whole(diagnosis.ClusterSubnetsDiffer, check.Networks, diagnosis.NeedsConfig, checkSubnetsAgree),
		check.EachConfig(diagnosis.NoClusterNetwork, check.Networks, checkNetworkGiven),
		check.EachConfig(diagnosis.SubnetHasHostBits, check.Networks, checkHostBits),
		check.Whole(diagnosis.AddressInClusterSubnet, check.Networks, diagnosis.NeedsTalconfig, checkClusterSubnets),
		check.Whole(diagnosis.NodeIPExcluded, check.Networks, diagnosis.NeedsTalconfig|diagnosis.NeedsConfig, checkNodeIPs),
	}
}

// subnet is a pod or service subnet with its place.
type subnet struct {
	netip.Prefix
	what string
	at   check.Place
}

func (s subnet) String() string { return fmt.Sprintf("the %s subnet %s", s.what, s.Prefix) }

// subnets are the pod and service subnets of a config, Talos' defaults included.
func subnets(c *check.Rendered) []subnet {
	var list []subnet

	for i, prefix := range c.PodSubnets() {
		list = append(list, subnet{prefix, "pod", c.At("cluster.network.podSubnets").Item(i)})
	}

	for i, prefix := range c.ServiceSubnets() {
		list = append(list, subnet{prefix, "service", c.At("cluster.network.serviceSubnets").Item(i)})
	}

	return list
}

// networkPlace is where a config declares its pod and service subnets.
func networkPlace(c *check.Rendered) check.Place {
	if c.HasDocument("KubeNetworkConfig") {
		return c.File.In("KubeNetworkConfig", "podSubnets")
	}

	return c.File.At("cluster.network")
}

// checkNetworkGiven looks for configs that say nothing of the cluster's network; up to 1.13 Talos had defaults.
func checkNetworkGiven(r *check.Report, config *check.Rendered) {
	if config.HasNetwork() || !config.RunsKubernetes() ||
		!versions.WillRunFrom(r.In, config, talosconfig.TalosVersion1_14) {
		return
	}

	next := fmt.Sprintf("write the defaults of before: podSubnets: [%s] and serviceSubnets: [%s] in cluster.network",
		constants.DefaultIPv4PodCIDR, constants.DefaultIPv4ServiceCIDR)
	if config.InDocuments() {
		next = "add a KubeNetworkConfig"
	}

	r.Found(config.File.At("cluster"), next,
		"the config says nothing of the cluster's network: without that Talos 1.14 starts no kubelet on %s", config.Name)
}

// checkSubnetsOverlap compares the subnets with each other. Kubernetes keeps services' addresses out of a larger pod
// subnet, and other CNIs than Talos' own may have pod subnets of their own.
func checkSubnetsOverlap(r *check.Report, config *check.Rendered) {
	list := subnets(config)

	for i, one := range list {
		for _, other := range list[i+1:] {
			if !one.Overlaps(other.Prefix) {
				continue
			}

			severity := diagnosis.Warning
			if one.what == "pod" && other.what == "service" && other.Bits() <= one.Bits() &&
				config.CNI() == constants.FlannelCNI {
				severity = diagnosis.Failure // no pod gets an address
			}

			r.Add(severity, other.at, "choose subnets that don't overlap", "%s overlaps %s", one, other)
		}
	}
}

// checkNodeNetwork compares the networks of the links with the subnets. An address that lies in one is
// checkClusterSubnets'.
func checkNodeNetwork(r *check.Report, config *check.Rendered) {
	for _, link := range config.Links() {
		for _, address := range link.Addresses {
			for _, subnet := range subnets(config) {
				if address.Prefix.IsValid() && subnet.Overlaps(address.Prefix) && !subnet.Contains(address.Prefix.Addr()) {
					r.Found(address.At, "choose another "+subnet.what+" subnet, or correct the prefix length",
						"the network %s of %s overlaps %s", address.Prefix.Masked(), link.Label, subnet)
				}
			}
		}
	}
}

// checkEtcdSubnets looks for filters that leave etcd without an address. IPv6 routers and private networks as
// Tailscale's give nodes addresses that stand in no file.
func checkEtcdSubnets(r *check.Report, config *check.Rendered) {
	if !check.IsControlPlane(config) {
		return
	}

	etcd, addresses := config.Etcd(), config.OwnAddresses()

	if len(addresses) == 0 || config.UsesDHCP() {
		return
	}

	for _, list := range []struct {
		path    string
		filters []string
	}{
		{"cluster.etcd.advertisedSubnets", etcd.AdvertisedSubnets()},
		{"cluster.etcd.listenSubnets", etcd.ListenSubnets()},
	} {
		// Where they don't say what to listen on, Talos takes what they advertise.
		if len(list.filters) == 0 || !config.At(list.path).Exists() || slices.ContainsFunc(addresses,
			func(addr netip.Addr) bool { return selects(list.filters, addr) }) {
			continue
		}

		severity := diagnosis.Failure
		if slices.ContainsFunc(list.filters, mayBeLearned) || len(config.Addresses()) == 0 ||
			len(config.Provider.ExtensionServiceConfigs()) > 0 {
			severity = diagnosis.Warning
		}

		r.Add(severity, config.At(list.path), "put the subnet of "+config.Name+" into "+list.path,
			"%s (%s) leaves out %s, all that the files give the node", list.path, strings.Join(list.filters, ", "),
			check.Join(addresses))
	}
}

// mayBeLearned reports whether a filter selects addresses that a node can have without a word in its files.
func mayBeLearned(filter string) bool {
	prefix, err := netip.ParsePrefix(filter)

	return err == nil && (prefix.Addr().Is6() || prefix.Overlaps(check.SharedSpace))
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

// lacks reports whether there is a family that the other has not.
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

// checkFamilies compares the families of services, pods and the node. The first service subnet is the one that a node
// can't do without: the API server and the kubelet have addresses of its family. IPv6 addresses may come from a router,
// and pods' from a CNI of their own.
func checkFamilies(r *check.Report, config *check.Rendered) {
	pods, services := familiesOf(config.PodSubnets()), familiesOf(config.ServiceSubnets())

	if services.lacks(pods) || pods.lacks(services) {
		severity := diagnosis.Warning
		if pods.four != services.four && pods.six != services.six && config.CNI() == constants.FlannelCNI {
			severity = diagnosis.Failure // no service has a pod
		}

		r.Add(severity, networkPlace(config), "declare pod and service subnets of the same families",
			"the service subnets are %s, the pod subnets %s", services, pods)

		return
	}

	own := families{}
	for _, addr := range config.OwnAddresses() {
		own.four, own.six = own.four || addr.Is4(), own.six || addr.Is6()
	}

	mayComeFromRouter := own.four && config.ServiceSubnets()[0].Addr().Is4()

	if own != (families{}) && !config.UsesDHCP() && services.lacks(own) && !mayComeFromRouter {
		severity := diagnosis.Warning
		if !own.four && config.ServiceSubnets()[0].Addr().Is4() && len(config.Addresses()) > 0 {
			severity = diagnosis.Failure
		}

		r.Add(severity, networkPlace(config),
			"declare subnets of the nodes' families, or give "+config.Name+" an address of each",
			"the service subnets are %s, and all addresses of %s are %s", services, config.Name, own)
	}
}

// maxServiceBits is how many host bits the API server takes for services.
const maxServiceBits = 20

// checkServiceSize looks for service subnets that the API server refuses, or refused before Kubernetes 1.33.
func checkServiceSize(r *check.Report, config *check.Rendered) {
	for _, subnet := range subnets(config) {
		largest := subnet.Addr().BitLen() - maxServiceBits
		if subnet.what != "service" || subnet.Bits() >= largest {
			continue
		}

		severity := diagnosis.Warning
		if minor, known := config.KubernetesMinor(); known && minor < unlimitedServices {
			severity = diagnosis.Failure
		}

		r.Add(severity, subnet.at, fmt.Sprintf("use a /%d or smaller", largest), "%s is larger than /%d", subnet, largest)
	}
}

// unlimitedServices is the minor version of Kubernetes 1 whose API server allocates services without a table of all
// their addresses.
const unlimitedServices = 33

// checkPodSize looks for pod subnets that the nodes' parts don't fit into.
func checkPodSize(r *check.Report, in *check.Input) {
	config := in.Configs[0]
	nodes := 0

	for _, one := range in.Configs {
		nodes += max(1, len(one.Nodes))

		if check.IsControlPlane(one) && !check.IsControlPlane(config) {
			config = one // it runs the controller manager
		}
	}

	r.Config = config

	if givesNoParts(config) {
		return
	}

	for _, subnet := range subnets(config) {
		if subnet.what != "pod" {
			continue
		}

		part := nodeMask(config, subnet.Addr().Is4())

		switch bits := part - subnet.Bits(); {
		case bits < 0:
			r.Found(subnet.at, fmt.Sprintf("use a subnet larger than /%d", part), "%s is smaller than a node's part of it, /%d",
				subnet, part)
		case bits < 31 && nodes > 1<<bits:
			severity := diagnosis.Failure
			if config.CNI() != constants.FlannelCNI {
				severity = diagnosis.Warning // it may not use the parts
			}

			r.Add(severity, subnet.at, "use a larger pod subnet", "%s has room for %d nodes, at /%d each, and there are %d",
				subnet, 1<<bits, part, nodes)
		}
	}
}

// managerArguments are the controller manager's extra arguments by name.
func managerArguments(c *check.Rendered, name string) []string {
	return c.ControllerManager().ExtraArgs()[name]
}

// givesNoParts reports whether the controller manager is told to leave pods' addresses to others.
func givesNoParts(c *check.Rendered) bool {
	return slices.Contains(managerArguments(c, "allocate-node-cidrs"), "false") ||
		slices.ContainsFunc(managerArguments(c, "controllers"), func(list string) bool {
			return strings.Contains(list, "-node-ipam-controller") || strings.Contains(list, "-nodeipam")
		})
}

// nodeMask is the prefix length of a node's part of the pod subnet. The argument without a family is one family's only
// where there is one.
func nodeMask(c *check.Rendered, four bool) int {
	part, names := 64, []string{"node-cidr-mask-size-ipv6"}
	if four {
		part, names = 24, []string{"node-cidr-mask-size-ipv4"}
	}

	if has := familiesOf(c.PodSubnets()); !has.four || !has.six {
		names = append(names, "node-cidr-mask-size")
	}

	for _, name := range names {
		if values := managerArguments(c, name); len(values) > 0 {
			if set, err := strconv.Atoi(values[0]); err == nil {
				return set
			}
		}
	}

	return part
}

// checkSubnetsAgree compares the subnets of all configs with those of most.
func checkSubnetsAgree(r *check.Report, in *check.Input) {
	votes := map[string]int{}
	common := ""

	key := func(config *check.Rendered) string {
		texts := make([]string, 0, 2)
		for _, subnet := range subnets(config) {
			texts = append(texts, subnet.what+" "+subnet.Masked().String())
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
			r.Config = config

			// A worker takes no more from them than which of its addresses not to use, and where the cluster's DNS is.
			severity := diagnosis.Warning
			if check.IsControlPlane(config) && config.CNI() == constants.FlannelCNI {
				severity = diagnosis.Failure
			}

			r.Add(severity, networkPlace(config),
				"generate the machine configs again: `mage config:generate`",
				"%s has %s, and most others have %s", config.Name, mine, common)
		}
	}
}

// checkHostBits looks for subnets that are written as an address.
func checkHostBits(r *check.Report, config *check.Rendered) {
	for _, subnet := range subnets(config) {
		if subnet.Prefix != subnet.Masked() {
			r.Found(subnet.at, "write "+subnet.Masked().String(), "%s is an address in %s", subnet, subnet.Masked())
		}
	}
}
