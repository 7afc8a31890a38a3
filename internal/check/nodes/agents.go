package nodes

import (
	"context"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/check/files/images"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/schematic"
	"github.com/talos-mage/talos-mage/internal/cluster/talconfig"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// agents are the guest agents, with what the firmware of machines says on which they have nobody to talk to. QEMU's
// machines have many vendors, so that others are listed.
var agents = []struct {
	extension, hypervisor string

	useless func(manufacturer string) bool
}{
	{"qemu-guest-agent", "QEMU's", func(manufacturer string) bool {
		return slices.ContainsFunc([]string{"VMware", "Xen", "Microsoft", "Dell", "HPE", "Hewlett", "LENOVO", "Supermicro"},
			func(vendor string) bool {
				return strings.HasPrefix(manufacturer, vendor)
			})
	}},
	{"vmtoolsd-guest-agent", "VMware's",
		func(manufacturer string) bool { return !strings.HasPrefix(manufacturer, "VMware") }},
	{"xen-guest-agent", "Xen's", func(manufacturer string) bool { return !strings.HasPrefix(manufacturer, "Xen") }},
}

// checkGuestAgent compares the agents in the image that a node is to get with the machine that answers.
func checkGuestAgent(_ context.Context, s subject) {
	made, manufacturer := s.madeOf(), s.Facts.System.Manufacturer
	if made == nil || manufacturer == "" {
		return
	}

	for _, agent := range agents {
		if images.HasExtension(made, agent.extension) && agent.useless(manufacturer) {
			name := images.Siderolabs + agent.extension
			s.found(diagnosis.AgentElsewhere, "take "+name+" out of the schematic of "+s.Name,
				"the installer image has %s, and by its firmware the machine is none of %s", name, agent.hypervisor)

			return
		}
	}
}

// madeOf is what the node's installer is made of; nil if its id is none of the inventory's and none that is known.
func (s subject) madeOf() *schematic.Schematic {
	return madeOf(s.Cluster, s.Node.Node, s.Config.InstallImage())
}

// LackingExtensions are those of some extensions that an installer image does not have, as far as it is known what it
// is made of.
func LackingExtensions(cluster *inventory.Cluster, node *inventory.Node, image string, wanted []string) []string {
	made := madeOf(cluster, node, image)
	if made == nil {
		return nil
	}

	return slices.DeleteFunc(slices.Clone(wanted), func(name string) bool { return images.HasExtension(made, name) })
}

// MissingExtensions are those of an installer image that a node with the given ones does not have, as far as it is
// known what the image is made of.
func MissingExtensions(cluster *inventory.Cluster, node *inventory.Node, image string, present []string) []string {
	made := madeOf(cluster, node, image)
	if made == nil {
		return nil
	}

	return slices.DeleteFunc(slices.Clone(made.Customization.SystemExtensions.OfficialExtensions),
		func(name string) bool { return slices.Contains(present, strings.TrimPrefix(name, images.Siderolabs)) })
}

func madeOf(cluster *inventory.Cluster, node *inventory.Node, image string) *schematic.Schematic {
	id := schematic.ParseReference(image).Schematic

	if declared := cluster.Talconfig; declared != nil {
		i := slices.IndexFunc(declared.Nodes, func(one talconfig.Node) bool { return one.Hostname == node.Hostname })
		if i >= 0 {
			if made := declared.Settings(declared.Nodes[i]).Schematic; made != nil {
				if known, err := made.ID(); err == nil && known == id {
					return made
				}
			}
		}
	}

	return images.CommonSchematics()[id]
}
