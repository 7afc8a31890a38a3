package machine

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"strings"

	"github.com/siderolabs/crypto/x509"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/labels"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/kubernetes"
)

// What a machine config says of Kubernetes, in whichever of its two forms. Machinery's accessors are nil for what a
// config leaves out.

// endpoint is the cluster's; an empty URL where there is none.
func endpoint(c talosconfig.Provider) *url.URL {
	if cluster := c.K8sClusterConfig(); cluster != nil {
		return cluster.ClusterEndpoint()
	}

	return &url.URL{}
}

// clusterID is the one that discovery uses; empty where there is none.
func clusterID(c talosconfig.Provider) string {
	if identity := c.DiscoveryIdentityConfig(); identity != nil {
		return identity.ClusterID()
	}

	return ""
}

// discovers reports whether the machine looks for the other members of its cluster.
func discovers(c talosconfig.Provider) bool {
	return c.Cluster().Discovery().Enabled() || len(c.DiscoveryServiceConfigs()) > 0
}

// kubeletImage is empty for a node without Kubernetes.
func kubeletImage(c talosconfig.Provider) string {
	if kubelet := c.K8sKubeletConfig(); kubelet != nil {
		return kubelet.Image()
	}

	return ""
}

// clusterNetwork is the cluster's; Talos' defaults where the config has none, as Talos up to 1.13 takes them.
func clusterNetwork(c talosconfig.Provider) config.K8sNetworkConfig {
	if declared := c.K8sNetworkConfig(); declared != nil {
		return declared
	}

	return &v1alpha1.ClusterConfig{}
}

// cni is "flannel", "none" or, of a config in the older form, "custom".
func cni(c talosconfig.Provider) string {
	if c.K8sFlannelCNIConfig() != nil {
		return constants.FlannelCNI
	}

	raw := c.RawV1Alpha1()
	if raw == nil || raw.ClusterConfig == nil || raw.ClusterConfig.ClusterNetwork == nil && c.K8sNetworkConfig() != nil {
		return constants.NoneCNI
	}

	return raw.ClusterConfig.CNI().Name()
}

// dnsAddresses are the addresses of the cluster's DNS service: the tenth of each service subnet.
func dnsAddresses(c talosconfig.Provider) []netip.Addr {
	var addresses []netip.Addr

	for _, subnet := range clusterNetwork(c).ServiceCIDRs() {
		address := subnet.Masked().Addr()
		for range 10 {
			address = address.Next()
		}

		addresses = append(addresses, address)
	}

	return addresses
}

// issuingCA is nil where the API server's certificates are not made: on workers.
func issuingCA(c talosconfig.Provider) *x509.PEMEncodedCertificateAndKey {
	if ca := c.K8sAPIServerCAConfig(); ca != nil {
		return ca.IssuingCA()
	}

	return nil
}

// apiServerNames are the extra names in the API server's certificate.
func apiServerNames(c talosconfig.Provider) []string {
	if server := c.K8sAPIServerConfig(); server != nil {
		return server.CertSANs()
	}

	return nil
}

// componentImage is what a static pod of the control plane runs.
func componentImage(c talosconfig.Provider, component string) string {
	switch component {
	case k8s.APIServerID:
		if server := c.K8sAPIServerConfig(); server != nil {
			return server.Image()
		}
	case k8s.ControllerManagerID:
		if manager := c.K8sControllerManagerConfig(); manager != nil {
			return manager.Image()
		}
	case k8s.SchedulerID:
		if scheduler := c.K8sSchedulerConfig(); scheduler != nil {
			return scheduler.Image()
		}
	}

	return ""
}

// imageTag is the tag of an image, such as "v1.36.3"; empty without one.
func imageTag(image string) string {
	name, tag, _ := strings.Cut(image[strings.LastIndexByte(image, '/')+1:], ":")
	if name == "" {
		return ""
	}

	tag, _, _ = strings.Cut(tag, "@")

	return tag
}

// apiForPods is where pods find the API server.
func apiForPods(c talosconfig.Provider) string {
	if prism := c.K8sKubePrismConfig(); prism != nil {
		return fmt.Sprintf("https://127.0.0.1:%d", prism.Port())
	}

	return endpoint(c).String()
}

// proxy reports whether kube-proxy runs.
func proxy(c talosconfig.Provider) bool {
	return c.K8sProxyConfig() != nil && c.K8sProxyConfig().Enabled()
}

func proxyImage(c talosconfig.Provider) string {
	if config := c.K8sProxyConfig(); config != nil {
		return config.Image()
	}

	return ""
}

// coreDNS reports whether CoreDNS runs.
func coreDNS(c talosconfig.Provider) bool {
	return c.K8sCoreDNSConfig() != nil && c.K8sCoreDNSConfig().Enabled()
}

func coreDNSImage(c talosconfig.Provider) string {
	if config := c.K8sCoreDNSConfig(); config != nil {
		return config.Image()
	}

	return ""
}

func subnetTexts(subnets []netip.Prefix) []string {
	texts := make([]string, 0, len(subnets))
	for _, subnet := range subnets {
		texts = append(texts, subnet.String())
	}

	return texts
}

// hasKubernetes reports whether the machine config declares a Kubernetes cluster. Up to Talos 1.13 every machine is
// asked for it, even without a config.
func (b *Boot) hasKubernetes() bool {
	if !b.Release.OptionalParts {
		return true
	}

	config := b.Config.Active()

	return config != nil && config.K8sAPIServerConfig() != nil && config.K8sClusterConfig() != nil
}

// runsKubelet reports whether the machine config has all that kubelet needs.
func (b *Boot) runsKubelet() bool {
	if !b.Release.OptionalParts {
		return true
	}

	config := b.Config.Active()

	return b.hasKubernetes() && config.K8sNetworkConfig() != nil && config.K8sNodeConfig() != nil &&
		config.K8sKubeletConfig() != nil
}

// leavesNodesToCloud reports whether a cloud controller manager looks after the nodes.
func leavesNodesToCloud(c talosconfig.Provider) bool {
	return c.Cluster() != nil && c.Cluster().ExternalCloudProvider().Enabled()
}

// declaredNode is what the machine config says of the Kubernetes node. The extensions of the image are labels too, or
// annotations where no label can be so long. Source: Talos node_label_spec.go and its neighbours.
func (b *Boot) declaredNode() kubernetes.Declared {
	declared := kubernetes.Declared{Labels: map[string]string{}, Annotations: map[string]string{}}

	if node := b.Config.Settings().K8sNodeConfig(); node != nil {
		maps.Copy(declared.Labels, node.Labels())
		maps.Copy(declared.Annotations, node.Annotations())
		declared.Taints = node.Taints()
	}

	for _, extension := range b.extensions() {
		name := constants.K8sExtensionPrefix + extension.Name

		if labels.ValidateLabelValue(extension.Version) == nil {
			declared.Labels[name] = extension.Version
		} else {
			declared.Annotations[name] = extension.Version
		}
	}

	return declared
}
