package check

import (
	"slices"
	"strings"
)

// kubeletLabels are the labels of Kubernetes' own domains that a kubelet may set.
var kubeletLabels = []string{
	"kubernetes.io/hostname", "kubernetes.io/arch", "kubernetes.io/os", "beta.kubernetes.io/arch", "beta.kubernetes.io/os",
	"topology.kubernetes.io/zone", "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
	"failure-domain.beta.kubernetes.io/region",
	"node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type",
}

// RefusedToKubelets reports whether Kubernetes keeps a label from kubelets, as an argument and by NodeRestriction.
func RefusedToKubelets(label string) bool {
	domain, _, qualified := strings.Cut(label, "/")
	within := func(name string) bool { return domain == name || strings.HasSuffix(domain, "."+name) }

	switch {
	case !qualified:
		return false
	case within("node-restriction.kubernetes.io"):
		return true
	case !within("kubernetes.io") && !within("k8s.io"):
		return false
	default:
		return !slices.Contains(kubeletLabels, label) && !within("kubelet.kubernetes.io") && !within("node.kubernetes.io")
	}
}
