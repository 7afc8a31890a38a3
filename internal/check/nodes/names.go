package preflight

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/base/host"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// maxHostname is the longest hostname, in characters: Linux and Kubernetes' labels agree on it.
const maxHostname = 63

var notInHostname = regexp.MustCompile(`[^a-z0-9.-]+`)

// hostnameFault says what keeps a hostname from being a Kubernetes node name; empty when nothing does.
func hostnameFault(hostname string) string {
	switch name, _, _ := strings.Cut(hostname, "."); {
	case hostname == "":
		return "the hostname is empty"
	case len([]rune(name)) > maxHostname:
		return fmt.Sprintf("hostname %s has %d characters, at most %d are allowed", hostname, len([]rune(name)), maxHostname)
	case !host.IsLowerName(hostname):
		return fmt.Sprintf("hostname %s is no RFC 1123 name: lower-case letters, digits and hyphens are allowed", hostname)
	default:
		return ""
	}
}

// correctedHostname is the nearest valid hostname; empty when nothing of the name is left.
func correctedHostname(hostname string) string {
	corrected := notInHostname.ReplaceAllString(strings.ToLower(hostname), "-")

	var labels []string

	for label := range strings.SplitSeq(corrected, ".") {
		label = strings.Trim(label, "-")
		if len(label) > maxHostname {
			label = strings.Trim(label[:maxHostname], "-")
		}

		if label != "" {
			labels = append(labels, label)
		}
	}

	return strings.Join(labels, ".")
}

func suggestion(hostname string) string {
	if corrected := correctedHostname(hostname); corrected != "" {
		return "use " + corrected
	}

	return "use a name like cp1"
}

// checkHostnames judges the names that nodes will register with. Machines that get their hostname elsewhere are judged
// once they answered.
func checkHostnames(_ context.Context, w whole) []diagnosis.Finding {
	var findings []diagnosis.Finding

	owners := make(map[string]*inventory.Node)

	for _, node := range w.cluster.Nodes {
		hostname := hostnameOf(node, w.configs[node.Name])
		static := w.configs[node.Name] != nil && w.configs[node.Name].Hostname() != ""

		if fault := hostnameFault(hostname); fault != "" && (static || !node.IgnoreHostname) {
			findings = append(findings,
				w.about(node, diagnosis.HostnameInvalid, diagnosis.Failure, w.regenerate(suggestion(hostname)), "%s", fault)...)
		}

		if node.IgnoreHostname {
			continue
		}

		folded := nodeName(hostname, w.configs[node.Name])

		if first, taken := owners[folded]; taken {
			findings = append(findings,
				w.about(node, diagnosis.HostnameNotUnique, diagnosis.Failure, w.regenerate("rename one of the two"),
					"%s and %s would both be the Kubernetes node %s", first.Name, node.Name, folded)...)
		} else {
			owners[folded] = node
		}
	}

	return w.okUnless(findings, diagnosis.HostnameInvalid, "the hostnames are valid and differ")
}

// hostnameOf is the static hostname in the machine config, or the declared one where the file has none.
func hostnameOf(node *inventory.Node, config *machineconfig.Config) string {
	if config != nil && config.Hostname() != "" {
		return config.Hostname()
	}

	return node.Hostname
}

// nodeName is what Kubernetes makes of a hostname: lower case, and without the domain unless the kubelet registers with
// it.
func nodeName(hostname string, config *machineconfig.Config) string {
	name := strings.ToLower(hostname)

	if config == nil || !config.Provider.Machine().Kubelet().RegisterWithFQDN() {
		name, _, _ = strings.Cut(name, ".")
	}

	return name
}

// checkLiveHostname judges the hostname that a machine got from DHCP. Talos repairs most of them: a warning.
func checkLiveHostname(_ context.Context, s subject) []diagnosis.Finding {
	if !s.node.IgnoreHostname || s.facts.Hostname == "" {
		return nil
	}

	if fault := hostnameFault(s.facts.Hostname); fault != "" {
		return s.warn(diagnosis.HostnameInvalid, suggestion(s.facts.Hostname)+" in the DHCP server", "%s", fault)
	}

	return s.ok(diagnosis.HostnameInvalid, "hostname %s", s.facts.Hostname)
}

