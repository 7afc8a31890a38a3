package machineconfig

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/compatibility"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"
)

// What a config says of Kubernetes, in whichever of its two forms: fields of v1alpha1, or the documents that replace
// them since Talos 1.14. What it leaves out is as Talos' defaults have it; none of these is ever nil.

// Network is the cluster's.
func (c *Config) Network() config.K8sNetworkConfig {
	return or[config.K8sNetworkConfig](c.Provider.K8sNetworkConfig(), &v1alpha1.ClusterConfig{})
}

// Kubelet is the node's.
func (c *Config) Kubelet() config.K8sKubeletConfig {
	return or[config.K8sKubeletConfig](c.Provider.K8sKubeletConfig(), &v1alpha1.KubeletConfig{})
}

// Node is how the node is known to Kubernetes.
func (c *Config) Node() config.K8sNodeConfig {
	return or(c.Provider.K8sNodeConfig(), (&v1alpha1.Config{MachineConfig: &v1alpha1.MachineConfig{}}).K8sNodeConfig())
}

// APIServer is the control plane's.
func (c *Config) APIServer() config.K8sAPIServerConfig {
	return or(c.Provider.K8sAPIServerConfig(), (&v1alpha1.Config{}).K8sAPIServerConfig())
}

// ControllerManager is the control plane's.
func (c *Config) ControllerManager() config.K8sControllerManagerConfig {
	return or(c.Provider.K8sControllerManagerConfig(), (&v1alpha1.Config{}).K8sControllerManagerConfig())
}

// Scheduler is the control plane's.
func (c *Config) Scheduler() config.K8sSchedulerConfig {
	return or(c.Provider.K8sSchedulerConfig(), (&v1alpha1.Config{}).K8sSchedulerConfig())
}

// Proxy is kube-proxy.
func (c *Config) Proxy() config.K8sProxyConfig {
	return or(c.Provider.K8sProxyConfig(), (&v1alpha1.Config{}).K8sProxyConfig())
}

// HostDNS is the node's DNS cache.
func (c *Config) HostDNS() config.NetworkHostDNSConfig {
	return or[config.NetworkHostDNSConfig](c.Provider.NetworkHostDNSConfig(), &v1alpha1.HostDNSConfig{})
}

// or is what is declared, or else a default.
func or[T comparable](declared, otherwise T) T {
	var none T

	if declared == none {
		return otherwise
	}

	return declared
}

// HasNetwork reports whether the config says anything of Kubernetes' network. From Talos 1.14 on a node whose config
// does not starts no kubelet.
func (c *Config) HasNetwork() bool { return c.Provider.K8sNetworkConfig() != nil }

// KubernetesOf is the version of an image of Kubernetes; empty if its reference names none.
func KubernetesOf(image string) string {
	version, err := compatibility.KubernetesVersionFromImageRef(image)
	if err != nil {
		return ""
	}

	return "v" + version.String()
}

// RunsKubernetes reports whether the node is to be part of a Kubernetes cluster: it knows whom to trust there.
func (c *Config) RunsKubernetes() bool { return c.Provider.K8sAPIServerCAConfig() != nil }

// RegistersNode reports whether the node becomes one of Kubernetes'.
func (c *Config) RegistersNode() bool { return c.RunsKubernetes() && !c.Node().SkipNodeRegistration() }

// PodSubnets are the cluster's, or Talos' default.
func (c *Config) PodSubnets() []netip.Prefix { return validPrefixes(c.Network().PodCIDRs()) }

// ServiceSubnets are the cluster's, or Talos' default.
func (c *Config) ServiceSubnets() []netip.Prefix { return validPrefixes(c.Network().ServiceCIDRs()) }

// validPrefixes leaves out what stands for texts that are no subnets, which Validate refuses.
func validPrefixes(prefixes []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(prefixes), func(prefix netip.Prefix) bool { return !prefix.IsValid() })
}

// NodeLabels are the labels that the node gives itself, without the one that all control planes have.
func (c *Config) NodeLabels() map[string]string { return withoutRole(c.Node().Labels()) }

// NodeTaints are the taints that the node gives itself, without the one of control planes.
func (c *Config) NodeTaints() map[string]string { return withoutRole(c.Node().Taints()) }

func withoutRole(listed map[string]string) map[string]string {
	listed = maps.Clone(listed)
	delete(listed, constants.LabelNodeRoleControlPlane)

	return listed
}

// ControlPlaneTakesPods reports whether a control plane runs ordinary pods: nothing keeps them off it.
func (c *Config) ControlPlaneTakesPods() bool {
	taint := c.Node().Taints()[constants.LabelNodeRoleControlPlane]

	return taint != constants.TaintEffectNoSchedule && !strings.HasSuffix(taint, ":"+constants.TaintEffectNoSchedule)
}

// CNI is "flannel" (Talos' default), "none" or "custom". Where documents say it, they do so on control planes alone:
// on workers it is empty.
func (c *Config) CNI() string {
	older := c.raw.ClusterConfig.ClusterNetwork

	switch {
	case c.Provider.K8sFlannelCNIConfig() != nil, older == nil && !c.HasNetwork():
		return constants.FlannelCNI
	case older != nil && older.CNI != nil:
		return older.CNI.Name()
	case c.Role().IsControlPlane():
		return constants.NoneCNI
	default:
		return ""
	}
}

// CNIManifests are the addresses of a custom CNI's manifests; documents list them among all others.
func (c *Config) CNIManifests() []string { return c.raw.ClusterConfig.CNI().URLs() }

// Etcd is how a control plane runs etcd. No document replaces that section.
func (c *Config) Etcd() config.Etcd { return c.Provider.Cluster().Etcd() }

// HasExternalCloudProvider reports whether a cloud controller manager is to run.
func (c *Config) HasExternalCloudProvider() bool {
	return c.Provider.Cluster().ExternalCloudProvider().Enabled()
}

// InlineManifest is a text with objects of Kubernetes that control planes apply.
type InlineManifest struct {
	Name, Text string
	// Document and Key are where it stands.
	Document, Key string
}

// InlineManifests are those of documents, and of the older list.
func (c *Config) InlineManifests() []InlineManifest {
	const kind = "KubeInlineManifestConfig"

	var list []InlineManifest

	for _, document := range c.Provider.Documents() {
		if manifest, ok := document.(config.K8sInlineManifestConfig); ok && document.Kind() == kind {
			list = append(list, InlineManifest{manifest.Name(), manifest.Contents(), kind + "/" + manifest.Name(), "manifest"})
		}
	}

	for i, manifest := range c.raw.ClusterConfig.ClusterInlineManifests {
		list = append(list, InlineManifest{manifest.InlineManifestName, manifest.InlineManifestContents, "",
			fmt.Sprintf("cluster.inlineManifests[%d].contents", i)})
	}

	return list
}
