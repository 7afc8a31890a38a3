// Package names holds the checks of the names of the cluster and its nodes.
package names

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/base/host"
	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Checks are its rows of the table.
func Checks() []check.Check {
	return slices.Concat(
		[]check.Check{
			check.Whole(diagnosis.ClusterNameInvalid, check.Names, diagnosis.NeedsTalconfig, checkClusterName),
			check.EachConfig(diagnosis.DNSDomainInvalid, check.Names, checkDNSDomain),
			check.Whole(diagnosis.FileNamesCollide, check.Names, diagnosis.NeedsTalconfig, checkFileNames),
			check.EachConfig(diagnosis.HostnameTwice, check.Names, checkHostnameTwice),
			check.EachConfig(diagnosis.HostnameMisleading, check.Names, checkMisleadingHostname),
			check.EachConfig(diagnosis.HostnameTooLong, check.Names, checkHostnameLength),
			check.Whole(diagnosis.HostnameIsEndpoint, check.Names, diagnosis.NeedsTalconfig|diagnosis.NeedsConfig,
				checkHostnameIsEndpoint),
			check.Whole(diagnosis.NameNotCertified, check.Addresses, diagnosis.NeedsTalconfig|diagnosis.NeedsConfig,
				checkCertifiedNames),
		},
		check.Several(check.Names, diagnosis.NeedsTalconfig, checkNodeNames, diagnosis.HostnameInvalid,
			diagnosis.HostnameNotUnique),
		check.Several(check.Names, diagnosis.NeedsTalconfig|diagnosis.NeedsNetwork, checkResolution, diagnosis.NameUnresolved,
			diagnosis.NameAmbiguous),
	)
}

// checkClusterName looks at the name that files, contexts and certificates share.
func checkClusterName(r *check.Report, in *check.Input) {
	name := in.Cluster.Name
	if name == "" || host.IsLowerName(strings.ToLower(name)) || in.Talconfig == nil {
		return
	}

	place := in.Talconfig.At("clusterName")

	if strings.ContainsAny(name, `/\:`) {
		r.Add(diagnosis.Failure, place, "use lower-case letters, digits and hyphens",
			"clusterName %q can't be part of a file's name", name)

		return
	}

	r.Found(place, "use lower-case letters, digits and hyphens",
		"clusterName %q is no name as Kubernetes and DNS have them", name)
}

// checkDNSDomain looks at the end of all services' names.
func checkDNSDomain(r *check.Report, config *check.Rendered) {
	domain := config.Network().DNSDomain()
	place := config.At("cluster.network.dnsDomain")

	folded := strings.ToLower(strings.TrimSuffix(domain, "."))

	switch {
	case folded != domain && host.IsLowerName(folded):
		r.Warn(place, "write "+folded, "dnsDomain %q is not as other programs write it", domain)
	case !host.IsLowerName(domain):
		r.Found(place, "use cluster.local, or a name of your own domain", "dnsDomain %q is no DNS name in lower case", domain)
	case strings.HasSuffix(domain, ".local") && domain != "cluster.local":
		r.Warn(place, "use cluster.local, or a name of your own domain",
			"dnsDomain %q ends in .local, which multicast DNS answers for", domain)
	}
}

// checkFileNames looks for files that are one where case does not count.
func checkFileNames(r *check.Report, in *check.Input) {
	first := map[string]string{}

	for _, node := range in.Cluster.Nodes {
		folded := strings.ToLower(node.ConfigFile)
		known, taken := first[folded]

		if taken && known != node.ConfigFile {
			r.Found(in.Node(node).Field("hostname"), "rename one of the two",
				"the machine configs %s and %s differ in case alone", filepath.Base(known), filepath.Base(node.ConfigFile))
		}

		if !taken {
			first[folded] = node.ConfigFile
		}
	}
}

// checkHostnameTwice looks for a hostname in both styles.
func checkHostnameTwice(r *check.Report, config *check.Rendered) {
	if !config.HasBothHostnames() {
		return
	}

	document := config.File.In("HostnameConfig", "hostname")
	r.Found(document, "keep one of the two",
		"the hostname stands in machine.network.hostname (%s) and in a HostnameConfig document",
		r.In.Locate(config.File.At("machine.network.hostname")))
}

// checkMisleadingHostname looks for names that mean something else already.
func checkMisleadingHostname(r *check.Report, config *check.Rendered) {
	domain := config.Network().DNSDomain()

	for name, place := range config.Hostnames() {
		folded := strings.ToLower(name)
		_, err := netip.ParseAddr(folded)

		switch {
		case err == nil:
			r.Found(place, "use a name like cp1", "the hostname %s is an address", name)
		case folded == "localhost" || strings.HasPrefix(folded, "localhost."):
			r.Found(place, "use a name like cp1", "the hostname %s is every machine's name for itself", name)
		case folded == "kubernetes" || strings.HasPrefix(folded, "kubernetes.default") ||
			strings.HasSuffix(folded, "."+domain):
			r.Found(place, "use a name like cp1", "the hostname %s is one of the cluster's own DNS names", name)
		}
	}
}

// maxFQDN is the longest DNS name, maxLabel the longest part of one.
const (
	maxFQDN  = 253
	maxLabel = 63
)

// checkHostnameLength looks for names that are cut off. A node's short name is judged with its other faults.
func checkHostnameLength(r *check.Report, config *check.Rendered) {
	for name, place := range config.Hostnames() {
		short, _, _ := strings.Cut(name, ".")

		if len(name) > maxFQDN || len(short) > maxLabel && len(config.Nodes) == 0 {
			r.Found(place, "use a shorter name", "the hostname has %d characters, %d of them before the domain", len(name),
				len(short))
		}
	}
}

// checkHostnameIsEndpoint looks for a node that has the endpoint's name, where the endpoint has to be more than one.
func checkHostnameIsEndpoint(r *check.Report, in *check.Input) {
	if in.Cluster.Endpoint == nil || len(in.Cluster.ControlPlanes()) < 2 {
		return
	}

	endpoint := strings.ToLower(in.Cluster.Endpoint.Hostname())
	short, _, _ := strings.Cut(endpoint, ".")

	if _, err := netip.ParseAddr(endpoint); err == nil {
		return
	}

	for _, config := range in.Configs {
		for name, place := range config.Hostnames() {
			if folded := strings.ToLower(name); slices.Contains([]string{endpoint, short}, folded) {
				r.Config = config
				r.Found(place, "give the node, or the endpoint, another name", "the node is called %s, as the endpoint %s", name,
					endpoint)
			}
		}
	}
}
