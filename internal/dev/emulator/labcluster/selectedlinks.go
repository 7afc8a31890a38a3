package labcluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

	"github.com/talos-mage/talos-mage/internal/base/host"
	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// selectLinks adds what a machine config selects links by to the machine's links, and links that it lacks.
func selectLinks(links []emulator.Link, config *machineconfig.Config) []emulator.Link {
	for _, expression := range linkExpressions(config) {
		wanted := wantedLink(expression)
		if wanted == (emulator.Link{}) {
			continue // any link will do
		}

		at := slices.IndexFunc(links, func(link emulator.Link) bool { return wanted.MAC != "" && link.MAC == wanted.MAC })
		if at < 0 {
			at = len(links)
			links = append(links, emulator.Link{Name: fmt.Sprintf("eth%d", at), MAC: completeMAC("*", at)})
		}

		if wanted.MAC != "" {
			links[at].MAC = completeMAC(wanted.MAC, at)
		}

		links[at].Driver, links[at].BusPath, links[at].PCIID = wanted.Driver, wanted.BusPath, wanted.PCIID
	}

	return links
}

// linkExpressions are the conditions of all selectors of links.
func linkExpressions(config *machineconfig.Config) []string {
	var expressions []string

	for _, alias := range config.Provider.NetworkLinkAliasConfigs() {
		selector := alias.LinkSelector()
		expressions = append(expressions, selector.String())
	}

	add := func(selector *v1alpha1.NetworkDeviceSelector) {
		if selector != nil {
			expressions = append(expressions, machineconfig.LinkExpression(selector))
		}
	}

	network := config.Provider.RawV1Alpha1().MachineConfig.MachineNetwork //nolint:staticcheck // old files have it
	if network == nil {
		return expressions
	}

	for _, device := range network.NetworkInterfaces { //nolint:staticcheck // old files have them
		if device == nil {
			continue
		}

		add(device.DeviceSelector)

		if device.DeviceBond != nil {
			for i := range device.DeviceBond.BondDeviceSelectors {
				add(&device.DeviceBond.BondDeviceSelectors[i])
			}
		}
	}

	return expressions
}

// compared finds what a property of links is compared with: glob("…", link.driver), or link.driver == "…".
var compared = pattern.New(`glob\("([^"]*)", (?:mac\()?link\.(\w+)\)?\)|(?:mac\()?link\.(\w+)\)? == "([^"]*)"`)

// wantedLink is a link that an expression picks, as far as it compares texts. Patterns lose their stars; those of MAC
// addresses keep them.
func wantedLink(expression string) emulator.Link {
	var wanted emulator.Link

	for _, match := range compared.FindAllStringSubmatch(expression, -1) {
		value := match[1] + match[4]
		plain := strings.ReplaceAll(value, "*", "")

		switch match[2] + match[3] {
		case "hardware_addr", "permanent_addr":
			wanted.MAC = value
		case "driver":
			wanted.Driver = plain
		case "bus_path":
			wanted.BusPath = plain
		case "pciid":
			wanted.PCIID = plain
		}
	}

	return wanted
}

// completeMAC is an address that a pattern matches.
func completeMAC(pattern string, number int) string {
	whole := fmt.Sprintf("52:54:00:5e:10:%02x", number)
	before, after, found := strings.Cut(pattern, "*")

	if !found || len(before)+len(after) > len(whole) {
		return pattern
	}

	if made := before + whole[len(before):len(whole)-len(after)] + after; host.MAC(made) != "" {
		return made
	}

	return whole
}
