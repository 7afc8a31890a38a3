package interfaces

import (
	"strings"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/check"
)

// predictableName is how a physical link is called by where it is: enp1s0, eno1, ens18, enx020000000001. Source:
// systemd.net-naming-scheme(7).
var predictableName = pattern.New(`^(en|wl|ww)(P\d+)?(o\d|p\d|s\d|x[0-9a-f]{12})`)

// checkLinkNames looks for links that are named by where they are, on nodes whose kernel is told to number them.
func checkLinkNames(r *check.Report, config *check.Rendered) {
	where := numbersLinks(r.In, config)
	if where == "" {
		return
	}

	told := map[string]bool{}

	judge := func(name string, place check.Place) {
		if predictableName.MatchString(name) && !told[name] && !config.IsAlias(name) {
			told[name] = true
			r.Found(place, "call it as the node does, as eth0, or select it by "+check.SelectBy(len(config.Nodes)),
				"%s is a name that %s in %s takes away", name, noNames, where)
		}
	}

	for _, link := range config.Links() {
		if !link.Made {
			judge(link.Name, link.At)
		}

		if link.VLAN {
			judge(link.Parent, link.ParentAt)
		}

		for _, member := range link.Members {
			judge(member.Name, member.At)
		}
	}
}

// noNames is the kernel argument with which links are called eth0, eth1 and so on.
const noNames = "net.ifnames=0"

// numbersLinks says where a node's kernel is told to number its links; empty if it is not.
func numbersLinks(in *check.Input, config *check.Rendered) string {
	if !config.UsesUKICmdline() && lastNaming(config.ExtraKernelArgs()) == noNames {
		return "install.extraKernelArgs"
	}

	if len(config.Nodes) == 0 {
		return ""
	}

	settings, known := in.SettingsOf(config.Nodes[0])
	if known && settings.TalosImageURL == "" && settings.Schematic != nil &&
		lastNaming(settings.Schematic.Customization.ExtraKernelArgs) == noNames {
		return "its schematic"
	}

	return ""
}

// lastNaming is the argument about names that the kernel takes: the last one.
func lastNaming(args []string) string {
	last := ""

	for _, arg := range args {
		if strings.HasPrefix(arg, "net.ifnames=") {
			last = arg
		}
	}

	return last
}
