package machineconfig

import (
	"strings"

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

// CNIManifests are the addresses of a custom CNI's manifests.
func (c *Config) CNIManifests() []string {
	if c.raw.ClusterConfig == nil {
		return nil
	}

	return c.raw.ClusterConfig.CNI().URLs()
}

// or is what is declared, or else a default.
func or[T comparable](declared, otherwise T) T {
	var none T

	if declared == none {
		return otherwise
	}

	return declared
}

// ControlPlaneTakesPods reports whether a control plane runs ordinary pods: nothing keeps them off it.
func (c *Config) ControlPlaneTakesPods() bool {
	return !strings.HasSuffix(c.Node().Taints()[constants.LabelNodeRoleControlPlane], constants.TaintEffectNoSchedule)
}

// CNI is "flannel" (Talos' default), "none" or "custom".
func (c *Config) CNI() string {
	if c.Provider.K8sFlannelCNIConfig() != nil {
		return constants.FlannelCNI
	}

	cluster := c.raw.ClusterConfig
	if cluster == nil || cluster.ClusterNetwork == nil && c.Provider.K8sNetworkConfig() != nil {
		return constants.NoneCNI
	}

	return cluster.CNI().Name()
}
