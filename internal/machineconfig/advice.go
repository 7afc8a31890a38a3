package machineconfig

import "strings"

// advice is what to do about what Talos' validation says.
var advice = []struct{ says, next string }{
	{"'auto' and 'hostname' cannot be set at the same time", "write `auto: off` beside hostname in the HostnameConfig"},
	{"hostname is already set in v1alpha1 config", "keep one of the two: machine.network.hostname, or hostname in the " +
		"HostnameConfig, with `auto: off`"},
	{"only allowed on control plane", "set it on control planes only: in controlPlane.patches, or in a control plane's " +
		"own"},
}

// AdviceOn is what to do about what Talos' validation says of a machine config; empty if that says it all.
func AdviceOn(problems string) string {
	for _, known := range advice {
		if strings.Contains(problems, known.says) {
			return known.next
		}
	}

	return ""
}
