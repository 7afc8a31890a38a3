package audit

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/base/host"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Checks of names. Whether a hostname is a node's name, and nobody else's, is preflight's to say.
var nameChecks = []Check{
	whole(diagnosis.ClusterNameInvalid, Names, diagnosis.NeedsTalconfig, checkClusterName),
	eachConfig(diagnosis.DNSDomainInvalid, Names, checkDNSDomain),
	whole(diagnosis.FileNamesCollide, Names, diagnosis.NeedsTalconfig, checkFileNames),
	eachConfig(diagnosis.HostnameTwice, Names, checkHostnameTwice),
	eachConfig(diagnosis.HostnameMisleading, Names, checkMisleadingHostname),
	eachConfig(diagnosis.HostnameTooLong, Names, checkHostnameLength),
	whole(diagnosis.HostnameIsEndpoint, Names, diagnosis.NeedsTalconfig|diagnosis.NeedsConfig, checkHostnameIsEndpoint),
}

// checkClusterName looks at the name that files, contexts and certificates share.
func checkClusterName(r *Report, in *Input) {
	name := in.Cluster.Name
	if name == "" || host.IsLowerName(name) || in.Talconfig == nil {
		return
	}

	place := in.Talconfig.at("clusterName")

	if strings.ContainsAny(name, `/\:`) {
		r.add(diagnosis.Failure, place, "use lower-case letters, digits and hyphens",
			"clusterName %q can't be part of a file's name", name)

		return
	}

	r.found(place, "use lower-case letters, digits and hyphens",
		"clusterName %q is no name as Kubernetes and DNS have them", name)
}

// checkDNSDomain looks at the end of all services' names.
func checkDNSDomain(r *Report, config *Rendered) {
	domain := config.Provider.Cluster().Network().DNSDomain()
	place := config.File.at("cluster.network.dnsDomain")

	folded := strings.ToLower(strings.TrimSuffix(domain, "."))

	switch {
	case folded != domain && host.IsLowerName(folded):
		r.warn(place, "write "+folded, "dnsDomain %q is not as other programs write it", domain)
	case !host.IsLowerName(domain):
		r.found(place, "use cluster.local, or a name of your own domain", "dnsDomain %q is no DNS name in lower case", domain)
	case strings.HasSuffix(domain, ".local") && domain != "cluster.local":
		r.warn(place, "use cluster.local, or a name of your own domain",
			"dnsDomain %q ends in .local, which multicast DNS answers for", domain)
	}
}

// checkFileNames looks for files that are one where case does not count.
func checkFileNames(r *Report, in *Input) {
	first := map[string]string{}

	for _, node := range in.Cluster.Nodes {
		folded := strings.ToLower(node.ConfigFile)
		known, taken := first[folded]

		if taken && known != node.ConfigFile {
			r.found(in.node(node).field("hostname"), "rename one of the two",
				"the machine configs %s and %s differ in case alone", filepath.Base(known), filepath.Base(node.ConfigFile))
		}

		if !taken {
			first[folded] = node.ConfigFile
		}
	}
}

// hostnames are the static names that a config gives, with their places: the old field's and the document's.
func (c *Rendered) hostnames() map[string]at {
	names := map[string]at{}

	if network := c.Provider.RawV1Alpha1().MachineConfig.MachineNetwork; network != nil && network.NetworkHostname != "" { //nolint:staticcheck // old files have it
		names[network.NetworkHostname] = c.File.at("machine.network.hostname") //nolint:staticcheck // old files have it
	}

	if c.hasDocument("HostnameConfig") && c.Hostname() != "" {
		names[c.Hostname()] = c.File.in("HostnameConfig", "hostname")
	}

	return names
}

// checkHostnameTwice looks for a hostname in both styles.
func checkHostnameTwice(r *Report, config *Rendered) {
	network := config.Provider.RawV1Alpha1().MachineConfig.MachineNetwork                         //nolint:staticcheck // old files have it
	if network == nil || network.NetworkHostname == "" || !config.hasDocument("HostnameConfig") { //nolint:staticcheck // old files have it
		return
	}

	document := config.File.in("HostnameConfig", "hostname")
	r.found(document, "keep one of the two",
		"the hostname stands in machine.network.hostname (%s) and in a HostnameConfig document",
		r.in.locate(config.File.at("machine.network.hostname")))
}

// checkMisleadingHostname looks for names that mean something else already.
func checkMisleadingHostname(r *Report, config *Rendered) {
	domain := config.Provider.Cluster().Network().DNSDomain()

	for name, place := range config.hostnames() {
		folded := strings.ToLower(name)
		_, err := netip.ParseAddr(folded)

		switch {
		case err == nil:
			r.found(place, "use a name like cp1", "the hostname %s is an address", name)
		case folded == "localhost" || strings.HasPrefix(folded, "localhost."):
			r.found(place, "use a name like cp1", "the hostname %s is every machine's name for itself", name)
		case folded == "kubernetes" || strings.HasPrefix(folded, "kubernetes.default") ||
			strings.HasSuffix(folded, "."+domain):
			r.found(place, "use a name like cp1", "the hostname %s is one of the cluster's own DNS names", name)
		}
	}
}

// maxFQDN is the longest DNS name, maxLabel the longest part of one.
const (
	maxFQDN  = 253
	maxLabel = 63
)

// checkHostnameLength looks for names that are cut off.
func checkHostnameLength(r *Report, config *Rendered) {
	for name, place := range config.hostnames() {
		short, _, _ := strings.Cut(name, ".")

		if len(name) > maxFQDN || len(short) > maxLabel {
			r.found(place, "use a shorter name", "the hostname has %d characters, %d of them before the domain", len(name),
				len(short))
		}
	}
}

// checkHostnameIsEndpoint looks for a node that has the endpoint's name, where the endpoint has to be more than one.
func checkHostnameIsEndpoint(r *Report, in *Input) {
	if in.Cluster.Endpoint == nil || len(in.Cluster.ControlPlanes()) < 2 {
		return
	}

	endpoint := strings.ToLower(in.Cluster.Endpoint.Hostname())
	short, _, _ := strings.Cut(endpoint, ".")

	if _, err := netip.ParseAddr(endpoint); err == nil {
		return
	}

	for _, config := range in.Configs {
		for name, place := range config.hostnames() {
			if folded := strings.ToLower(name); slices.Contains([]string{endpoint, short}, folded) {
				r.config = config
				r.found(place, "give the node, or the endpoint, another name", "the node is called %s, as the endpoint %s", name,
					endpoint)
			}
		}
	}
}
