package interop

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// replacesKubeProxy reports whether Cilium is known to serve Services. Old charts have "strict" and "partial" for it.
func replacesKubeProxy(v *check.HelmValues) bool {
	return v.Is("kubeProxyReplacement", "true", "strict")
}

// routesInBPF reports whether Cilium is known to route past the host's network stack.
func routesInBPF(v *check.HelmValues) bool {
	return replacesKubeProxy(v) && v.Is("bpf.masquerade", "true") && v.Is("bpf.hostLegacyRouting", "", "false")
}

// checkCiliumMasquerade looks for DNS caches that eBPF routing goes past.
func checkCiliumMasquerade(r *check.Report, in *check.Input) {
	values, _ := in.Cilium()
	if !routesInBPF(values) {
		return
	}

	for _, config := range in.Configs {
		if forwards(config) && !hostDNSAddressOnLoopback(config) {
			r.Config = config
			r.Found(values.At("bpf.masquerade"),
				"set bpf.hostLegacyRouting to true in Cilium's values, or "+
					config.Called("machine.features.hostDNS.forwardKubeDNSToHost")+" to false",
				"CoreDNS forwards to the node's DNS cache (%s), which Cilium's bpf.masquerade cuts off",
				r.In.Locate(config.At("machine.features.hostDNS.forwardKubeDNSToHost")))
		}
	}
}

// checkCiliumCNI looks for a second CNI.
func checkCiliumCNI(r *check.Report, in *check.Input) {
	for _, config := range in.Configs {
		name := config.CNI()
		if !check.IsControlPlane(config) || name == constants.NoneCNI {
			continue
		}

		// The manifests of a custom CNI may be Cilium's own.
		if urls := config.CNIManifests(); name == constants.CustomCNI &&
			slices.ContainsFunc(urls, func(url string) bool {
				return strings.Contains(strings.ToLower(url), "cilium")
			}) {
			continue
		}

		r.Config = config
		r.Found(config.At("cluster.network.cni.name"), withoutCNI(config),
			"Talos installs the CNI %s, and Cilium is to be installed", name)
	}
}

// withoutCNI says how to have Talos install none.
func withoutCNI(config *check.Rendered) string {
	if config.InDocuments() {
		return "take the KubeFlannelCNIConfig out"
	}

	return "set cluster.network.cni.name to none"
}

// withoutKubeProxy says how to have Talos run no kube-proxy.
func withoutKubeProxy(config *check.Rendered) string {
	if config.InDocuments() {
		return "set enabled of KubeProxyConfig to false"
	}

	return "set cluster.proxy.disabled to true"
}

// withKubePrism says how to have Talos balance the Kubernetes API on each node.
func withKubePrism(config *check.Rendered) string {
	if config.InDocuments() {
		return "add a KubePrismConfig"
	}

	return "set machine.features.kubePrism.enabled to true"
}

// checkCiliumKubeProxy looks for two that serve Services, or none.
func checkCiliumKubeProxy(r *check.Report, in *check.Input) {
	values, _ := in.Cilium()
	replaces, leaves := replacesKubeProxy(values), values.Is("kubeProxyReplacement", "", "false", "disabled")

	for _, config := range in.Configs {
		if !check.IsControlPlane(config) {
			continue // the control planes alone run kube-proxy's manifest
		}

		runs := config.Proxy().Enabled()

		switch {
		case replaces && runs:
			r.Config = config
			r.Found(values.At("kubeProxyReplacement"), withoutKubeProxy(config),
				"Cilium replaces kube-proxy, and Talos runs it (%s)", in.Locate(config.At("cluster.proxy")))
		case leaves && !runs:
			r.Config = config
			r.Found(values.At("kubeProxyReplacement"), "set kubeProxyReplacement to true",
				"Cilium does not replace kube-proxy, and Talos does not run it (%s)",
				in.Locate(config.At("cluster.proxy.disabled")))
		}
	}
}

// checkCiliumIPAM looks for pods' addresses that come from elsewhere.
func checkCiliumIPAM(r *check.Report, in *check.Input) {
	values, _ := in.Cilium()

	if mode := values.Get("ipam.mode"); !mode.Unknown && mode.Text != "kubernetes" {
		r.Found(values.At("ipam.mode"), "set ipam.mode to kubernetes", "ipam.mode is %s",
			orDefault(mode.Text, "cluster-pool"))
	}
}

func orDefault(text, byDefault string) string {
	if text == "" {
		return byDefault + ", the chart's default"
	}

	return text
}

// checkCiliumCgroup looks for mounts that Talos has made already.
func checkCiliumCgroup(r *check.Report, in *check.Input) {
	values, _ := in.Cilium()

	if mounts := values.Get("cgroup.autoMount.enabled"); !mounts.Unknown && strings.ToLower(mounts.Text) != "false" {
		r.Found(values.At("cgroup.autoMount.enabled"), "set cgroup.autoMount.enabled to false",
			"cgroup.autoMount.enabled is %s", orDefault(mounts.Text, "true"))
	}

	if root := values.Get("cgroup.hostRoot"); !root.Unknown &&
		strings.TrimSuffix(root.Text, "/") != constants.CgroupMountPath {
		r.Found(values.At("cgroup.hostRoot"), "set cgroup.hostRoot to "+constants.CgroupMountPath, "cgroup.hostRoot is %s",
			orDefault(root.Text, "/run/cilium/cgroupv2"))
	}
}

