// Package interop holds the checks of the interoperability profile: how the cluster's parts fit each other.
package interop

import (
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/files/versions"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Checks are its rows of the table. Those that hold for every cluster run without the profile as well.
func Checks() []check.Check {
	const config, vms, cilium = diagnosis.NeedsConfig, diagnosis.NeedsVMs, diagnosis.NeedsCilium

	rows := slices.Concat(
		area(check.HostDNSArea,
			check.Whole(diagnosis.HostDNSOff, check.Interop, config, checkHostDNS),
			check.Whole(diagnosis.HostDNSNotForwarded, check.Interop, config, checkForwarding),
			check.Whole(diagnosis.HostDNSBehindCilium, check.Interop, config|cilium, checkCiliumMasquerade),
		),
		area(check.ResolverArea,
			check.Whole(diagnosis.ResolversDefault, check.Interop, config, checkResolversGiven),
			check.EachConfig(diagnosis.ResolverIsHostDNS, check.Interop, checkResolverIsHostDNS),
			check.EachConfig(diagnosis.ResolverSingle, check.Interop, checkSingleResolver),
			check.EachConfig(diagnosis.ResolverFamily, check.Interop, checkResolverFamily),
		),
		area(check.CiliumArea,
			check.Whole(diagnosis.CiliumBesideCNI, check.Interop, config|cilium, checkCiliumCNI),
			check.Whole(diagnosis.CiliumKubeProxy, check.Interop, config|cilium, checkCiliumKubeProxy),
			check.Whole(diagnosis.CiliumIPAM, check.Interop, cilium, checkCiliumIPAM),
			check.Whole(diagnosis.CiliumCgroup, check.Interop, cilium, checkCiliumCgroup),
			check.Whole(diagnosis.CiliumAPIServer, check.Interop, config|cilium, checkCiliumAPIServer),
			check.Whole(diagnosis.CiliumCapabilities, check.Interop, cilium, checkCiliumCapabilities),
			check.Whole(diagnosis.CiliumValueMisspelt, check.Interop, cilium, checkCiliumSpelling),
		),
		area(check.TimeArea,
			check.EachConfig(diagnosis.TimeSyncOff, check.Interop, checkTimeSync),
			check.Whole(diagnosis.TimeServersDefault, check.Interop, config, checkTimeServersGiven),
			check.Whole(diagnosis.TimeServersNamed, check.Interop, config, checkTimeServersNamed),
		),
		area(check.MetricsArea,
			check.Whole(diagnosis.EtcdMetricsOff, check.Interop, config, checkMetrics),
			check.EachConfig(diagnosis.EtcdMetricsURL, check.Interop, checkMetricsURLs),
			check.Whole(diagnosis.EtcdMetricsOpen, check.Interop, config, checkMetricsOpen),
			check.Whole(diagnosis.EtcdMetricsDiffer, check.Interop, config, checkMetricsDiffer),
		),
		area(check.LabelsArea,
			check.Whole(diagnosis.NodeLabelsNone, check.Interop, config, checkLabels),
			check.EachConfig(diagnosis.NodeLabelRefused, check.Interop, checkRefusedLabels),
			check.Whole(diagnosis.TopologyIncomplete, check.Interop, diagnosis.NeedsConfigs, checkTopology),
		),
		area(check.ProxmoxArea,
			eachVM(diagnosis.VMFirmware, config|vms, checkFirmware),
			eachVM(diagnosis.VMProcessor, vms, checkProcessor),
			eachVM(diagnosis.VMBallooning, vms, checkBallooning),
			eachVM(diagnosis.VMDiskController, vms, checkDiskController),
			eachVM(diagnosis.VMNetworkModel, vms, checkNetworkModel),
			eachVM(diagnosis.VMResources, vms|diagnosis.NeedsTalconfig, checkResources),
		),
	)

	for i := range rows {
		if paths := valuesRead[rows[i].ID]; len(paths) > 0 {
			rows[i] = rows[i].Except(unknownValues(rows[i].ID, paths...))
		}

		rows[i].ProfileOnly = !slices.Contains(alwaysRun, rows[i].ID)
	}

	return rows
}

// alwaysRun are the profile's checks of what no cluster can have.
var alwaysRun = []diagnosis.ID{diagnosis.EtcdMetricsURL, diagnosis.NodeLabelRefused}

func area(name check.Area, checks ...check.Check) []check.Check {
	for i := range checks {
		checks[i] = checks[i].Within(name)
	}

	return checks
}

// forwards reports whether CoreDNS asks the node's DNS cache.
func forwards(config *check.Rendered) bool {
	dns := config.HostDNS()

	return dns.HostDNSEnabled() && dns.ForwardKubeDNSToHost()
}

// hostDNSAddressOnLoopback reports whether the node has the cache's address on its loopback link, as a way around eBPF
// routing.
func hostDNSAddressOnLoopback(config *check.Rendered) bool {
	return slices.ContainsFunc(config.Links(), func(link *check.Link) bool {
		return link.Name == "lo" && slices.ContainsFunc(link.Addresses, func(address check.Address) bool {
			return address.Prefix.IsValid() && address.Prefix.Addr().String() == constants.HostDNSAddress
		})
	})
}

const hostDNSEnabled = "machine.features.hostDNS.enabled"

// checkHostDNS looks for nodes without a DNS cache.
func checkHostDNS(r *check.Report, in *check.Input) {
	off := false
	said := []string{"enabled"}

	for _, config := range in.Configs {
		if dns := config.HostDNS(); !dns.HostDNSEnabled() {
			off, r.Config = true, config
			r.Found(config.At(hostDNSEnabled), "set "+config.Called(hostDNSEnabled)+" to true", "host DNS is not enabled")
		}
	}

	all := func(holds func(*check.Rendered) bool) bool {
		return !slices.ContainsFunc(in.Configs, func(config *check.Rendered) bool { return !holds(config) })
	}

	if all(forwards) {
		said = append(said, "forwards kube-dns")
	}

	if all(func(config *check.Rendered) bool {
		return config.HostDNS().ResolveMemberNames()
	}) {
		said = append(said, "resolves member names")
	}

	if all(hostDNSAddressOnLoopback) {
		said = append(said, "with "+constants.HostDNSAddress+" on lo for Cilium's eBPF routing")
	}

	if !off {
		r.Config = nil
		r.Seen("%s", strings.Join(said, ", "))
	}
}

// checkForwarding suggests to let CoreDNS use the nodes' caches, where nothing is in the way.
func checkForwarding(r *check.Report, in *check.Input) {
	if values, _ := in.Cilium(); values != nil && routesInBPF(values) {
		return
	}

	for _, config := range in.Configs {
		if dns := config.HostDNS(); dns.HostDNSEnabled() && !dns.ForwardKubeDNSToHost() {
			r.Config = config
			r.Suggest(config.At("machine.features.hostDNS.forwardKubeDNSToHost"),
				"set "+config.Called("machine.features.hostDNS.forwardKubeDNSToHost")+" to true",
				"CoreDNS does not ask the node's DNS cache")
		}
	}
}

// checkResolversGiven suggests to name the name servers.
func checkResolversGiven(r *check.Report, in *check.Input) {
	var servers []string

	for _, config := range in.Configs {
		if texts := config.ResolverTexts(); len(texts) > 0 {
			servers = append(servers, texts...)

			continue
		}

		r.Config = config
		r.Suggest(config.At("machine.network"),
			"name the servers in machine.network.nameservers or a ResolverConfig document", "no name servers are configured")
	}

	if len(servers) > 0 {
		r.Config = nil
		r.Seen("custom resolvers configured: %s", strings.Join(check.Unique(servers), ", "))
	}
}

// checkResolverIsHostDNS looks for caches that ask themselves.
func checkResolverIsHostDNS(r *check.Report, config *check.Rendered) {
	for i, text := range config.ResolverTexts() {
		if addr, err := netip.ParseAddr(text); err == nil && (addr.IsLoopback() || text == constants.HostDNSAddress) {
			r.Found(config.ResolverPlace(i), "name the servers that the cache shall ask",
				"the name server %s is the node itself", text)
		}
	}
}

// checkSingleResolver suggests a second name server.
func checkSingleResolver(r *check.Report, config *check.Rendered) {
	if texts := config.ResolverTexts(); len(texts) == 1 {
		r.Suggest(config.ResolverPlace(0), "add a second name server", "%s is the only name server", texts[0])
	}
}

// checkResolverFamily looks for name servers that no address of the node can ask.
func checkResolverFamily(r *check.Report, config *check.Rendered) {
	texts, addresses := config.ResolverTexts(), config.Addresses()
	if len(texts) == 0 || len(addresses) == 0 || len(config.Provider.NetworkDHCPConfigs()) > 0 ||
		slices.ContainsFunc(config.Links(), func(link *check.Link) bool { return link.DHCP }) {
		return
	}

	own := map[bool]bool{}

	for _, prefix := range addresses {
		if addr := prefix.Addr(); !addr.IsLinkLocalUnicast() && !addr.IsLoopback() {
			own[addr.Is4()] = true
		}
	}

	if slices.ContainsFunc(texts, func(text string) bool {
		addr, err := netip.ParseAddr(text)

		return err != nil || own[addr.Unmap().Is4()]
	}) {
		return
	}

	r.Found(config.ResolverPlace(0), "name a server of the node's address family",
		"no address of the node is of the family of its name servers (%s)", strings.Join(texts, ", "))
}

// syncsTime reports whether the node sets its clock.
func syncsTime(config *check.Rendered) bool {
	sync := config.Provider.NetworkTimeSyncConfig()

	return sync == nil || !sync.Disabled()
}

// checkTimeSync looks for nodes that leave their clock alone.
func checkTimeSync(r *check.Report, config *check.Rendered) {
	if syncsTime(config) {
		return
	}

	place := config.At("machine.time.disabled")
	if config.HasDocument("TimeSyncConfig") {
		place = config.File.In("TimeSyncConfig", "enabled")
	}

	r.Found(place, "let the node set its clock", "time synchronisation is off")
}

// timeDevices reports whether a clock of the hypervisor is used instead of servers.
func timeDevices(config *check.Rendered) bool {
	line, _ := config.File.Places.Find("TimeSyncConfig", "ptp.devices")
	above, _ := config.File.Places.Find("TimeSyncConfig", "ptp")

	return config.HasDocument("TimeSyncConfig") && line > above
}

// checkTimeServersGiven suggests time servers of one's own.
func checkTimeServersGiven(r *check.Report, in *check.Input) {
	var servers []string

	for _, config := range in.Configs {
		texts := config.TimeServerTexts()

		switch {
		case !syncsTime(config):
		case timeDevices(config):
			servers = append(servers, "a PTP device")
		case len(texts) == 0:
			r.Config = config
			r.Suggest(config.At("machine.time"), "name servers in machine.time.servers or a TimeSyncConfig document",
				"no time servers are configured, so %s is asked", constants.DefaultNTPServer)
		default:
			servers = append(servers, texts...)
		}
	}

	if len(servers) > 0 {
		r.Config = nil
		r.Seen("time servers configured: %s", strings.Join(check.Unique(servers), ", "))
	}
}

// checkTimeServersNamed suggests a time server that needs no name server.
func checkTimeServersNamed(r *check.Report, in *check.Input) {
	for _, config := range in.Configs {
		texts := config.TimeServerTexts()
		if len(texts) == 0 || !syncsTime(config) || slices.ContainsFunc(texts, func(text string) bool {
			_, err := netip.ParseAddr(text)

			return err == nil
		}) {
			continue
		}

		r.Config = config
		r.Suggest(config.TimeServerPlace(0), "add a time server by its address",
			"the time servers are known by name alone (%s)", strings.Join(texts, ", "))
	}
}

const metricsArgument = "listen-metrics-urls"

// metricsURLs are where a control plane's etcd serves its metrics, as they are written.
func metricsURLs(config *check.Rendered) []string {
	if !check.IsControlPlane(config) {
		return nil
	}

	var urls []string

	for _, value := range config.Etcd().ExtraArgs()[metricsArgument] {
		for text := range strings.SplitSeq(value, ",") {
			urls = append(urls, strings.TrimSpace(text))
		}
	}

	return urls
}

func metricsPlace(config *check.Rendered) check.Place {
	return config.At("cluster.etcd.extraArgs." + metricsArgument)
}

// checkMetrics suggests to serve etcd's metrics where no control plane does.
func checkMetrics(r *check.Report, in *check.Input) {
	var ports []string

	var first *check.Rendered

	for _, config := range in.Configs {
		if check.IsControlPlane(config) && first == nil {
			first = config
		}

		for _, text := range metricsURLs(config) {
			if parsed, err := url.Parse(text); err == nil && parsed.Port() != "" {
				ports = append(ports, parsed.Port())
			}
		}
	}

	switch {
	case first == nil:
	case len(ports) == 0:
		r.Config = first
		r.Suggest(metricsPlace(first), "set cluster.etcd.extraArgs."+metricsArgument+": http://0.0.0.0:2381",
			"etcd serves no metrics")
	default:
		r.Seen("metrics endpoint on port %s", strings.Join(check.Unique(ports), ", "))
	}
}

// checkMetricsURLs looks for URLs that etcd refuses to start with.
func checkMetricsURLs(r *check.Report, config *check.Rendered) {
	for _, text := range metricsURLs(config) {
		if why := badMetricsURL(text, etcdPorts(r.In, config)); why != "" {
			r.Found(metricsPlace(config), "write it as http://0.0.0.0:2381", "etcd can't listen at %q: %s", text, why)
		}
	}
}

// etcdPorts are those at which etcd listens whatever its metrics do.
func etcdPorts(in *check.Input, config *check.Rendered) []string {
	ports := []string{strconv.Itoa(constants.EtcdClientPort), strconv.Itoa(constants.EtcdPeerPort)}

	if versions.WillRunFrom(in, config, talosconfig.TalosVersion1_14) {
		ports = append(ports, strconv.Itoa(constants.EtcdClientHTTPPort))
	}

	return ports
}

func badMetricsURL(text string, taken []string) string {
	parsed, err := url.Parse(text)

	switch {
	case err != nil:
		return "it is no URL"
	case parsed.Scheme == "unix" || parsed.Scheme == "unixs":
		return ""
	case parsed.Scheme != "http" && parsed.Scheme != "https":
		return "it has to begin with http:// or https://"
	case parsed.Port() == "":
		return "it has no port"
	case parsed.Path != "":
		return "it must not have a path"
	case slices.Contains(taken, parsed.Port()):
		return "port " + parsed.Port() + " is etcd's own"
	case parsed.Hostname() == "localhost":
		return ""
	}

	if _, err := netip.ParseAddr(parsed.Hostname()); err != nil {
		return strconv.Quote(parsed.Hostname()) + " is no address of the node"
	}

	return ""
}

// checkMetricsOpen suggests to shut the metrics' port to those who have no business there.
func checkMetricsOpen(r *check.Report, in *check.Input) {
	for _, config := range in.Configs {
		if rules := config.Provider.NetworkRules(); rules != nil && rules.DefaultAction() == nethelpers.DefaultActionBlock {
			continue
		}

		for _, text := range metricsURLs(config) {
			parsed, err := url.Parse(text)
			if err != nil || badMetricsURL(text, etcdPorts(in, config)) != "" {
				continue
			}

			if addr, err := netip.ParseAddr(parsed.Hostname()); err == nil && addr.IsUnspecified() {
				r.Config = config
				r.Suggest(metricsPlace(config),
					"open port "+parsed.Port()+" to your monitoring alone: NetworkRuleConfig, and NetworkDefaultActionConfig with "+
						"ingress: block",
					"everybody who reaches the node can read etcd's metrics at port %s", parsed.Port())

				return // one control plane stands for all
			}
		}
	}
}

// checkMetricsDiffer looks for control planes that monitoring does not see.
func checkMetricsDiffer(r *check.Report, in *check.Input) {
	var with, without []*check.Rendered

	for _, config := range in.Configs {
		switch {
		case !check.IsControlPlane(config):
		case len(metricsURLs(config)) > 0:
			with = append(with, config)
		default:
			without = append(without, config)
		}
	}

	if len(with) == 0 {
		return
	}

	for _, config := range without {
		r.Config = config
		r.Found(metricsPlace(config), "give all control planes the same cluster.etcd.extraArgs",
			"etcd serves no metrics, and on %s it does", with[0].Name)
	}
}

// topologyLabels are those by which pods are spread and storage is placed.
var topologyLabels = []string{"topology.kubernetes.io/region", "topology.kubernetes.io/zone"}

// checkLabels suggests topology labels where no node has any.
func checkLabels(r *check.Report, in *check.Input) {
	var labels []string

	external := false

	for _, config := range in.Configs {
		external = external || config.HasExternalCloudProvider()

		for label := range config.NodeLabels() {
			if slices.Contains(topologyLabels, label) {
				labels = append(labels, label)
			}
		}
	}

	slices.Sort(labels)

	if labels = slices.Compact(labels); len(labels) > 0 {
		r.Seen("topology labels set: %s", strings.Join(labels, ", "))

		return
	}

	change := "set topology.kubernetes.io/region and zone in machine.nodeLabels"
	if external {
		change += ", unless your cloud controller manager sets them"
	}

	r.Suggest(check.Place{}, change, "no topology labels configured (optional)")
}

// labelPlace is where a label is set.
func labelPlace(c *check.Rendered, label string) check.Place {
	for _, root := range c.File.Places.Roots() {
		for _, path := range [][]string{{"machine", "nodeLabels", label}, {"labels", label}} {
			if value := check.Follow(root, path...); value != nil {
				return c.File.Node(value)
			}
		}
	}

	return c.At("machine.nodeLabels")
}

// checkRefusedLabels looks for labels that a kubelet may not give its own node.
func checkRefusedLabels(r *check.Report, config *check.Rendered) {
	if check.IsControlPlane(config) {
		return
	}

	for _, label := range slices.Sorted(maps.Keys(config.NodeLabels())) {
		if check.RefusedToKubelets(label) {
			r.Found(labelPlace(config, label),
				"take it out, and run: kubectl label node "+config.Name+" "+label+"="+config.NodeLabels()[label],
				"a worker may not set the label %s itself", label)
		}
	}
}

// checkTopology looks for nodes that pods are never spread to.
func checkTopology(r *check.Report, in *check.Input) {
	for _, label := range topologyLabels {
		var with, without []*check.Rendered

		for _, config := range in.Configs {
			if _, set := config.NodeLabels()[label]; set {
				with = append(with, config)
			} else if !check.IsControlPlane(config) || config.ControlPlaneTakesPods() {
				without = append(without, config)
			}
		}

		if len(with) == 0 {
			continue
		}

		for _, config := range without {
			r.Config = config
			r.Found(config.At("machine.nodeLabels"), "set "+label+" on every node",
				"the label %s is not set, and on %s it is", label, with[0].Name)
		}
	}
}
