package names

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"

	"github.com/talos-mage/talos-mage/internal/base/host"
	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

var (
	notInHostname = pattern.New(`[^a-z0-9.-]+`)
)

// HostnameFault says what keeps a hostname from being a Kubernetes node name; empty when nothing does.
func HostnameFault(hostname string) string {
	switch name, _, _ := strings.Cut(hostname, "."); {
	case hostname == "":
		return "the hostname is empty"
	case len([]rune(name)) > maxLabel:
		return fmt.Sprintf("hostname %s has %d characters, at most %d are allowed", hostname, len([]rune(name)), maxLabel)
	case !host.IsLowerName(hostname):
		return fmt.Sprintf("hostname %s is no RFC 1123 name: lower-case letters, digits and hyphens are allowed", hostname)
	default:
		return ""
	}
}

// BetterHostname suggests a valid hostname that is most like another.
func BetterHostname(hostname string) string {
	corrected := notInHostname.ReplaceAllString(strings.ToLower(hostname), "-")

	var labels []string

	for label := range strings.SplitSeq(corrected, ".") {
		label = strings.Trim(label, "-")
		if len(label) > maxLabel {
			label = strings.Trim(label[:maxLabel], "-")
		}

		if label != "" {
			labels = append(labels, label)
		}
	}

	if len(labels) == 0 {
		return "use a name like cp1"
	}

	return "use " + strings.Join(labels, ".")
}

// checkNodeNames judges the names that nodes will register with. Machines that get their hostname elsewhere are judged
// once they answered.
func checkNodeNames(_ context.Context, r *check.Report, in *check.Input) {
	owners := make(map[string]*inventory.Node)

	for _, node := range in.Cluster.Nodes {
		config := in.ConfigOf(node)
		hostname := hostnameOf(node, config)
		place := in.Entry(node, "hostname")
		static := config != nil && config.Hostname() != ""

		if HostnameFault(hostname) != "" && (static || !node.IgnoreHostname) {
			named := place
			if static && hostname != node.Hostname {
				named = config.HostnamePlace(hostname)
			}

			tellHostname(r.As(diagnosis.HostnameInvalid).About(node), in, named, hostname)
		}

		if node.IgnoreHostname {
			continue
		}

		folded := nodeName(hostname, config)

		if first, taken := owners[folded]; taken {
			r.As(diagnosis.HostnameNotUnique).About(node).Found(place, in.Regenerate("rename one of the two"),
				"%s and %s would both be the Kubernetes node %s", first.Name, node.Name, folded)
		} else {
			owners[folded] = node
		}
	}

	r.About(nil).Passed(diagnosis.HostnameInvalid, "the hostnames are valid and differ")
}

// tellHostname tells of a hostname that is no node name. From 1.6 on Talos makes one of most.
func tellHostname(r *check.Report, in *check.Input, place check.Place, hostname string) {
	fault, next := HostnameFault(hostname), in.Regenerate(BetterHostname(hostname))

	talos := in.Release()
	if name := registeredName(hostname); HostnameFault(name) == "" &&
		(talos == nil || talos.Greater(config.TalosVersion1_5)) {
		r.Warn(place, next, "%s; the Kubernetes node will be called %s", fault, name)
	} else {
		r.Found(place, next, "%s", fault)
	}
}

// registeredName is the node name that Talos makes of a hostname: without capitals, underscores, and what node names
// can't have. Source: siderolabs/talos internal/app/machined/pkg/controllers/k8s/internal/nodename.
func registeredName(hostname string) string {
	name := strings.ReplaceAll(strings.ToLower(hostname), "_", "-")

	return strings.Trim(notInHostname.ReplaceAllString(name, ""), "-.")
}

// hostnameOf is the static hostname in the machine config, or the declared one where the file has none.
func hostnameOf(node *inventory.Node, config *check.Rendered) string {
	if config != nil && config.Hostname() != "" {
		return config.Hostname()
	}

	return node.Hostname
}

// nodeName is what Kubernetes calls a node: what Talos makes of its hostname, without the domain unless the kubelet
// registers with it.
func nodeName(hostname string, config *check.Rendered) string {
	name := registeredName(hostname)

	if config == nil || !config.Node().RegisterWithFQDN() {
		name, _, _ = strings.Cut(name, ".")
	}

	return name
}

// byName reports whether a node is declared by a DNS name.
func byName(node *inventory.Node) bool {
	_, err := netip.ParseAddr(node.Address)

	return err != nil && node.Address != ""
}

// checkCertifiedNames judges the certificates of the nodes that are declared by DNS name: they have to cover the name.
func checkCertifiedNames(r *check.Report, in *check.Input) {
	r.EachNode(func(node *inventory.Node, config *check.Rendered) {
		hostname := hostnameOf(node, config)
		short, _, _ := strings.Cut(hostname, ".")
		covered := append([]string{hostname, short}, config.CertSANs()...)

		if !byName(node) ||
			slices.ContainsFunc(covered, func(name string) bool { return check.CoversName(name, node.Address) }) {
			return
		}

		r.Found(in.Entry(node, "ipAddress"), in.Regenerate("add "+node.Address+" to certSANs of "+node.Name),
			"the node is declared as %s, and %s has it neither as hostname nor in certSANs: its certificate would not be for "+
				"that name", node.Address, in.Shown(config.Path))
	})
}

// checkResolution judges where the names of nodes lead: each has to lead to its node alone.
func checkResolution(ctx context.Context, r *check.Report, in *check.Input) {
	if in.Options.Checks.LookupHost == nil {
		return
	}

	for _, node := range slices.DeleteFunc(slices.Clone(in.Cluster.Nodes),
		func(node *inventory.Node) bool { return !byName(node) }) {
		addresses, err := in.Lookup(ctx, node.Address)
		place := in.Entry(node, "ipAddress")

		switch r.As(diagnosis.NameUnresolved).About(node); {
		case err != nil:
			r.Found(place, "add a DNS record for "+node.Address+", or declare the node by its IP address",
				"%s does not resolve", node.Address)
		case isEndpoint(ctx, in, node, addresses):
			r.As(diagnosis.NameAmbiguous).Fail(place, in.Regenerate("declare "+node.Name+" by an address of its own"),
				"%s is %s, the cluster's endpoint", node.Address, check.Join(addresses))
		case len(addresses) > 1:
			r.As(diagnosis.NameAmbiguous).Found(place, in.Regenerate("declare "+node.Name+" by a name with one address"),
				"%s has several addresses: %s", node.Address, check.Join(addresses))
		default:
			r.Seen("%s is %s", node.Address, check.Join(addresses))
		}
	}
}

// isEndpoint reports whether a node's name leads to the cluster's endpoint instead. Where a control plane itself is the
// endpoint, it may.
func isEndpoint(ctx context.Context, in *check.Input, node *inventory.Node, addresses []netip.Addr) bool {
	if in.Cluster.Endpoint == nil {
		return false
	}

	if slices.ContainsFunc(addresses, in.IsVIP) {
		return true
	}

	endpoints, err := in.Lookup(ctx, in.Cluster.Endpoint.Hostname())
	if err != nil {
		return false
	}

	single := node.Role == inventory.ControlPlane && len(in.Cluster.ControlPlanes()) == 1

	return !single && slices.ContainsFunc(addresses,
		func(addr netip.Addr) bool { return slices.Contains(endpoints, addr) })
}