// byName are the nodes that are declared by a DNS name.
func (w whole) byName() []*inventory.Node {
	return slices.DeleteFunc(slices.Clone(w.cluster.Nodes), func(node *inventory.Node) bool {
		_, err := netip.ParseAddr(node.Address)

		return err == nil || node.Address == ""
	})
}

// checkResolution judges where the names of nodes lead: each has to lead to its node alone.
func checkResolution(_ context.Context, w whole) []diagnosis.Finding {
	var findings []diagnosis.Finding

	for _, node := range w.byName() {
		findings = append(findings, w.resolves(node)...)
	}

	return findings
}

// checkNames judges the certificates of the nodes that are declared by DNS name: they have to cover the name.
func checkNames(_ context.Context, w whole) []diagnosis.Finding {
	var findings []diagnosis.Finding

	for _, node := range w.byName() {
		config := w.configs[node.Name]
		if config == nil || covers(config, node) {
			continue
		}

		findings = append(findings, w.about(node, diagnosis.NameNotCertified, diagnosis.Failure,
			w.regenerate("add "+node.Address+" to certSANs of "+node.Name),
			"the node is declared as %s, and %s has it neither as hostname nor in certSANs: its certificate would not be for "+
				"that name",
			node.Address, config.Path)...)
	}

	return findings
}

// covers reports whether the certificate that Talos will make for a node is for the name that it is declared by.
func covers(config *machineconfig.Config, node *inventory.Node) bool {
	hostname := hostnameOf(node, config)
	short, _, _ := strings.Cut(hostname, ".")
	names := append([]string{hostname, short}, config.CertSANs()...)

	return slices.ContainsFunc(names, func(name string) bool { return CoversName(name, node.Address) })
}

// CoversName compares a name of a certificate with a host's; a leading * stands for one label.
func CoversName(certified, host string) bool {
	if parent, wildcard := strings.CutPrefix(certified, "*."); wildcard {
		_, rest, _ := strings.Cut(host, ".")

		return strings.EqualFold(parent, rest)
	}

	return strings.EqualFold(certified, host)
}

func (w whole) resolves(node *inventory.Node) []diagnosis.Finding {
	if w.names == nil {
		return nil
	}

	addresses, err := w.names.lookup(node.Address)

	switch {
	case err != nil:
		return w.about(node, diagnosis.NameUnresolved, diagnosis.Failure,
			"add a DNS record for "+node.Address+", or declare the node by its IP address",
			"%s does not resolve", node.Address)
	case w.isEndpoint(node, addresses):
		return w.about(node, diagnosis.NameAmbiguous, diagnosis.Failure,
			w.regenerate("declare "+node.Name+" by an address of its own"),
			"%s is %s, the cluster's endpoint", node.Address, join(addresses))
	case len(addresses) > 1:
		return w.about(node, diagnosis.NameAmbiguous, diagnosis.Warning,
			w.regenerate("declare "+node.Name+" by a name with one address"),
			"%s has several addresses: %s", node.Address, join(addresses))
	default:
		return w.about(node, diagnosis.NameUnresolved, diagnosis.OK, "", "%s is %s", node.Address, join(addresses))
	}
}

// isEndpoint reports whether a node's name leads to the cluster's endpoint instead. Where a control plane itself is the
// endpoint, it may.
func (w whole) isEndpoint(node *inventory.Node, addresses []netip.Addr) bool {
	if w.cluster.Endpoint == nil {
		return false
	}

	if slices.ContainsFunc(addresses, func(address netip.Addr) bool { return slices.Contains(w.vips(), address) }) {
		return true
	}

	endpoints, err := w.names.lookup(w.cluster.Endpoint.Hostname())
	if err != nil {
		return false
	}

	single := node.Role == inventory.ControlPlane && len(w.cluster.ControlPlanes()) == 1

	return !single && slices.ContainsFunc(addresses,
		func(address netip.Addr) bool { return slices.Contains(endpoints, address) })
}
