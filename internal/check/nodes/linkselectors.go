package nodes

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/talos-mage/talos-mage/internal/base/host"
	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// checkLiveSelectors evaluates the selectors of links on the node's physical links, as Talos does. What a node does not
// tell of its links is not judged.
func checkLiveSelectors(_ context.Context, s subject) {
	links := slices.DeleteFunc(slices.Clone(s.Facts.Links), func(link talos.Link) bool { return !link.Physical })
	if len(links) == 0 || slices.ContainsFunc(links, func(link talos.Link) bool { return link.Status == nil }) {
		return
	}

	config := check.NewRendered(s.Config)
	aliases := aliasesOf(links)
	bonds := map[*check.Link]int{}

	for _, selection := range config.Selections() {
		matching, err := selectedLinks(selection, links)

		switch {
		case err != nil:
			s.unselected(diagnosis.Failure, "%s can't be evaluated: %s", selection.Label(), err)
		case selection.Alias != "":
			aliases.made = append(aliases.made, alias{selection, matching})
		case selection.Several:
			bonds[selection.Link] += len(matching)
		case len(matching) > 1 && config.FitsSeveral(selection.Link):
		case len(matching) != 1 && !s.lacksMAC(selection):
			severity := diagnosis.Failure
			if len(matching) == 0 {
				severity = s.severityWithout(config, selection.Link)
			}

			s.unselected(severity, "%s matches %s; the node has %s", selection.Label(), counted(matching),
				linkList(s.Facts.Links))
		}
	}

	for bond, members := range bonds {
		if members == 0 && len(bond.Members) == 0 {
			s.unselected(diagnosis.Failure, "no link matches the selectors of %s; the node has %s", bond.Label,
				linkList(s.Facts.Links))
		}
	}

	s.judgeAliases(config, aliases)
}

// selectedLinks are those of a node's physical links that a selector picks.
func selectedLinks(selection check.Selection, links []talos.Link) ([]talos.Link, error) {
	var matching []talos.Link

	for _, link := range links {
		picked, err := machineconfig.PicksLink(selection.Match, link.Status)
		if err != nil {
			return nil, fmt.Errorf("on %s: %w", link.Name, err)
		}

		if picked {
			matching = append(matching, link)
		}
	}

	return matching, nil
}

// lacksMAC reports whether a selector names a whole MAC address that no link has: that is said where the machine's
// identity is judged.
func (s subject) lacksMAC(selection check.Selection) bool {
	return slices.ContainsFunc(selection.MACs, func(mac check.SelectedMAC) bool {
		whole := host.MAC(mac.Text)

		return whole != "" && !slices.Contains(PhysicalMACs(s.Facts.Links), whole)
	})
}

func (s subject) unselected(severity diagnosis.Severity, cause string, args ...any) {
	s.report.As(diagnosis.LinkSelectorUnmatched).Add(severity,
		check.Elsewhere(diagnosis.Location{Path: s.Config.Path}),
		s.regenerate("select one of the node's links by "+check.SelectBy(s.sharing())), cause, args...)
}

// sharing is how many machines have the node's machine config.
func (s subject) sharing() int {
	machines := 0

	for _, node := range s.Cluster.Nodes {
		if node.ConfigFile == s.ConfigFile {
			machines++
		}
	}

	return machines
}

// counted says how many links match, and which.
func counted(matching []talos.Link) string {
	switch len(matching) {
	case 0:
		return "no link"
	case 1:
		return "1 link (" + linkList(matching) + ")"
	default:
		return fmt.Sprintf("%d links (%s)", len(matching), linkList(matching))
	}
}

// aliases are the names that Talos gives to links by LinkAliasConfig documents.
type aliases struct {
	// given are the names that links have; of are the names by the links that have them.
	given map[string]bool
	of    map[string]string
	made  []alias
}

// alias is a document with the links that it picks.
type alias struct {
	check.Selection

	matching []talos.Link
}

// aliasesOf begins with what the links are called already.
func aliasesOf(links []talos.Link) *aliases {
	found := &aliases{given: map[string]bool{}, of: map[string]string{}}

	for _, link := range links {
		for _, name := range slices.Concat(link.Aliases, []string{link.Name}) {
			found.given[name] = true
		}
	}

	return found
}

// settle gives the names in Talos' order: a link has one alias, and a name of several links goes to none unless it is
// numbered.
func (a *aliases) settle() {
	slices.SortStableFunc(a.made, func(x, y alias) int { return cmp.Compare(x.Alias, y.Alias) })

	for _, alias := range a.made {
		if len(alias.matching) > 1 && !alias.Several {
			continue
		}

		free := slices.DeleteFunc(slices.Clone(alias.matching),
			func(link talos.Link) bool { return a.of[link.Name] != "" })
		slices.SortStableFunc(free, func(x, y talos.Link) int { return bytes.Compare(addressOf(x), addressOf(y)) })

		for i, link := range free {
			name := strings.Replace(alias.Alias, "%d", strconv.Itoa(i), 1)
			a.given[name], a.of[link.Name] = true, name
		}
	}
}

func addressOf(link talos.Link) []byte {
	spec := link.Status.TypedSpec()
	if len(spec.PermanentAddr) > 0 {
		return spec.PermanentAddr
	}

	return spec.HardwareAddr
}

// named is the document that is to give a name.
func (a *aliases) named(name string) alias {
	for _, alias := range a.made {
		prefix, isNumbered := strings.CutSuffix(alias.Alias, "%d")
		if alias.Alias == name || isNumbered && strings.HasPrefix(name, prefix) {
			return alias
		}
	}

	return alias{}
}

// why says why no link has the name of a document.
func (a *aliases) why(alias alias) string {
	label, matching := alias.Label(), alias.matching

	switch {
	case len(matching) == 1 && a.of[matching[0].Name] != "" && !alias.Several:
		return fmt.Sprintf("%s matches %s, which is called %s already", label, matching[0].Name, a.of[matching[0].Name])
	case len(matching) > 1 && !alias.Several:
		return fmt.Sprintf("%s matches %s, so Talos gives the name to none of them", label, counted(matching))
	default:
		return fmt.Sprintf("%s matches %s", label, counted(matching))
	}
}

// judgeAliases looks for settings of aliases that no link gets. A bond or bridge comes up with some of its members.
func (s subject) judgeAliases(config *check.Rendered, names *aliases) {
	names.settle()

	told := map[string]bool{}
	absent := func(name string) bool { return config.IsAlias(name) && !names.given[name] }
	tell := func(severity diagnosis.Severity, name, consequence string) {
		if alias := names.named(name); absent(name) && !told[name] && !s.lacksMAC(alias.Selection) {
			told[name] = true
			s.unselected(severity, "%s: %s; the node has %s", names.why(alias), consequence, linkList(s.Facts.Links))
		}
	}

	for _, link := range config.Links() {
		if link.Document && !link.Made {
			tell(s.severityWithout(config, link), link.Name, "what is set for "+link.Name+" reaches no link")
		}

		if link.VLAN {
			tell(s.severityWithout(config, link), link.Parent, link.Label+" has no link to run on")
		}

		severity := s.severityWithout(config, link)

		for _, member := range link.Members {
			if !absent(member.Name) {
				severity = diagnosis.Warning
			}
		}

		for _, member := range link.Members {
			tell(severity, member.Name, link.Label+" lacks its member "+member.Name)
		}
	}
}
