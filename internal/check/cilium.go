package check

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// replacesKubeProxy reports whether Cilium is known to serve Services. Old charts have "strict" and "partial" for it.
func (v *helmValues) replacesKubeProxy() bool { return v.is("kubeProxyReplacement", "true", "strict") }

// routesInBPF reports whether Cilium is known to route past the host's network stack.
func (v *helmValues) routesInBPF() bool {
	return v.replacesKubeProxy() && v.is("bpf.masquerade", "true") && v.is("bpf.hostLegacyRouting", "", "false")
}

// checkCiliumMasquerade looks for DNS caches that eBPF routing goes past.
func checkCiliumMasquerade(r *Report, in *Input) {
	values, _ := in.Cilium()
	if !values.routesInBPF() {
		return
	}

	for _, config := range in.Configs {
		if forwards(config) && !hostDNSAddressOnLoopback(config) {
			r.Config = config
			r.Found(values.at("bpf.masquerade"),
				"set bpf.hostLegacyRouting to true in Cilium's values, or machine.features.hostDNS.forwardKubeDNSToHost to false",
				"CoreDNS forwards to the node's DNS cache (%s), which Cilium's bpf.masquerade cuts off",
				r.In.Locate(config.File.At("machine.features.hostDNS.forwardKubeDNSToHost")))
		}
	}
}

// checkCiliumCNI looks for a second CNI.
func checkCiliumCNI(r *Report, in *Input) {
	for _, config := range in.Configs {
		name := config.CNI()
		if !isControlPlane(config) || name == constants.NoneCNI {
			continue
		}

		// The manifests of a custom CNI may be Cilium's own.
		if urls := config.Provider.Cluster().Network().CNI().URLs(); name == constants.CustomCNI &&
			slices.ContainsFunc(urls, func(url string) bool {
				return strings.Contains(strings.ToLower(url), "cilium")
			}) {
			continue
		}

		r.Config = config
		r.Found(config.File.At("cluster.network.cni.name"), "set cluster.network.cni.name to none",
			"Talos installs the CNI %s, and Cilium is to be installed", name)
	}
}

// checkCiliumKubeProxy looks for two that serve Services, or none.
func checkCiliumKubeProxy(r *Report, in *Input) {
	values, _ := in.Cilium()
	replaces, leaves := values.replacesKubeProxy(), values.is("kubeProxyReplacement", "", "false", "disabled")

	for _, config := range in.Configs {
		if !isControlPlane(config) {
			continue // the control planes alone run kube-proxy's manifest
		}

		runs := config.Provider.Cluster().Proxy().Enabled()

		switch {
		case replaces && runs:
			r.Config = config
			r.Found(values.at("kubeProxyReplacement"), "set cluster.proxy.disabled to true",
				"Cilium replaces kube-proxy, and Talos runs it (%s)", in.Locate(config.File.At("cluster.proxy")))
		case leaves && !runs:
			r.Config = config
			r.Found(values.at("kubeProxyReplacement"), "set kubeProxyReplacement to true",
				"Cilium does not replace kube-proxy, and Talos does not run it (%s)",
				in.Locate(config.File.At("cluster.proxy.disabled")))
		}
	}
}

// checkCiliumIPAM looks for pods' addresses that come from elsewhere.
func checkCiliumIPAM(r *Report, in *Input) {
	values, _ := in.Cilium()

	if mode := values.get("ipam.mode"); !mode.unknown && mode.text != "kubernetes" {
		r.Found(values.at("ipam.mode"), "set ipam.mode to kubernetes", "ipam.mode is %s",
			orDefault(mode.text, "cluster-pool"))
	}
}

func orDefault(text, byDefault string) string {
	if text == "" {
		return byDefault + ", the chart's default"
	}

	return text
}

