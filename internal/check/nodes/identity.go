package nodes

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// Identity compares the machine that answers with the one that the files declare: nil when it is the declared machine,
// or when the files declare neither MAC addresses nor a UUID. The cluster serves to name the node whose machine it is
// instead. A machine with one of the declared MACs is the declared one: a second, missing card is not a question of
// identity.
func Identity(
	cluster *inventory.Cluster, node *inventory.Node, links []talos.Link, system talos.SystemInfo,
) *diagnosis.Finding {
	macs := PhysicalMACs(links)
	uuidDiffers := node.UUID != "" && !strings.EqualFold(node.UUID, system.UUID)
	macsDiffer := len(node.MACs) > 0 && !anyMAC(node.MACs, macs)
	declared := node.UUID != "" || len(node.MACs) > 0

	if declared && !uuidDiffers && !macsDiffer {
		return nil // should another node declare the same machine, that is the inventory's trouble
	}

	owner := ownerOf(cluster, node, macs, system)
	if !declared && owner == nil {
		return nil
	}

	var cause string

	switch {
	case macsDiffer:
		cause = fmt.Sprintf("the machine has %s, declared is %s", macList(macs), strings.Join(node.MACs, ", "))
	case uuidDiffers:
		cause = fmt.Sprintf("the machine's UUID is %s, declared is %s", orNone(system.UUID), node.UUID)
	default:
		cause = "its MAC address or UUID is declared there"
	}

	if owner != nil {
		cause = fmt.Sprintf("this is %s's machine: %s", owner.Name, cause)
	}

	finding := WrongMachine(node, cause)

	return &finding
}

// WrongMachine is the finding of a machine that is not the node's.
func WrongMachine(node *inventory.Node, cause string) diagnosis.Finding {
	return diagnosis.Finding{
		ID: diagnosis.WrongMachine, Severity: diagnosis.Failure, Node: node.Name, Cause: cause,
		Next: "have " + node.Name + "'s machine looked for: mage discover -save; or pass NODE_ADDRESSES=" + node.Name +
			"=<address> (its console shows it), or correct the declared machine",
	}
}

// ownerOf finds the other node of the inventory that declares this machine; nil if there is none.
func ownerOf(cluster *inventory.Cluster, node *inventory.Node, macs []string, system talos.SystemInfo) *inventory.Node {
	if cluster == nil {
		return nil
	}

	for _, other := range cluster.Nodes {
		if other == node {
			continue
		}

		if anyMAC(other.MACs, macs) || (other.UUID != "" && strings.EqualFold(other.UUID, system.UUID)) {
			return other
		}
	}

	return nil
}

// anyMAC reports whether a machine with these addresses has one of the declared ones, which may hold wildcards, as
// Talos' selectors may.
func anyMAC(declared, macs []string) bool {
	return slices.ContainsFunc(declared, func(pattern string) bool {
		return slices.ContainsFunc(macs, func(mac string) bool { return matchesMAC(pattern, mac) })
	})
}

func matchesMAC(pattern, mac string) bool {
	matched, err := path.Match(strings.ToLower(pattern), mac)

	return err == nil && matched
}

// PhysicalMACs are those of links that are hardware, in lower case.
func PhysicalMACs(links []talos.Link) []string {
	var macs []string

	for _, link := range links {
		if link.Physical && link.MAC != "" {
			macs = append(macs, strings.ToLower(link.MAC))
		}
	}

	return macs
}

func macList(macs []string) string {
	if len(macs) == 0 {
		return "no physical link with a MAC address"
	}

	return strings.Join(macs, ", ")
}

func orNone(text string) string {
	if text == "" {
		return "not known"
	}

	return text
}

func checkIdentity(_ context.Context, s subject) {
	if what := s.unreadIdentity(); what != "" {
		s.fail(diagnosis.IdentityUnread, s.rerun(),
			"the node's %s could not be read, so it is not known whether this is the declared machine%s",
			what, because(s.Facts.IdentityUnread()))

		return
	}

	if finding := Identity(s.Cluster, s.Node.Node, s.Facts.Links, s.Facts.System); finding != nil {
		finding.Address = s.Facts.Address

		s.report.Put(*finding)

		return
	}

	if len(s.MACs) == 0 && s.UUID == "" {
		s.ok(diagnosis.WrongMachine, "no MAC address or UUID is declared: any machine would be taken")

		return
	}

	s.ok(diagnosis.WrongMachine, "the declared machine answers")
}

// because is an error in plain words, in brackets.
func because(err error) string {
	if err == nil {
		return ""
	}

	return " (" + talos.Explain(err) + ")"
}

// unreadIdentity names what the declared identity needs and could not be read.
func (s subject) unreadIdentity() string {
	switch {
	case len(s.MACs) > 0 && s.Facts.Lacks(check.FactLinks):
		return check.FactLinks
	case s.UUID != "" && s.Facts.Lacks(check.FactSystem):
		return check.FactSystem
	default:
		return ""
	}
}
