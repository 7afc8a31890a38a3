package startup

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/labels"

	"github.com/talos-mage/talos-mage/internal/check"
)

// checkRegistration looks for labels and taints with which a kubelet does not start, or the API server does not take
// the node: those of its arguments and of its configuration.
func checkRegistration(r *check.Report, config *check.Rendered) {
	kubelet := components(r.In, config)[0]

	for _, label := range listed(kubelet, "node-labels") {
		if why := unusableLabel(label); why != "" {
			r.Found(kubelet.at.Field("node-labels"), "use a label of your own domain, or run: kubectl label node "+
				config.Name+" "+label, "%s", why)
		}
	}

	for _, taint := range listed(kubelet, "register-with-taints") {
		if why := unusableTaint(splitTaint(taint)); why != "" {
			r.Found(kubelet.at.Field("register-with-taints"), howToTaint, "%s", why)
		}
	}

	taints, _ := config.Kubelet().ExtraConfig()["registerWithTaints"].([]any)
	place := config.At("machine.kubelet.extraConfig.registerWithTaints")

	for i, taint := range taints {
		if why := unusableTaint(writtenTaint(taint)); why != "" {
			r.Found(place.Item(i), howToTaint, "%s", why)
		}
	}
}

const howToTaint = "give it a key and one of the effects NoSchedule, PreferNoSchedule and NoExecute"

// listed are the items of an argument's lists.
func listed(component component, argument string) []string {
	var items []string

	for _, list := range component.added[argument] {
		for item := range strings.SplitSeq(list, ",") {
			if item != "" {
				items = append(items, item)
			}
		}
	}

	return items
}

// unusableLabel says why a kubelet does not start with a label; empty if it does.
func unusableLabel(label string) string {
	name, value, _ := strings.Cut(label, "=")

	if check.RefusedToKubelets(name) {
		return "the kubelet does not start with the label " + name + ", which it may not set"
	}

	if err := labels.Validate(map[string]string{name: value}); err != nil {
		return "the kubelet does not start with the label " + label + ": " + oneLine(err)
	}

	return ""
}

// taint is one as it is written.
type taint struct{ key, value, effect string }

// splitTaint reads key=value:effect, or key:effect.
func splitTaint(text string) taint {
	rest, effect, _ := strings.Cut(text, ":")
	key, value, _ := strings.Cut(rest, "=")

	return taint{key, value, effect}
}

// writtenTaint reads a mapping.
func writtenTaint(written any) taint {
	fields, _ := written.(map[string]any)
	text := func(key string) string {
		value, _ := fields[key].(string)

		return value
	}

	return taint{text("key"), text("value"), text("effect")}
}

// unusableTaint says why a node is not registered with a taint; empty if it is.
func unusableTaint(taint taint) string {
	if !slices.Contains(constants.ValidEffects, taint.effect) {
		return fmt.Sprintf("the taint %q has no effect that Kubernetes knows: %q", taint.key, taint.effect)
	}

	if err := labels.Validate(map[string]string{taint.key: taint.value}); err != nil {
		return fmt.Sprintf("the taint %q can't be set: %s", taint.key, oneLine(err))
	}

	return ""
}

func oneLine(err error) string {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")

	return strings.TrimLeft(lines[len(lines)-1], "\t *")
}

// checkWorkerTaints looks for taints that a worker may not set.
func checkWorkerTaints(r *check.Report, config *check.Rendered) {
	if check.IsControlPlane(config) {
		return
	}

	for _, key := range slices.Sorted(maps.Keys(config.NodeTaints())) {
		r.Found(config.At("machine.nodeTaints"), "register the node with it: "+
			config.Called("machine.kubelet.extraConfig.registerWithTaints")+", a list of key, value and effect",
			"a worker may not set the taint %s itself", key)
	}
}
