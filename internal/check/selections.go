package check

import (
	"cmp"
	"fmt"
	"strings"
	"sync"

	"github.com/siderolabs/talos/pkg/machinery/cel"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// Selection picks links by their properties: the selector of an interface or of a bond's members, or an alias.
type Selection struct {
	// Link is whose selector it is; nil of an alias.
	Link *Link
	// Alias is the name that a link gets by it; empty of a selector in machine.network.
	Alias string
	// Several is set where it may pick more than one link.
	Several bool
	// Match is the condition in Talos' words; Text is it for people.
	Match cel.Expression
	Text  string
	At    Place
	// MACs are what it compares MAC addresses with.
	MACs []SelectedMAC
}

// SelectedMAC is a MAC address, or a pattern of some, by which a link is selected.
type SelectedMAC struct {
	// Field is the selector's; empty in an expression.
	Field, Text string
	At          Place
}

// Label names the selection.
func (s Selection) Label() string {
	switch {
	case s.Alias != "":
		return fmt.Sprintf("the selector of %s (%s)", s.Alias, s.Text)
	case s.Several:
		return fmt.Sprintf("the selector (%s) of %s", s.Text, s.Link.Label)
	default:
		return fmt.Sprintf("the selector (%s)", s.Text)
	}
}

// Selections are all of a machine config.
func (c *Rendered) Selections() []Selection {
	var list []Selection

	for _, link := range c.Links() {
		if link.Selector != nil && !link.VLAN {
			list = append(list, selectorOf(link, link.Selector, link.At.Field("deviceSelector")))
		}

		for i := range link.memberSelectors {
			selection := selectorOf(link, &link.memberSelectors[i], link.At.Field("bond.deviceSelectors").Item(i))
			selection.Several = true
			list = append(list, selection)
		}
	}

	for _, alias := range c.Provider.NetworkLinkAliasConfigs() {
		place := c.File.In("LinkAliasConfig/"+alias.Name(), "selector.match")
		selection := Selection{Alias: alias.Name(), Several: alias.IsPatternAlias(), Match: alias.LinkSelector(), At: place}

		if selection.Match.IsZero() {
			continue // Talos' validation tells of it
		}

		selection.Text = strings.Join(strings.Fields(selection.Match.String()), " ")

		for _, match := range comparedMAC.FindAllStringSubmatch(selection.Text, -1) {
			selection.MACs = append(selection.MACs, SelectedMAC{Text: cmp.Or(match[1], match[2]), At: place})
		}

		list = append(list, selection)
	}

	return list
}

// comparedMAC finds MAC addresses in the expression of a link alias.
var comparedMAC = pattern.New(`mac\(link\.(?:permanent|hardware)_addr\) ?== ?["']([^"']*)["']|glob\(["']([^"']*)["'], ?mac\(`)

// picksNothing is true of no link.
var picksNothing = sync.OnceValue(func() cel.Expression {
	return cel.MustExpression(machineconfig.ParseLinkExpression("false"))
})

func selectorOf(link *Link, selector *v1alpha1.NetworkDeviceSelector, place Place) Selection {
	selection := Selection{Link: link, Text: SelectorText(selector), At: place}

	var err error
	if selection.Match, err = machineconfig.ParseLinkExpression(machineconfig.LinkExpression(selector)); err != nil {
		selection.Match = picksNothing() // as an empty one; Talos' validation tells of it
	}

	for _, field := range []struct{ name, text string }{
		{"hardwareAddr", selector.NetworkDeviceHardwareAddress}, {"permanentAddr", selector.NetworkDevicePermanentAddress},
	} {
		if field.text != "" {
			selection.MACs = append(selection.MACs, SelectedMAC{field.name, field.text, place.Field(field.name)})
		}
	}

	return selection
}
