package interfaces

import (
	"fmt"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"

	"github.com/talos-mage/talos-mage/internal/base/host"
	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// checkWideSelectors looks for selectors that leave open which link is meant.
func checkWideSelectors(r *check.Report, config *check.Rendered) {
	for _, selection := range config.Selections() {
		if selection.Several || !isWide(selection) || selection.Link != nil && config.FitsSeveral(selection.Link) {
			continue
		}

		r.Found(selection.At, "select the link by "+check.SelectBy(len(config.Nodes)),
			"%s leaves open which link is meant", selection.Label())
	}
}

// isWide reports whether a selector picks links that have nothing in common but what kind they are and what drives
// them: it picks both of two that a machine could have.
func isWide(selection check.Selection) bool {
	drivers := append(quotedTexts(selection.Match.String()), "virtio_net")

	return slices.ContainsFunc(drivers, func(driver string) bool {
		return picks(selection, physicalLink(driver, "0000:01:00.0", "02:00:5e:10:00:01", "8086:1533")) &&
			picks(selection, physicalLink(driver, "0000:02:00.0", "52:54:00:20:ff:f2", "15b3:1017"))
	})
}

func picks(selection check.Selection, link *network.LinkStatus) bool {
	picked, err := machineconfig.PicksLink(selection.Match, link)

	return err == nil && picked
}

func physicalLink(driver, busPath, mac, pciID string) *network.LinkStatus {
	link := network.NewLinkStatus(network.NamespaceName, "eth0")
	spec := link.TypedSpec()
	spec.Type, spec.Driver, spec.BusPath, spec.PCIID = nethelpers.LinkEther, driver, busPath, pciID

	if err := spec.PermanentAddr.UnmarshalText([]byte(mac)); err != nil {
		return link
	}

	spec.HardwareAddr = spec.PermanentAddr

	return link
}

// quoted are the texts of an expression, in either kind of quotes.
var quoted = pattern.New(`"([^"]*)"|'([^']*)'`)

// quotedTexts are the texts that an expression compares with; of a pattern one that it matches.
func quotedTexts(expression string) []string {
	var texts []string

	for _, match := range quoted.FindAllStringSubmatch(expression, -1) {
		texts = append(texts, strings.ReplaceAll(match[1]+match[2], "*", ""))
	}

	return texts
}

// macPattern is what a MAC address may be matched with: lower case, colons, wildcards for the rest.
var macPattern = pattern.New(`^[0-9a-f:*]+$`)

// checkImpossibleSelectors looks for MAC addresses in a form that Talos never has.
func checkImpossibleSelectors(r *check.Report, config *check.Rendered) {
	lost := lostLinks(config)

	for _, selection := range config.Selections() {
		for _, mac := range selection.MACs {
			why := neverAMAC(mac.Text)
			if why == "" {
				continue
			}

			severity := diagnosis.Warning
			if lost.all && lost.names[selectedName(selection)] {
				severity = diagnosis.Failure
			}

			r.Add(severity, mac.At, "write it in lower case, with colons", "%s matches no link: %s",
				strings.TrimSpace(fmt.Sprintf("%s %q", mac.Field, mac.Text)), why)
		}
	}
}

// selectedName is how the settings of what a selector picks are found among the links: by the alias, or as those of
// the interface.
func selectedName(selection check.Selection) string {
	if selection.Alias != "" {
		return selection.Alias
	}

	return selection.Link.Label
}

// lost are the links, by name or label, that settings never reach. all is set if the node then has no network.
type lost struct {
	names map[string]bool
	all   bool
}

// lostLinks follows selectors that match nothing to the bonds and VLANs that are built on what they select.
func lostLinks(config *check.Rendered) lost {
	lost := lost{names: map[string]bool{}}
	possible := map[string]bool{}

	for _, selection := range config.Selections() {
		if neverPicks(selection) {
			lost.names[selectedName(selection)] = true
		} else {
			possible[selectedName(selection)] = true
		}
	}

	// A bond can do with one of its members.
	for name := range possible {
		delete(lost.names, name)
	}

	links := config.Links()
	for i, link := range links {
		if link.VLAN && lost.names[parentLabel(links, i)] || builtOn(link, lost.names) {
			lost.names[link.Label] = true
		}
	}

	lost.all = noneReached(config, lost.names)

	return lost
}

// neverPicks reports whether a selector asks for a MAC address that no link has, without an alternative, or a bond has
// no member but what it selects so.
func neverPicks(selection check.Selection) bool {
	never := slices.ContainsFunc(selection.MACs, func(mac check.SelectedMAC) bool { return neverAMAC(mac.Text) != "" })
	text := selection.Match.String()

	return never && !strings.Contains(text, "||") && !strings.Contains(text, "!") &&
		(selection.Link == nil || len(selection.Link.Members) == 0)
}

// parentLabel is the label of the link that a VLAN runs on.
func parentLabel(links []*check.Link, vlan int) string {
	if links[vlan].Parent != "" {
		return links[vlan].Parent
	}

	return links[parentIndex(links, vlan)].Label
}

// builtOn reports whether a bond or bridge has members, and all of them are among some.
func builtOn(link *check.Link, among map[string]bool) bool {
	for _, member := range link.Members {
		if !among[member.Name] {
			return false
		}
	}

	return len(link.Members) > 0
}

// noneReached reports whether links have addresses or ask for them, and all of these are lost. Where nothing else is
// configured, Talos asks for addresses on every link by itself, and a link that was to ask for them does.
func noneReached(config *check.Rendered, names map[string]bool) bool {
	static, asking := false, false

	for _, link := range config.Links() {
		if link.IsLocal() || !link.DHCP && len(link.Addresses) == 0 {
			continue
		}

		if !names[link.Label] {
			return false
		}

		static, asking = static || len(link.Addresses) > 0, asking || link.DHCP
	}

	return static || asking && !config.Provider.RunDefaultDHCPOperators()
}

// neverAMAC says why a pattern matches no MAC address; empty when it may.
func neverAMAC(pattern string) string {
	switch {
	case pattern == "":
		return ""
	case pattern != strings.ToLower(pattern):
		return "MAC addresses are compared in lower case"
	case !macPattern.MatchString(pattern):
		return "MAC addresses have hexadecimal digits and colons"
	case !strings.Contains(pattern, "*") && host.MAC(pattern) != pattern:
		return "a MAC address has six parts of two digits"
	default:
		return ""
	}
}