// checkCiliumCgroup looks for mounts that Talos has made already.
func checkCiliumCgroup(r *Report, in *Input) {
	values, _ := in.Cilium()

	if mounts := values.get("cgroup.autoMount.enabled"); !mounts.unknown && strings.ToLower(mounts.text) != "false" {
		r.Found(values.at("cgroup.autoMount.enabled"), "set cgroup.autoMount.enabled to false",
			"cgroup.autoMount.enabled is %s", orDefault(mounts.text, "true"))
	}

	if root := values.get("cgroup.hostRoot"); !root.unknown &&
		strings.TrimSuffix(root.text, "/") != constants.CgroupMountPath {
		r.Found(values.at("cgroup.hostRoot"), "set cgroup.hostRoot to "+constants.CgroupMountPath, "cgroup.hostRoot is %s",
			orDefault(root.text, "/run/cilium/cgroupv2"))
	}
}

// checkCiliumAPIServer looks for an API server that Cilium's agents don't reach before they serve its address.
func checkCiliumAPIServer(r *Report, in *Input) {
	values, _ := in.Cilium()
	host, port := values.get("k8sServiceHost"), values.get("k8sServicePort")

	if host.unknown || port.unknown {
		return
	}

	if !host.set || host.text == "" {
		if values.replacesKubeProxy() && values.is("k8s.apiServerURLs", "") {
			r.Found(values.at("k8sServiceHost"),
				"set k8sServiceHost to localhost and k8sServicePort to "+strconv.Itoa(constants.DefaultKubePrismPort),
				"k8sServiceHost is not set, and Cilium itself is to serve the API server's address")
		}

		return
	}

	if host.text != "localhost" && host.text != "127.0.0.1" && host.text != "::1" {
		return
	}

	for _, config := range in.Configs {
		prism := config.Provider.Machine().Features().KubePrism()
		at := in.Locate(config.File.At("machine.features.kubePrism"))

		switch {
		case !prism.Enabled():
			r.Config = config
			r.Found(values.at("k8sServiceHost"), "set machine.features.kubePrism.enabled to true",
				"Cilium is to reach the API server at %s:%s, and KubePrism is off (%s)", host.text, port.text, at)
		case port.text != strconv.Itoa(prism.Port()):
			r.Config = config
			r.Found(values.at("k8sServicePort"), fmt.Sprintf("set k8sServicePort to %d", prism.Port()),
				"k8sServicePort is %s, and KubePrism listens at %d", orDefault(port.text, "empty"), prism.Port())
		}
	}
}

const kernelModules = "SYS_MODULE"

// checkCiliumCapabilities looks for the capability that Talos gives to nobody.
func checkCiliumCapabilities(r *Report, in *Input) {
	values, _ := in.Cilium()
	if values.is("securityContext.privileged", "true") {
		return // then the container has what the node has
	}

	list := values.get("securityContext.capabilities.ciliumAgent")

	switch {
	case list.unknown:
	case !list.set:
		r.Found(values.at("securityContext.capabilities.ciliumAgent"),
			"list securityContext.capabilities.ciliumAgent without "+kernelModules,
			"securityContext.capabilities.ciliumAgent is not set: the chart's default holds %s", kernelModules)
	case list.node.Kind == yaml.SequenceNode:
		for _, item := range list.node.Content {
			if strings.TrimPrefix(strings.ToUpper(item.Value), "CAP_") == kernelModules || item.Value == "ALL" {
				r.Found(values.place(item), "take "+item.Value+" out", "securityContext.capabilities.ciliumAgent holds %s",
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
func checkCiliumSpelling(r *Report, in *Input) {
	values, _ := in.Cilium()
	told := map[*yaml.Node]bool{}

	for _, path := range slices.Sorted(maps.Keys(spelt())) {
		node := values.root

		for i, key := range strings.Split(path, ".") {
			if key, misspelt := misspelt(node, key); misspelt != nil && !told[misspelt] {
				told[misspelt] = true
				before := strings.Join(append(strings.Split(path, ".")[:i:i], misspelt.Value), ".")
				r.Found(values.place(misspelt), "write "+key, "nothing reads %s; did you mean %s?", before, key)
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
func unknownValues(id diagnosis.ID, paths ...string) func(*Input) []NotRun {
	return func(in *Input) []NotRun {
		values, _ := in.Cilium()
		if values == nil {
			return nil
		}

		for _, path := range paths {
			if values.get(path).unknown {
				return []NotRun{{ID: id, Why: "Cilium's " + path + " is not written as a value"}}
			}
		}

		return nil
	}
}
