package nodes

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/cluster/schematic"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// checkLinks looks for the physical links that the machine config names or selects by MAC. A missing name is only
// surely wrong if the node booted with the kernel arguments that it will have once installed: net.ifnames decides how
// links are called. A MAC never changes.
func checkLinks(_ context.Context, s subject) {
	if s.Facts.Lacks(check.FactLinks) {
		return
	}

	next := s.regenerate("name a link that " + s.Name + " has, or select it by " + check.SelectBy(s.sharing()))

	absentMACs := s.absentMACs()
	unmatched := len(absentMACs) > 0 && anyMAC(s.MACs, PhysicalMACs(s.Facts.Links))

	if unmatched {
		s.fail(diagnosis.LinkAbsent, next, "no physical link has the MAC address %s; the node has %s",
			strings.Join(absentMACs, ", "), linkList(s.Facts.Links))
	}

	absent := s.absentLinks()
	cause := fmt.Sprintf("no link %s; the node has %s", strings.Join(absent, ", "), linkList(s.Facts.Links))

	switch difference := s.namingDifference(); {
	case len(absent) == 0 && (unmatched || len(s.Config.Links()) == 0):
	case len(absent) == 0:
		s.ok(diagnosis.LinkAbsent, "has %s", strings.Join(s.Config.Links(), ", "))
	case difference != "":
		s.warn(diagnosis.LinkAbsent, next, "%s, and its names may change: %s", cause, difference)
	case s.canDoWithout(absent):
		s.warn(diagnosis.LinkAbsent, next, "%s", cause)
	default:
		s.fail(diagnosis.LinkAbsent, next, "%s: it would not be on the network", cause)
	}
}

// canDoWithout reports whether a node is reached without the links of these names.
func (s subject) canDoWithout(names []string) bool {
	config := check.NewRendered(s.Config)

	return !slices.ContainsFunc(names, func(name string) bool {
		return !slices.ContainsFunc(config.Links(), func(link *check.Link) bool {
			return link.Name == name && s.severityWithout(config, link) != diagnosis.Failure
		})
	})
}

// severityWithout is how bad it is that a node lacks a link. Some come and go with the machine at the other end of the
// cable, or with a driver that only the installed system has: a warning, where the node gets its address over another.
func (s subject) severityWithout(config *check.Rendered, link *check.Link) diagnosis.Severity {
	declared, err := netip.ParseAddr(s.Node.Address)
	if err != nil {
		return diagnosis.Failure
	}

	var asks, ownedElsewhere, askedElsewhere bool

	for _, other := range config.Links() {
		owns := slices.ContainsFunc(other.Addresses,
			func(address check.Address) bool { return address.Prefix.IsValid() && address.Prefix.Addr() == declared })

		switch {
		case !runsOn(other, link):
			ownedElsewhere, askedElsewhere = ownedElsewhere || owns, askedElsewhere || other.DHCP
		case owns || len(other.VIPs) > 0 || slices.ContainsFunc(other.Routes, check.Route.IsDefault):
			return diagnosis.Failure
		default:
			asks = asks || other.DHCP
		}
	}

	if ownedElsewhere || askedElsewhere && !asks {
		return diagnosis.Warning
	}

	return diagnosis.Failure
}

// runsOn reports whether a link is another, or made on top of it.
func runsOn(link, other *check.Link) bool {
	if link == other || link.VLAN && link.ParentAt == other.At {
		return true
	}

	parts := []string{link.Parent}
	for _, member := range link.Members {
		parts = append(parts, member.Name)
	}

	return other.Name != "" && slices.Contains(parts, other.Name)
}

func (s subject) absentLinks() []string {
	return slices.DeleteFunc(slices.Clone(s.Config.Links()), func(name string) bool {
		return slices.ContainsFunc(s.Facts.Links, func(link talos.Link) bool { return called(link, name) })
	})
}

func (s subject) absentMACs() []string {
	return slices.DeleteFunc(slices.Clone(s.MACs),
		func(mac string) bool { return anyMAC([]string{mac}, PhysicalMACs(s.Facts.Links)) })
}

// called reports whether a link goes by a name.
func called(link talos.Link, name string) bool {
	return link.Name == name || slices.Contains(link.Aliases, name)
}

func linkList(links []talos.Link) string {
	var texts []string

	for _, link := range links {
		if link.Physical {
			texts = append(texts, strings.TrimSpace(link.Name+" "+link.MAC))
		}
	}

	if len(texts) == 0 {
		return "no physical link"
	}

	return strings.Join(texts, ", ")
}

// namingArgs are the kernel arguments that decide how links are called.
var namingArgs = []string{"net.ifnames", "biosdevname"}

// namingDifference says why the installed system may name its links otherwise than the running one does; empty when it
// will not. An installed node keeps its names: it runs what it will run.
func (s subject) namingDifference() string {
	switch {
	case s.installed():
		return ""
	case s.Facts.Lacks(check.FactCmdline):
		return "the arguments that it booted with are not known"
	}

	booted, declared := namingOf(strings.Fields(s.Facts.Cmdline)), s.declaredNaming()

	for _, name := range namingArgs {
		if value, ok := declared[name]; ok && booted[name] != value {
			return fmt.Sprintf("it booted without %s=%s, which its machine config asks for", name, value)
		}
	}

	image := schematic.ParseReference(s.Config.InstallImage())

	switch plain := s.Config.InstallImage() == "" || image.Plain(); {
	case plain && !maps.Equal(booted, declared):
		return "it booted with " + namingText(booted) + ", which its installer image does not have"
	case plain, len(declared) > 0, image.Schematic != "" && image.Schematic == s.Facts.Schematic:
		return ""
	default:
		return "the installer image may have arguments of its own, and the node did not boot from it"
	}
}

// declaredNaming are the naming arguments that the machine config adds; none where it lets the image decide.
func (s subject) declaredNaming() map[string]string {
	if s.Config.UsesUKICmdline() || (s.Facts.Security != nil && s.Facts.Security.UKI) {
		return nil
	}

	return namingOf(s.Config.ExtraKernelArgs())
}

// namingOf picks the naming arguments; the last of several wins, as it does in the kernel. net.ifnames=1 is Talos'
// default, so it says nothing.
func namingOf(args []string) map[string]string {
	named := make(map[string]string)

	for _, arg := range args {
		if name, value, _ := strings.Cut(arg, "="); slices.Contains(namingArgs, name) {
			named[name] = value
		}
	}

	if named["net.ifnames"] == "1" {
		delete(named, "net.ifnames")
	}

	return named
}

func namingText(args map[string]string) string {
	var texts []string

	for _, name := range slices.Sorted(maps.Keys(args)) {
		texts = append(texts, name+"="+args[name])
	}

	return strings.Join(texts, " ")
}
