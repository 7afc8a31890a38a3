package match

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/discover"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// Proposal is what to add to the cluster's files so that a machine is known by itself.
type Proposal struct {
	// Node is whose machine it is; nil if nothing tells.
	Node    *inventory.Node
	Machine discover.Machine
	// YAML is text to paste, below a comment that says where.
	YAML string
}

// Propose gives a proposal for each machine that is matched to a node of which nothing is declared, and, where such
// nodes have none, for each machine in maintenance that is left.
func Propose(cluster *inventory.Cluster, result Result) []Proposal {
	var proposals []Proposal

	propose := func(node *inventory.Node, machine discover.Machine) {
		if machine.State != talos.Maintenance || len(machine.MACs) == 0 {
			return
		}

		proposals = append(proposals, Proposal{node, machine, proposal{cluster, node, machine}.text()})
	}

	for _, pair := range result.Pairs {
		if !pair.Node.DeclaresMachine() {
			propose(pair.Node, pair.Machine)
		}
	}

	if slices.ContainsFunc(result.Missing, func(node *inventory.Node) bool { return !node.DeclaresMachine() }) {
		for _, machine := range result.Extra {
			propose(nil, machine)
		}
	}

	return proposals
}

type proposal struct {
	cluster *inventory.Cluster
	node    *inventory.Node
	machine discover.Machine
}

func (p proposal) text() string {
	whose := "the machine at " + p.machine.Address().String() + ", whichever node it is"
	if p.node != nil {
		whose = p.node.Name + " (now at " + p.machine.Address().String() + ")"
	}

	lines := []string{fmt.Sprintf("# %s: in %s, at the entry of the node", whose, filepath.Base(p.cluster.Source))}

	if p.cluster.Profile != nil {
		return strings.Join(append(lines, p.links("mac: %q")...), "\n") + "\n"
	}

	lines = append(lines, p.disk()...)

	if p.cluster.Contract.UnattendedInstallConfig() {
		return strings.Join(append(lines, p.links(aliasPatch)...), "\n") + "\n"
	}

	return strings.Join(append(lines, p.links(deviceSelector)...), "\n") + "\n"
}

const (
	deviceSelector = `networkInterfaces:
  - deviceSelector: # in place of interface:
      hardwareAddr: %q
    dhcp: true # unless it has addresses of its own`

	// Since Talos 1.14 a document names the link.
	aliasPatch = `patches:
  - |-
    apiVersion: v1alpha1
    kind: LinkAliasConfig
    name: lan0
    selector:
      match: mac(link.permanent_addr) == %q`
)

// links fills in the address of the link that is up, or of each of several for somebody to choose from.
func (p proposal) links(format string) []string {
	var up, all []string

	for _, link := range p.machine.Links {
		if !link.Physical || link.MAC == "" {
			continue
		}

		all = append(all, link.MAC)

		if link.Up {
			up = append(up, link.MAC)
		}
	}

	if len(up) == 0 {
		up = all
	}

	return choice("links are up", up, func(mac string) string { return fmt.Sprintf(format, mac) })
}

// disk selects the disk to install on; nothing if the node has a selector already.
func (p proposal) disk() []string {
	if p.node != nil && p.node.DiskSelector != "" {
		return nil
	}

	candidates := slices.DeleteFunc(slices.Clone(p.machine.Disks), func(disk *block.Disk) bool {
		return !p.canBeInstalledOn(disk.TypedSpec()) || p.selector(disk) == ""
	})

	return choice("disks fit", candidates, p.selector)
}

// canBeInstalledOn leaves out what the machine booted from, an ISO or a USB stick, and all but the disk that the node
// declares by its path.
func (p proposal) canBeInstalledOn(disk *block.DiskSpec) bool {
	if disk.CDROM || disk.Readonly || disk.Transport == "" || disk.Transport == "usb" || disk.Size == 0 {
		return false
	}

	return p.node == nil || p.node.InstallDisk == "" || disk.DevPath == p.node.InstallDisk ||
		slices.Contains(disk.Symlinks, p.node.InstallDisk)
}

// selector is the YAML that selects this disk alone of the machine's; empty if nothing tells it from the others.
func (p proposal) selector(disk *block.Disk) string {
	spec := disk.TypedSpec()
	size := &v1alpha1.InstallDiskSizeMatcher{MatchData: v1alpha1.InstallDiskSizeMatchData{Op: "==", Size: spec.Size}}

	for _, way := range []struct {
		text     string
		selector v1alpha1.InstallDiskSelector
	}{
		{fmt.Sprintf("  serial: %q", spec.Serial), v1alpha1.InstallDiskSelector{Serial: spec.Serial}},
		{fmt.Sprintf("  wwid: %q", spec.WWID), v1alpha1.InstallDiskSelector{WWID: spec.WWID}},
		{fmt.Sprintf("  size: \"== %d\" # %s\n  model: %q", spec.Size, spec.PrettySize, spec.Model),
			v1alpha1.InstallDiskSelector{Size: size, Model: spec.Model}},
	} {
		if way.selector.Serial+way.selector.WWID+way.selector.Model != "" && p.selectsOnly(disk, way.selector) {
			return fmt.Sprintf("installDiskSelector: # %s, in place of installDisk:\n%s", spec.DevPath, way.text)
		}
	}

	return ""
}

// selectsOnly reports whether a selector is true of one disk of the machine and of no other.
func (p proposal) selectsOnly(wanted *block.Disk, selector v1alpha1.InstallDiskSelector) bool {
	for _, disk := range p.machine.Disks {
		selected, err := machineconfig.SelectsDisk(selector, disk.TypedSpec())
		if err != nil || selected != (disk.Metadata().ID() == wanted.Metadata().ID()) {
			return false
		}
	}

	return true
}

// choice is the one way there is, or all of them as comments for somebody to choose from.
func choice[T any](what string, ways []T, text func(T) string) []string {
	if len(ways) == 1 {
		return []string{text(ways[0])}
	}

	var lines []string

	if len(ways) > 1 {
		lines = append(lines, fmt.Sprintf("# %d %s: uncomment one", len(ways), what))
	}

	for _, way := range ways {
		for line := range strings.SplitSeq(text(way), "\n") {
			lines = append(lines, "# "+line)
		}
	}

	return lines
}
