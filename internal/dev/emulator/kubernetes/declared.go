package kubernetes

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/labels"
	corev1 "k8s.io/api/core/v1"
)

// Declared is what a node's machine config says of the node's own object, which its Talos keeps there.
// Source: Talos internal/app/machined/pkg/controllers/k8s/node_apply.go.
type Declared struct {
	Labels, Annotations map[string]string
	// Taints are "value:Effect", or "Effect" alone, by their keys.
	Taints map[string]string
}

// keepDeclared brings labels, annotations and taints in line with the machine config. A worker's Talos has the rights
// of its kubelet: a label that those may not set costs it the whole update, and taints are never its to change.
func (n *nodeState) keepDeclared() {
	kept, ownedLabels := keepIn(n.labels, n.ownedLabels, n.Declared.Labels)

	if !n.ControlPlane && refusesLabels(n.labels, kept) {
		return
	}

	n.labels, n.ownedLabels = kept, ownedLabels
	n.annotations, n.ownedAnnotations = keepIn(n.annotations, n.ownedAnnotations, n.Declared.Annotations)

	if n.ControlPlane {
		n.taints = n.Declared.taints()
	}
}

// keepIn is what becomes of labels or annotations: those that somebody else has set stay as they are, and those that
// Talos owns go with the config.
func keepIn(present map[string]string, owned []string, declared map[string]string) (map[string]string, []string) {
	kept := maps.Clone(present)
	if kept == nil {
		kept = map[string]string{}
	}

	var owns []string

	for _, key := range slices.Sorted(maps.Keys(declared)) {
		value, exists := kept[key]
		if exists && value != declared[key] && !slices.Contains(owned, key) {
			continue
		}

		kept[key] = declared[key]
		owns = append(owns, key)
	}

	for _, key := range owned {
		if _, still := declared[key]; !still {
			delete(kept, key)
		}
	}

	return kept, owns
}

// taints are in the order of their keys. That of control planes follows from what they are.
func (d Declared) taints() []corev1.Taint {
	var taints []corev1.Taint

	for _, key := range slices.Sorted(maps.Keys(d.Taints)) {
		if key != labelControlPlane {
			value, effect := labels.ParseTaint(d.Taints[key])
			taints = append(taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
		}
	}

	return taints
}

// ownership is how Talos notes on the node what of it is its own.
func (n *nodeState) ownership() map[string]string {
	noted := maps.Clone(n.annotations)

	for key, owned := range map[string][]string{
		constants.AnnotationOwnedLabels: n.ownedLabels, constants.AnnotationOwnedAnnotations: n.ownedAnnotations,
	} {
		if len(owned) > 0 {
			if noted == nil {
				noted = map[string]string{}
			}

			text, _ := json.Marshal(owned) //nolint:errchkjson // texts
			noted[key] = string(text)
		}
	}

	return noted
}

// kubeletLabels are those that kubelets may set among Kubernetes' own.
// Source: kubernetes staging/src/k8s.io/kubelet/pkg/apis/well_known_labels.go.
var kubeletLabels = []string{
	corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone,
	corev1.LabelFailureDomainBetaRegion, corev1.LabelInstanceType, corev1.LabelInstanceTypeStable, corev1.LabelOSStable,
	corev1.LabelArchStable, "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
}

// refusesLabels reports whether NodeRestriction keeps a kubelet from changing its node's labels so.
// Source: kubernetes plugin/pkg/admission/noderestriction/admission.go.
func refusesLabels(before, after map[string]string) bool {
	for _, key := range slices.Concat(slices.Collect(maps.Keys(before)), slices.Collect(maps.Keys(after))) {
		was, had := before[key]
		is, has := after[key]

		if (was != is || had != has) && isRestricted(key) {
			return true
		}
	}

	return false
}

func isRestricted(label string) bool {
	namespace, _, _ := strings.Cut(label, "/")
	within := func(domain string) bool { return namespace == domain || strings.HasSuffix(namespace, "."+domain) }

	if within(corev1.LabelNamespaceNodeRestriction) {
		return true
	}

	ofKubernetes := within("kubernetes.io") || within("k8s.io")
	ofKubelets := within(corev1.LabelNamespaceSuffixKubelet) || within(corev1.LabelNamespaceSuffixNode)

	return ofKubernetes && !ofKubelets && !slices.Contains(kubeletLabels, label)
}
