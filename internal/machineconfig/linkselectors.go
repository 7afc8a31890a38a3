package machineconfig

import (
	"fmt"
	"strings"

	networkpb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/network"
	"github.com/siderolabs/talos/pkg/machinery/cel"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/proto"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
)

// LinkExpression says the same as a selector of machine.network in the language of LinkAliasConfig; empty for an empty
// selector.
func LinkExpression(selector *v1alpha1.NetworkDeviceSelector) string {
	var conditions []string

	for _, field := range []struct{ pattern, of string }{
		{selector.NetworkDeviceHardwareAddress, "mac(link.hardware_addr)"},
		{selector.NetworkDevicePermanentAddress, "mac(link.permanent_addr)"},
		{selector.NetworkDeviceBus, "link.bus_path"},
		{selector.NetworkDeviceKernelDriver, "link.driver"},
		{selector.NetworkDevicePCIID, "link.pciid"},
	} {
		if field.pattern != "" {
			conditions = append(conditions, fmt.Sprintf("glob(%q, %s)", field.pattern, field.of))
		}
	}

	if physical := selector.NetworkDevicePhysical; physical != nil {
		condition := "link.type == 1" // Ethernet, by the kernel's numbers
		if !*physical {
			condition = "link.type != 1"
		}

		conditions = append(conditions, condition)
	}

	return strings.Join(conditions, " && ")
}

// ParseLinkExpression compiles an expression that picks links.
func ParseLinkExpression(text string) (cel.Expression, error) {
	return cel.ParseBooleanExpression(text, celenv.LinkLocator()) //nolint:wrapcheck // callers say what it is of
}

// PicksLink reports whether an expression is true of a link.
func PicksLink(expression cel.Expression, link *network.LinkStatus) (bool, error) {
	var spec networkpb.LinkStatusSpec
	if err := proto.ResourceSpecToProto(link, &spec); err != nil {
		return false, fmt.Errorf("read link %s: %w", link.Metadata().ID(), err)
	}

	return expression.EvalBool(celenv.LinkLocator(), map[string]any{"link": &spec}) //nolint:wrapcheck // as above
}
