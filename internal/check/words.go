package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// GenerateCommand renders the machine configs again from the inventory.
const GenerateCommand = "mage config:generate"

// Regenerate is what to do about a machine config: it is never edited by hand, as the next generation would undo that.
func (in *Input) Regenerate(change string) string {
	return InInventory(in.Shown(in.Cluster.Source), change, "mage preflight")
}

// InInventory says what to change in the inventory's file, and how it is judged again.
func InInventory(source, change, rerun string) string {
	if source == "" {
		source = "the inventory"
	}

	return fmt.Sprintf("in %s, %s; then `%s` and `%s`", source, change, GenerateCommand, rerun)
}

// SelectBy is what to select a link by: the MAC address, or where machines share a config what these have in common.
func SelectBy(machines int) string {
	if machines > 1 {
		return "its busPath, if that is the same in all machines of the entry; or give each an entry with its MAC address"
	}

	return "its MAC address"
}

// Join lists values for people.
func Join[T fmt.Stringer](values []T) string { return strings.Join(Texts(values), ", ") }

// Texts are the values as text.
func Texts[T fmt.Stringer](values []T) []string {
	texts := make([]string, 0, len(values))
	for _, value := range values {
		texts = append(texts, value.String())
	}

	return texts
}

// AnyContains reports whether an address is in the subnet of one of others.
func AnyContains(prefixes []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(prefix netip.Prefix) bool { return prefix.Masked().Contains(address) })
}

// shownInstances is how many of many a finding names.
const shownInstances = 3

// Some lists the first of many.
func Some(texts []string) string {
	text := strings.Join(texts[:min(len(texts), shownInstances)], ", ")
	if more := len(texts) - shownInstances; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}

	return text
}

// CoversName compares a name of a certificate with a host's; a leading * stands for one label.
func CoversName(certified, host string) bool {
	if parent, wildcard := strings.CutPrefix(certified, "*."); wildcard {
		_, rest, _ := strings.Cut(host, ".")

		return strings.EqualFold(parent, rest)
	}

	return strings.EqualFold(certified, host)
}

// Unique are the texts in the order of their first appearance.
func Unique[T ~string](texts []T) []T {
	seen := map[T]bool{}

	return slices.DeleteFunc(slices.Clone(texts), func(text T) bool {
		known := seen[text]
		seen[text] = true

		return known
	})
}

// Count is a number with its noun.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}

	return fmt.Sprintf("%d %ss", n, noun)
}

// Headline names the node before the cause.
func Headline(finding diagnosis.Finding) string {
	if finding.Node == "" {
		return finding.Headline()
	}

	return finding.Node + ": " + finding.Headline()
}

// Suggestion is the word for a finding that makes nothing wrong.
const Suggestion = "suggestion"

// NodeList is a list of nodes for people, cut where it gets long.
func NodeList(names []string) string {
	const most = 3

	if len(names) <= most {
		return strings.Join(names, ", ")
	}

	return fmt.Sprintf("%s and %d more nodes", strings.Join(names[:most], ", "), len(names)-most)
}