// checkCiliumAPIServer looks for an API server that Cilium's agents don't reach before they serve its address.
func checkCiliumAPIServer(r *check.Report, in *check.Input) {
	values, _ := in.Cilium()
	host, port := values.Get("k8sServiceHost"), values.Get("k8sServicePort")

	if host.Unknown || port.Unknown {
		return
	}

	if !host.Set || host.Text == "" {
		if replacesKubeProxy(values) && values.Is("k8s.apiServerURLs", "") {
			r.Found(values.At("k8sServiceHost"),
				"set k8sServiceHost to localhost and k8sServicePort to "+strconv.Itoa(constants.DefaultKubePrismPort),
				"k8sServiceHost is not set, and Cilium itself is to serve the API server's address")
		}

		return
	}

	if host.Text != "localhost" && host.Text != "127.0.0.1" && host.Text != "::1" {
		return
	}

	for _, config := range in.Configs {
		prism := config.Provider.K8sKubePrismConfig()
		at := in.Locate(config.At("machine.features.kubePrism"))

		switch {
		case prism == nil:
			r.Config = config
			r.Found(values.At("k8sServiceHost"), withKubePrism(config),
				"Cilium is to reach the API server at %s:%s, and KubePrism is off (%s)", host.Text, port.Text, at)
		case port.Text != strconv.Itoa(prism.Port()):
			r.Config = config
			r.Found(values.At("k8sServicePort"), fmt.Sprintf("set k8sServicePort to %d", prism.Port()),
				"k8sServicePort is %s, and KubePrism listens at %d", orDefault(port.Text, "empty"), prism.Port())
		}
	}
}

const kernelModules = "SYS_MODULE"

// checkCiliumCapabilities looks for the capability that Talos gives to nobody.
func checkCiliumCapabilities(r *check.Report, in *check.Input) {
	values, _ := in.Cilium()
	if values.Is("securityContext.privileged", "true") {
		return // then the container has what the node has
	}

	list := values.Get("securityContext.capabilities.ciliumAgent")

	switch {
	case list.Unknown:
	case !list.Set:
		r.Found(values.At("securityContext.capabilities.ciliumAgent"),
			"list securityContext.capabilities.ciliumAgent without "+kernelModules,
			"securityContext.capabilities.ciliumAgent is not set: the chart's default holds %s", kernelModules)
	case list.Node.Kind == yaml.SequenceNode:
		for _, item := range list.Node.Content {
			if strings.TrimPrefix(strings.ToUpper(item.Value), "CAP_") == kernelModules || item.Value == "ALL" {
				r.Found(values.Place(item), "take "+item.Value+" out", "securityContext.capabilities.ciliumAgent holds %s",
					item.Value)
			}
		}
	}
}

// valuesRead are the values that the profile's checks read.
var valuesRead = map[diagnosis.ID][]string{
	diagnosis.HostDNSBehindCilium: {"kubeProxyReplacement", "bpf.masquerade", "bpf.hostLegacyRouting"},
	diagnosis.CiliumKubeProxy:     {"kubeProxyReplacement"},
	diagnosis.CiliumIPAM:          {"ipam.mode"},
	diagnosis.CiliumCgroup:        {"cgroup.autoMount.enabled", "cgroup.hostRoot"},
	diagnosis.CiliumAPIServer:     {"k8sServiceHost", "k8sServicePort"},
	diagnosis.CiliumCapabilities:  {"securityContext.privileged", "securityContext.capabilities.ciliumAgent"},
}

// checkCiliumSpelling looks for the values of this profile in another spelling of upper and lower case.
func checkCiliumSpelling(r *check.Report, in *check.Input) {
	values, _ := in.Cilium()
	told := map[*yaml.Node]bool{}

	for _, path := range slices.Sorted(maps.Keys(spelt())) {
		node := values.Root

		for i, key := range strings.Split(path, ".") {
			if key, misspelt := misspelt(node, key); misspelt != nil && !told[misspelt] {
				told[misspelt] = true
				before := strings.Join(append(strings.Split(path, ".")[:i:i], misspelt.Value), ".")
				r.Found(values.Place(misspelt), "write "+key, "nothing reads %s; did you mean %s?", before, key)
			}

			if node = machineconfig.Field(node, key); node == nil {
				break
			}
		}
	}
}

// spelt are the values that are looked for in other spellings.
func spelt() map[string]bool {
	paths := map[string]bool{}

	for _, read := range valuesRead {
		for _, path := range read {
			paths[path] = true
		}
	}

	return paths
}

// misspelt is a mapping's key that differs from the one meant in case alone.
func misspelt(node *yaml.Node, key string) (string, *yaml.Node) {
	if node == nil || node.Kind != yaml.MappingNode {
		return key, nil
	}

	for i := 0; i+1 < len(node.Content); i += 2 {
		if name := node.Content[i].Value; name != key && strings.EqualFold(name, key) {
			return key, node.Content[i]
		}
	}

	return key, nil
}

// unknownValues are the values of a check that can't be judged, as a row of what was not run.
func unknownValues(id diagnosis.ID, paths ...string) func(*check.Input) []check.NotRun {
	return func(in *check.Input) []check.NotRun {
		values, _ := in.Cilium()
		if values == nil {
			return nil
		}

		for _, path := range paths {
			if values.Get(path).Unknown {
				return []check.NotRun{{ID: id, Why: "Cilium's " + path + " is not written as a value"}}
			}
		}

		return nil
	}
}
